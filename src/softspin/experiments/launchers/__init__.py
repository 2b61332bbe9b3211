"""Launchers train the runs of a grid: in this process, in processes of this machine, or on a cluster.

The scheduler of a grid decides what is run and stores the rows. A launcher decides where: it is given one run at a time
and returns its rows, or why there are none. It writes nothing outside the folders of its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:  # the nodes of a cluster use this package without torch
    from softspin.experiments.runs import RunSpec
    from softspin.records import ResultRow


class Progress(NamedTuple):
    """State of a run in training."""

    spec: RunSpec
    step: int
    bound: float | None = None
    """Last reported bound, mean over replicas."""
    nll: float | None = None
    """Last validation NLL, mean over replicas."""


class Ended(NamedTuple):
    """A run that is no longer in training."""

    spec: RunSpec
    status: Literal["done", "busy", "stopped", "died"]
    """Rows are there; another process trains the run; it was stopped, with a checkpoint; or its worker died."""
    rows: Sequence[ResultRow] = ()
    """If done: rows of all seeds, or of those that failed."""
    reason: str = ""
    """Why it was stopped or died, or what is known about the process that trains it."""


Report = Callable[[Progress], object]


class Launcher(Protocol):
    """Trains runs, in this process or elsewhere."""

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        """Raise early for errors that would stop all runs, such as a missing data set.

        Args:
            specs: The planned runs.
            report: To be called with the progress of runs, about once a second, from the thread that calls `wait`.
        """

    @property
    def is_free(self) -> bool:
        """Whether another run can start now."""

    def start(self, spec: RunSpec) -> None:
        """Start a run; called only if `is_free`.

        Args:
            spec: The run.
        """

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        """Wait until a run has ended, or another one can start, or the time is up.

        Args:
            deadline: Value of `time.monotonic` after which to return; None for no limit.

        Returns:
            Runs that have ended.

        Raises:
            SoftspinError: An error that other runs would have too, such as a full disk.
        """

    def stop(self) -> Sequence[Ended]:
        """Stop all runs with a checkpoint, and wait for that.

        Returns:
            Runs that have ended: stopped, or done in time.
        """

    def close(self) -> None:
        """Free everything at the end of the grid; runs still in training are killed."""
