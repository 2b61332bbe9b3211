"""What a run resumes from: its checkpoints `last` and `best`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import RunError
from softspin.training import checkpoint
from softspin.training.run_files import RESULT, RUN, check_checkpoint, check_same, read_run


class Saved(NamedTuple):
    """The checkpoints of a run; tensors by name, on the CPU."""

    last: dict[str, Tensor]
    """State of training."""
    seconds: float
    """Time of training so far."""
    found: list[dict[str, Any] | None]
    """Step and validation NLL of the best parameters of each replica; None before the first validation."""
    best: dict[str, Tensor]
    """The best parameters; empty before the first validation."""


def read_saved(config: Config, folder: Path) -> Saved:
    """Read the checkpoints of a run.

    Args:
        config: Config of the run.
        folder: Run directory, with a checkpoint `last`.

    Returns:
        The checkpoints.

    Raises:
        CheckpointError: A checkpoint is missing or damaged.
        RunError: It was written with another config.
    """
    tensors, meta = checkpoint.load(folder, "last")
    check_checkpoint(config, meta, folder)
    saved = Saved(tensors, meta["seconds"], meta["best"], {})
    if all(best is None for best in saved.found):
        return saved
    # `best` is saved before `last`. After a kill between the two, `best` is newer, and has its own step.
    tensors, meta = checkpoint.load(folder, "best")
    return saved._replace(found=meta["best"], best=tensors)


def resumed(config: Config, data: Dataset, folder: Path) -> Saved | None:
    """Read what the run in a folder resumes from.

    Args:
        config: Config to resume with.
        data: Data to resume with.
        folder: Run directory.

    Returns:
        Its checkpoints; None if it was stopped before the first one, and starts again.

    Raises:
        RunError: There is no run, its settings or data differ, or it cannot be resumed without its checkpoint.
        CheckpointError: A checkpoint is damaged.
    """
    if not (folder / RUN).exists():
        raise RunError(f"no run in {folder} to resume; there is no {RUN}")
    check_same(config, data, folder)
    if checkpoint.exists(folder, "last"):
        return read_saved(config, folder)
    if (folder / RESULT).exists():
        raise RunError(f"the run in {folder} is finished, but its checkpoint 'last' is missing; it cannot be resumed")
    if (source := read_run(folder).init_from) is not None:
        raise RunError(
            f"the run in {folder} began with the parameters of {source} and has no checkpoint yet; delete it and start "
            "again with --init-from"
        )
    return None
