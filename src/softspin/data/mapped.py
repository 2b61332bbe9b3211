"""A table of images that stays on disk: rows are read from the file of a memory map when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.data.rows import RowReader
from softspin.data.seeded import binarize_once
from softspin.data.values import CHUNK_BYTES, to_bits, to_gray, to_values


class MappedTable:
    """Table `(images, pixels)` whose rows are read and converted when they are indexed.

    It has the part of the interface of a tensor that training and evaluation use. Indexing returns a tensor with the
    same values as a table in memory.

    Args:
        array: Array `(N, ...)`, usually a memory map.
        rows: Row of `array` for each image; None for all rows in order.
        divisor: Divisor of the values, 1 or 255.
        gray: Whether the values are gray levels; otherwise they are bits.
        stream: Random stream of :mod:`softspin.data.seeded` that binarizes gray levels once; None leaves them gray.
        raw: Whether the values stay as they are, neither bits nor gray levels.
    """

    device = torch.device("cpu")
    ndim = 2

    def __init__(
        self,
        array: NDArray[Any],
        rows: NDArray[np.int64] | None = None,
        *,
        divisor: int = 1,
        gray: bool = False,
        stream: int | None = None,
        raw: bool = False,
    ) -> None:
        self.array, self.rows = array, rows
        self.divisor, self.gray, self.stream, self.raw = divisor, gray, stream, raw
        self.pixels = int(np.prod(array.shape[1:]))
        self._reader = RowReader(array)

    def __repr__(self) -> str:
        return f"MappedTable({len(self):,} x {self.pixels}, {str(self.dtype)[6:]})"

    @property
    def dtype(self) -> torch.dtype:
        """float32 for gray levels, uint8 for bits; for values as they are, uint8 if the array has bytes."""
        if self.raw:
            return torch.from_numpy(to_values(np.empty(0, self.array.dtype))).dtype
        return torch.float32 if self.gray and self.stream is None else torch.uint8

    @property
    def shape(self) -> torch.Size:
        """`(images, pixels)`."""
        return torch.Size((len(self), self.pixels))

    def __len__(self) -> int:
        return len(self.array if self.rows is None else self.rows)

    def __getitem__(self, key: slice | Tensor | list[int]) -> Tensor:
        """Read rows: a slice, or integers of any shape `(...)`, as a tensor `(..., pixels)`."""
        if isinstance(key, slice):
            positions = np.arange(*key.indices(len(self)))
        else:
            positions = np.asarray(key.cpu() if isinstance(key, Tensor) else key, dtype=np.int64)
        flat = positions.reshape(-1)
        if self.rows is not None:
            values = self._reader[self.rows[flat]]
        else:
            values = self._reader[key if isinstance(key, slice) else flat]
        values = values.reshape(len(flat), self.pixels)
        return torch.from_numpy(self._converted(values, flat)).reshape(*positions.shape, self.pixels)

    def _converted(self, values: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
        if self.raw:
            return to_values(values)
        if not self.gray:
            return to_bits(values)
        gray = to_gray(values, self.divisor)
        if self.stream is None:
            return gray
        # The bits of an image depend on its position in the table, not on the batch it is read in.
        each = [binarize_once(row, self.stream, int(at) * self.pixels) for row, at in zip(gray, positions, strict=True)]
        return np.stack(each) if each else np.empty((0, self.pixels), np.uint8)

    def to(self, device: torch.device | str) -> Tensor | MappedTable:
        """Itself on the CPU; on another device, a tensor with all rows."""
        device = torch.device(device)
        if device.type == "cpu":
            return self
        table = torch.empty(self.shape, dtype=self.dtype, device=device)
        start = 0
        for some in table_chunks(self):
            table[start : start + len(some)] = some.to(device)
            start += len(some)
        return table


Table = Tensor | MappedTable
"""A table of images `(images, pixels)`, in memory or on disk."""


def table_chunks(table: Table) -> Iterator[Tensor]:
    """A table as tensors of consecutive rows, of at most some megabytes."""
    size = max(1, CHUNK_BYTES // (4 * table.shape[1]))
    for start in range(0, len(table), size):
        yield table[start : start + size]


def pixel_sums(table: Table) -> Tensor:
    """Sum over images, `(pixels,)`, float64: the same bits for a table in memory and on disk.

    torch converts a whole table to float64 before it sums, which takes eight times the memory of bits.
    """
    total = torch.zeros(table.shape[1], dtype=torch.float64, device=table.device)
    for some in table_chunks(table):
        total += some.sum(0, dtype=torch.float64)
    return total
