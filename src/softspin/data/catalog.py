"""Registry of data sets by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from softspin.data.arrays import from_images
from softspin.data.builtin import bars_and_stripes, digits, digits8x8
from softspin.data.dataset import Dataset
from softspin.data.fetch import fetch
from softspin.data.folders import read_folder
from softspin.data.formats import read_file
from softspin.data.notices import notice
from softspin.data.sources import PUBLIC_SETS
from softspin.errors import ConfigError, DataError, UnknownNameError, unknown_name

DEFAULT = "digits"
"""Name of the default data set.

It needs no download once the extra is installed, and its images are MNIST digits of 28 x 28, so every structure of the
published experiments runs on it unchanged. The smaller 8 x 8 digits have other sizes."""

_BARS = "bars-and-stripes"
_FUNCTIONS: dict[str, Callable[[], Dataset]] = {"digits": digits, "digits8x8": digits8x8}
"""Functions that return a data set, by name."""
_OLDER: dict[str, Callable[[], Dataset]] = {"digits@1": lambda: digits(1), "digits8x8@1": lambda: digits8x8(1)}
"""Earlier versions of data sets, as `name@version`. Runs that were made with them still need them."""
_FINGERPRINTS = {
    "0200949e61569e3d6cc5bbb895e5b7614a19677d55e6602e235f7307075dece5": "digits@1",
    "f38ec109ef3607ac57a463af48cb07484e5b1c26ec003a604370143e03d95c84": "digits8x8@1",
}
"""Names of earlier versions, by their fingerprints."""
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
    *,
    limit: float | None = None,
    split: bool = True,
    binarize: bool = True,
) -> Dataset:
    """Load a data set by name, from a .npy, .npz, .pt or .csv file, or from a folder of images.

    The files of ``mnist`` and ``omniglot`` are read from ``folder`` if it is given. Otherwise they are looked up in
    $SOFTSPIN_DATA and in the user's cache, and then downloaded into the cache. Their checksums are verified every time.
    The other data sets need neither files nor network. An earlier version of a data set is called `name@version`, such
    as `digits@1`.

    No code in a file is executed. A .npy file of more than 1 GiB stays on disk, and its images are read batch by batch.

    >>> load("bars-and-stripes-3x3")
    Dataset('bars-and-stripes-3x3', 14/14/14 images of 3x3, static, 'all 14 bars and stripes of 3 x 3')

    Args:
        name_or_path: A name, see :func:`available`, or the path of a file or folder, see :func:`from_arrays`.
        folder: The only folder in which the files of a public data set are looked up.
        download: Whether missing files may be downloaded.
        limit: Most memory, in GiB, that the arrays of a file may take; by default $SOFTSPIN_DATA_LIMIT, else 16 or the
            free memory of the machine, whichever is less.
        split: Whether a file is split; if not, all its images, in their order, are each of the three splits.
        binarize: Whether a file has binary data, see :func:`from_arrays`. A named data set stays as it is.

    Returns:
        The data set.

    Raises:
        UnknownNameError: There is no data set of this name.
        DataError: Files are missing, corrupt, too large, or cannot be downloaded.
        MissingExtraError: The data set needs a package that is not installed.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        what = f"a data set is loaded by its name or path, not by a {type(name_or_path).__name__}"
        raise DataError(f"{what}; images in memory are for softspin.data.from_arrays")
    if not isinstance(split, bool):
        raise DataError(f"split = {split!r} must be True or False; a data set has the splits train, valid and test")
    if is_path(name_or_path):
        return _read(Path(name_or_path).expanduser(), limit, split, binarize)
    name = os.fspath(name_or_path)
    _load_plugins()
    if (read := _FUNCTIONS.get(name) or _OLDER.get(name)) is not None:
        return read()
    if name in PUBLIC_SETS:
        return fetch(PUBLIC_SETS[name], folder, download)
    if size := re.fullmatch(rf"{_BARS}-([0-9]+)x([0-9]+)", name):
        return bars_and_stripes(int(size[1]), int(size[2]))
    if name.startswith(_BARS):
        raise UnknownNameError(f"unknown data set '{name}'; give height and width, as in '{_BARS}-3x3'")
    raise UnknownNameError(f"{unknown_name('data set', name, available())}; there is no folder '{name}' either")


def same_version(data: Dataset, fingerprint: str) -> Dataset:
    """Find the version of a data set that a run was made with.

    Args:
        data: The data set in its current version.
        fingerprint: Fingerprint of the data of the run.

    Returns:
        The earlier version of the data set that has the fingerprint, with a warning; `data` if there is none.
    """
    name = earlier_version(fingerprint)
    if data.fingerprint == fingerprint or name is None or name.partition("@")[0] != data.name:
        return data
    notice_of_version(data.name, fingerprint)
    return _OLDER[name]()


def earlier_version(fingerprint: str) -> str | None:
    """Name of the earlier version of a data set that has a fingerprint.

    Args:
        fingerprint: Fingerprint of the data of a run.

    Returns:
        The name, such as `digits@1`; None for other data.
    """
    return _FINGERPRINTS.get(fingerprint)


def notice_of_version(recorded: str, fingerprint: str) -> None:
    """Warn of a run that was made with an earlier version of a data set, without naming it.

    Args:
        recorded: Name of the data of the run.
        fingerprint: Their fingerprint.
    """
    name = earlier_version(fingerprint)
    if name is not None and name != recorded:
        notice(
            f"this run was made with '{name}', an earlier version of the data set '{name.partition('@')[0]}' with "
            f"another order of the held-out images; compare it on softspin.data.load('{name}'), as its commands do"
        )


def is_path(name_or_path: str | os.PathLike[str]) -> bool:
    """Whether data are a file or folder; names of data sets have neither dots nor slashes.

    >>> is_path("digits"), is_path("my.npy"), is_path("data/images")
    (False, True, True)

    Args:
        name_or_path: Name of a data set, or a path.

    Returns:
        True for a path, also for the name of an existing folder that is not the name of a data set.
    """
    if not isinstance(name_or_path, str) or _looks_like_a_path(name_or_path):
        return True
    known = name_or_path in available() or name_or_path in _OLDER or name_or_path.startswith(_BARS)
    return not known and Path(name_or_path).expanduser().is_dir()


def _read(path: Path, limit: float | None, split: bool, binarize: bool) -> Dataset:
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:  # a loop of links, or a null character
        raise DataError(f"cannot read {str(path)!r}: {error}") from None
    given = read_folder(path, limit) if is_folder else read_file(path, limit)
    kind = "own images" if is_folder else "own arrays"
    name, source = path.resolve().stem, f"{kind} {path.name}"
    return from_images(given, name=name, source=source, split=split, binarize=binarize)


def _looks_like_a_path(text: str) -> bool:
    return any(mark in text for mark in (".", "/", "~", os.sep))
