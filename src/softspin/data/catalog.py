"""Registry of data sets by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from softspin.data.arrays import read_arrays
from softspin.data.builtin import bars_and_stripes, digits, digits8x8
from softspin.data.dataset import Dataset
from softspin.data.fetch import fetch
from softspin.data.sources import PUBLIC_SETS
from softspin.errors import ConfigError, UnknownNameError, unknown_name

DEFAULT = "digits"
"""Name of the default data set.

It needs no download once the extra is installed, and its images are MNIST digits of 28 x 28, so every structure of the
published experiments runs on it unchanged. The smaller 8 x 8 digits have other sizes."""

_BARS = "bars-and-stripes"
_FUNCTIONS: dict[str, Callable[[], Dataset]] = {"digits": digits, "digits8x8": digits8x8}
"""Functions that return a data set, by name."""
_loaded_plugins = False


def register(name: str, read: Callable[[], Dataset]) -> None:
    """Register a data set under a name.

    A package can also declare such functions as entry points of the group `softspin.datasets`.

    Args:
        name: Name for :func:`load`, without dots and slashes.
        read: Function that returns the data set.

    Raises:
        ConfigError: The name is invalid, or taken by another data set.
    """
    if _looks_like_a_path(name) or not name.strip():
        raise ConfigError(f"a data set cannot be called '{name}'; a name has no dot and no slash")
    if name in available() and _FUNCTIONS.get(name) is not read:
        raise ConfigError(f"the name '{name}' is taken by another data set; choose another one")
    _FUNCTIONS[name] = read


def _load_plugins() -> None:
    global _loaded_plugins  # noqa: PLW0603
    if not _loaded_plugins:
        _loaded_plugins = True
        for point in entry_points(group="softspin.datasets"):
            _FUNCTIONS.setdefault(point.name, lambda point=point: point.load()())  # type: ignore[misc]


def available() -> list[str]:
    """List the data sets that :func:`load` knows by name.

    Returns:
        Sorted names. Bars and stripes exist in every size; one is listed.
    """
    _load_plugins()
    return sorted([*_FUNCTIONS, *PUBLIC_SETS, f"{_BARS}-3x3"])


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Dataset:
    """Load a data set by name, or from a .npy or .npz file.

    The files of ``mnist`` and ``omniglot`` are read from ``folder`` if it is given. Otherwise they are looked up in
    $SOFTSPIN_DATA and in the user's cache, and then downloaded into the cache. Their checksums are verified every time.
    The other data sets need neither files nor network.

    >>> load("bars-and-stripes-3x3")
    Dataset('bars-and-stripes-3x3', 14/14/14 images of 3x3, static, 'all 14 bars and stripes of 3 x 3')

    Args:
        name_or_path: A name, see :func:`available`, or the path of a file, see :func:`from_arrays`.
        folder: The only folder in which the files of a public data set are looked up.
        download: Whether missing files may be downloaded.

    Returns:
        The data set.

    Raises:
        UnknownNameError: There is no data set of this name.
        DataError: Files are missing, corrupt, or cannot be downloaded.
        MissingExtraError: The data set needs a package that is not installed.
    """
    if not isinstance(name_or_path, str) or _looks_like_a_path(name_or_path):
        return read_arrays(Path(name_or_path).expanduser())
    name = name_or_path
    _load_plugins()
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]()
    if name in PUBLIC_SETS:
        return fetch(PUBLIC_SETS[name], folder, download)
    if size := re.fullmatch(rf"{_BARS}-([0-9]+)x([0-9]+)", name):
        return bars_and_stripes(int(size[1]), int(size[2]))
    if name.startswith(_BARS):
        raise UnknownNameError(f"unknown data set '{name}'; give height and width, as in '{_BARS}-3x3'")
    raise unknown_name("data set", name, available())


def _looks_like_a_path(text: str) -> bool:
    """Names of data sets have neither dots nor slashes."""
    return any(mark in text for mark in (".", "/", os.sep))
