"""The error of a run with a non-finite number: where it appeared, and the last good checkpoint."""

from __future__ import annotations

import contextlib
from pathlib import Path

from softspin.config import Config, Replica
from softspin.errors import CheckpointError, TrainingError
from softspin.formatting import replica_name
from softspin.training import checkpoint


def nonfinite_error(config: Config, folder: Path, step: int, what: str, replica: int) -> TrainingError:
    """Make the error for a number that is not finite.

    Args:
        config: Settings of the run.
        folder: Run directory.
        step: Step at which the number appeared.
        what: Name of the number.
        replica: Number of its replica.

    Returns:
        The error.
    """
    one, where = config.replicas[replica], last_checkpoint_text(folder)
    return TrainingError(
        f"training broke at step {step}: {what} of the replica with {_name(one)} is not finite; {where}. A smaller "
        "learning_rate or beta may help",
        one.seed,
        replica,
    )


def last_checkpoint_text(folder: Path) -> str:
    """At which step the last checkpoint of a run was saved."""
    with contextlib.suppress(CheckpointError):
        return f"the last good checkpoint is at step {checkpoint.load_meta(folder, 'last')['step']}"
    return "there is no checkpoint yet"


def _name(replica: Replica) -> str:
    """The seed of a replica, and the settings in which replicas of a seed differ, unless beta alone does."""
    return replica_name(replica) if replica.settings else f"seed {replica.seed}"
