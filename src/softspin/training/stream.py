"""Batches of a table on disk, read ahead by a thread.

The images of a batch follow from the order of its epoch and its position. Reading one changes nothing else, so batches
that were read ahead and not used leave no trace.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from softspin.data.mapped import MappedTable, Table

AHEAD = 4
"""Batches that are read ahead."""


class BatchStream:
    """One thread that reads the next batches of an epoch while an update runs.

    The thread starts with the first batch and ends by :meth:`close`, or when the object is deleted.

    Args:
        table: Images on disk.
        pinned: Whether batches are in pinned memory, from which a GPU copies them while the CPU continues.
    """

    def __init__(self, table: MappedTable, *, pinned: bool = False) -> None:
        self.table, self.pinned = table, pinned
        self._index = torch.empty(0, 0, 0, dtype=torch.int64)
        self._next = 0
        self._batches: deque[Future[Tensor]] = deque()
        self._copies: deque[torch.cuda.Event] = deque()
        self._thread: ThreadPoolExecutor | None = None

    def start(self, index: Tensor, position: int) -> None:
        """Begin an epoch, or another place in it. What was read ahead is dropped.

        Args:
            index: Images of all batches of the epoch, `(replicas, batches, batch size)`.
            position: Number of the next batch.
        """
        self._drop()
        self._index, self._next = index, position

    def copy_to(self, rows: Tensor) -> None:
        """Copy the next batch; on a GPU, without waiting for it.

        Args:
            rows: Receives the stored images `(replicas, batch size, pixels)`.

        Raises:
            DataError: They cannot be read. The next call tries again.
        """
        rows.copy_(self._take(), non_blocking=True)
        if self.pinned:  # at most so many copies are under way: each holds pinned memory
            self._copies.append(torch.cuda.current_stream(rows.device).record_event())
            if len(self._copies) > AHEAD:
                self._copies.popleft().synchronize()

    def _take(self) -> Tensor:
        self._read_ahead()  # at first, after `close` and after an error, nothing is there
        try:
            batch = self._batches[0].result()
        except BaseException:
            self._drop()
            raise
        self._batches.popleft()
        self._next += 1
        self._read_ahead()
        return batch

    def close(self) -> None:
        """End the thread; it finishes the batch that it is reading. A later :meth:`copy_to` starts it again."""
        self._drop()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _drop(self) -> None:
        for batch in self._batches:
            batch.cancel()
        self._batches.clear()

    def _read_ahead(self) -> None:
        last = min(self._next + AHEAD, self._index.shape[1])
        for position in range(self._next + len(self._batches), last):
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "batches")
            self._batches.append(self._thread.submit(_read, self.table, self._index[:, position], self.pinned))


def _read(table: MappedTable, index: Tensor, pinned: bool) -> Tensor:
    # A function, not a method: the thread must not keep the stream, and with it itself, alive.
    rows = table[index]
    return rows.pin_memory() if pinned else rows


def table_for(table: Table, device: torch.device) -> Table:
    """The table that training uses on a device: on a GPU, its copy there if that takes at most half the free memory.

    Args:
        table: Training images.
        device: Device of training.

    Returns:
        A tensor on the device, or the table on disk.
    """
    if isinstance(table, MappedTable) and device.type == "cuda":
        size = table.shape.numel() * table.dtype.itemsize
        if size > torch.cuda.mem_get_info(device)[0] // 2:
            return table
    return table.to(device)
