"""Checkpoints written by a thread, so that training continues meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from softspin.errors import CheckpointError
from softspin.training import checkpoint


class CheckpointWriter:
    """One thread that writes checkpoints of a run, in the order in which they are given.

    As a context manager it waits for the last one at the end. An error of a write is raised by the next call, or at the
    end, unless the context ends with another exception: that one then has a note about it.

    Args:
        folder: Run directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def save(self, checkpoints: Mapping[str, Mapping[str, Tensor]], meta: Mapping[str, Any]) -> None:
        """Write checkpoints one after another, with the same meta data. Both may change afterwards.

        Args:
            checkpoints: Tensors by name of the checkpoint.
            meta: Plain data for strict JSON.

        Raises:
            CheckpointError: The previous ones could not be written.
        """
        self.wait()  # at most one save at a time, so that memory is bounded
        copies = {name: to_host(tensors) for name, tensors in checkpoints.items()}
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._writing = self._thread.submit(self._write, copies, copy.deepcopy(dict(meta)))

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            CheckpointError: The files cannot be written; the previous checkpoint is then unchanged.
        """
        if self._writing is not None:
            self._writing.exception()  # an interrupted wait can be repeated
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, checkpoints: Mapping[str, Mapping[str, Tensor]], meta: Mapping[str, Any]) -> None:
        for name, tensors in checkpoints.items():
            # A directory that was moved during training is not made again: its run is elsewhere.
            checkpoint.save(self.folder, name, tensors, meta, parents=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except CheckpointError as failed:
            if error is None:
                raise
            error.add_note(str(failed))
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors in host memory."""
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
