"""What a run resumes from: its checkpoints `last` and `best`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from softspin.config import Config
from softspin.training import checkpoint
from softspin.training.run_files import check_checkpoint


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
