"""Rows of an array, which are read from its file if it is a memory map.

Page faults in a mapping would do the same with less code. But where a file became shorter, a mapping reads zeros to the
end of the page and then ends the process by SIGBUS, without an error that could be reported. Its pages also count as
memory of the process.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softspin.errors import DataError


class RowReader:
    """Reads rows of an array `(N, ...)`; of a memory map by calls that several threads may make at a time.

    The file of a map is opened once: if its name is removed or gets another file, the rows are still those of the map.
    Arrays in memory, private maps (mode "c") and maps whose rows are not contiguous are indexed.

    Args:
        array: The array.

    Raises:
        DataError: The file of the map cannot be opened.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.row_bytes = int(np.prod(array.shape[1:])) * array.dtype.itemsize
        self._path: Path | None = None
        if (found := _place(array)) is None:
            return
        self._path, self._start = found
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"cannot read {self._path}: {error.strerror}") from error
        weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[type[RowReader], tuple[NDArray[Any]]]:
        """A copy opens the file itself: the number of an open file means another one elsewhere, or none."""
        return RowReader, (self.array,)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Read rows: a slice, or integers `(M,)`, as an array `(M, ...)`.

        Raises:
            DataError: The file cannot be read, or has become shorter.
            IndexError: There is no such row.
        """
        if self._path is None:
            return np.asarray(self.array[rows])
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self.array))
            if step == 1 and self.array.strides[0] == self.row_bytes:
                found, buffer = self._empty(max(0, last - first))
                self._read(first, buffer)
                return found
            rows = np.arange(first, last, step)
        if len(rows) and not -len(self.array) <= rows.min() <= rows.max() < len(self.array):
            raise IndexError(f"rows {rows.min()} .. {rows.max()} of an array with {len(self.array)}")
        found, buffer = self._empty(len(rows))
        for number, row in enumerate((rows % len(self.array)).tolist()):
            self._read(row, buffer[number * self.row_bytes : (number + 1) * self.row_bytes])
        return found

    def _empty(self, count: int) -> tuple[NDArray[Any], memoryview]:
        """An array for so many rows, and its bytes."""
        found = np.empty((count, *self.array.shape[1:]), self.array.dtype)
        return found, found.reshape(-1).view(np.uint8).data

    def _read(self, row: int, buffer: memoryview) -> None:
        """Fill a buffer from the beginning of a row."""
        offset = self._start + row * self.array.strides[0]
        try:
            while buffer:  # one call reads at most 2 GiB
                count = os.preadv(self._file, [buffer], offset)
                if not count:
                    size = os.fstat(self._file).st_size
                    raise DataError(
                        f"cannot read {self._path}: it was truncated while it was in use; it has {size:,} bytes, "
                        f"and {offset + len(buffer):,} are needed"
                    )
                buffer, offset = buffer[count:], offset + count
        except OSError as error:
            raise DataError(f"cannot read {self._path}: {error.strerror}") from error


def _place(array: NDArray[Any]) -> tuple[Path, int] | None:
    """File of a memory map and the offset of its first row; None if it cannot be read from a file."""
    root: Any = array
    while isinstance(root, np.memmap) and not isinstance(root.base, mmap.mmap):
        root = root.base  # a part of a map has the offset of the whole
    if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c" or not hasattr(os, "preadv"):
        return None
    if array.ndim < 2 or not array.size or not array[:1].flags.c_contiguous:
        return None
    return Path(root.filename), root.offset + array.ctypes.data - root.ctypes.data
