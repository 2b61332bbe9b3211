"""Data sets by name."""

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

# What runs when nobody chose: it is there without a network as soon as the extra is installed, and its images
# have the shape of the published experiments (28 x 28, and real MNIST ink), so that every structure runs on
# it as it is. The 8 x 8 digits, smaller still, would exercise none of those sizes.
DEFAULT = "digits"

_BARS = "bars-and-stripes"
_FUNCTIONS: dict[str, Callable[[], Dataset]] = {"digits": digits, "digits8x8": digits8x8}
"""Sets that a function gives, by name."""
_loaded_plugins = False


def register(name: str, read: Callable[[], Dataset]) -> None:
    """Make a data set known by a name: `read()` returns it, split and checked.

    A package can also announce such functions as entry points of the group `softspin.datasets`.
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
    """Names that :func:`load` knows, sorted; bars and stripes exist in every size, and are listed in one."""
    _load_plugins()
    return sorted([*_FUNCTIONS, *PUBLIC_SETS, f"{_BARS}-3x3"])


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Dataset:
    """A data set by name (see :func:`available`), or the user's own from a .npy or .npz file.

    The files of ``mnist`` and ``omniglot`` are looked for in ``folder`` alone where one is given; otherwise
    in $SOFTSPIN_DATA, in the user's cache, and then, unless ``download`` is false, fetched from their public
    addresses into the cache. They are checked by digest every time. The other sets need neither folder nor
    network.

    >>> load("bars-and-stripes-3x3")
    Dataset('bars-and-stripes-3x3', 14/14/14 images of 3x3, static, 'all 14 bars and stripes of 3 x 3')
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
    """No name of ours has a dot or a slash."""
    return any(mark in text for mark in (".", "/", os.sep))
