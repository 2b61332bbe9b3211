"""A limit on the memory that a data file may take, checked before it is read."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from softspin.errors import DataError

VARIABLE = "SOFTSPIN_DATA_LIMIT"
"""Environment variable with the limit in GiB."""
GIB = 1 << 30
DEFAULT_LIMIT = 16.0
"""Limit in GiB if the machine has so much free memory."""

COPIES = 3
"""Memory that loading takes at most, in sizes of the arrays: a file of 3 GiB was measured to take 8.4 GiB."""


def memory_limit(given: float | None = None) -> float:
    """Most memory, in GiB, that the arrays of one file may take.

    Args:
        given: Limit in GiB; by default that of the environment variable SOFTSPIN_DATA_LIMIT, else 16 or a third of the
            free memory of the machine, whichever is less.

    Returns:
        The limit in GiB.

    Raises:
        DataError: The variable is not a positive number.
    """
    if given is not None:
        return given
    if text := os.environ.get(VARIABLE):
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if not 0 < limit < float("inf"):
            raise DataError(f"{VARIABLE} is '{text}'; it must be a positive number of GiB, such as 32")
        return limit
    free = _free_memory()
    return DEFAULT_LIMIT if free is None else min(DEFAULT_LIMIT, free / GIB / COPIES)


def check_memory(size: int, what: str, limit: float | None = None) -> None:
    """Raise if data would take more memory than allowed.

    Args:
        size: Bytes that the data take.
        what: What they are, for the message.
        limit: Limit in GiB, see :func:`memory_limit`.

    Raises:
        DataError: They take more.
    """
    most = memory_limit(limit)
    if size > most * GIB:
        raise DataError(
            f"{what} would take {size / GIB:.3g} GiB of memory, more than the limit of {most:.3g} GiB; if you trust "
            f"it, raise the limit with {VARIABLE}=GIB, or save it as .npy, which stays on disk"
        )


def check_zip(path: Path, limit: float | None = None, names: set[str] | None = None) -> None:
    """Raise if the members of a zip file are larger, unpacked, than allowed. Only the directory of the file is read.

    Args:
        path: The zip file.
        limit: Limit in GiB, see :func:`memory_limit`.
        names: Members that will be read; None for all.

    Raises:
        DataError: They are larger.
    """
    with zipfile.ZipFile(path) as archive:
        members = [one for one in archive.infolist() if names is None or one.filename in names]
    check_memory(sum(one.file_size for one in members), str(path), limit)


def _free_memory() -> int | None:
    """Bytes of memory that can be used without swapping; None if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
