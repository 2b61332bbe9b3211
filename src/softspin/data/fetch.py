"""Lookup of public data sets: a folder, $SOFTSPIN_DATA, the cache, or a download."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from softspin.data.checksums import verify
from softspin.data.dataset import Dataset
from softspin.data.download import download
from softspin.data.sources import PublicSet
from softspin.errors import DataError
from softspin.files import cache_folder, move_file


def fetch(wanted: PublicSet, folder: str | os.PathLike[str] | None, allow_download: bool) -> Dataset:
    """Read a public data set from ``folder``; without one, from $SOFTSPIN_DATA, the cache, or the network.

    Args:
        wanted: The data set.
        folder: The only folder to look in; if the files are missing there, that is an error.
        allow_download: Whether missing files may be downloaded.

    Returns:
        The data set.

    Raises:
        DataError: The files are missing, corrupt, or cannot be downloaded.
    """
    if folder is not None:
        place = Path(os.path.expanduser(folder))
        found = _read_from(wanted, place)
        if found is None:
            missing = "" if place.is_dir() else " (there is no such folder)"
            expected = f"expected files: {wanted.wanted()}"
            raise DataError(f"{wanted.name} is not in {place}{missing}; {expected}; {_by_hand(wanted, place)}")
        return found
    cache = cache_folder()
    named = os.environ.get("SOFTSPIN_DATA", "")
    places = [Path(os.path.expanduser(named)), cache] if named else [cache]
    for place in places:
        found = _read_from(wanted, place)
        if found is not None:
            return found
    looked = f"{wanted.name} is not in {' or '.join(map(str, places))}"
    if not allow_download:
        raise DataError(f"{looked}, and downloading is off; {_by_hand(wanted, cache)}")
    wanted.prepare()
    try:
        _download_into(cache, wanted)
    except (DataError, OSError) as error:
        raise DataError(f"{looked}, and {error}; {_by_hand(wanted, cache)}") from error
    found = _read_from(wanted, cache)
    if found is None:
        raise DataError(f"{wanted.name} was downloaded to {cache} and then removed by another process; load it again")
    return found


def _read_from(wanted: PublicSet, folder: Path) -> Dataset | None:
    """The data set from the first complete copy in this folder; None if there is none."""
    for copy in wanted.copies:
        paths = [folder / file.name for file in copy.files]
        if all(path.is_file() for path in paths):
            for path, file in zip(paths, copy.files, strict=True):
                verify(path, file.digests, f"delete {path} and load again")
            return copy.read(paths)
    return None


def _download_into(cache: Path, wanted: PublicSet) -> None:
    """Download into a temporary folder, then move one file to the cache atomically."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
        paths = [Path(scratch) / file.name for file in wanted.published.files]
        for path, file in zip(paths, wanted.published.files, strict=True):
            download(file, path)
        kept = wanted.keep(paths, Path(scratch))
        move_file(kept, cache / kept.name)


def _by_hand(wanted: PublicSet, folder: Path) -> str:
    pages = {file.addresses[0].rpartition("/")[0]: None for file in wanted.published.files}
    names = ", ".join(file.name for file in wanted.published.files)
    return f"download {names} from {' and '.join(pages)} to {folder}"
