"""Launchers train the runs of a grid: they take runs from the scheduler and return rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from softspin.experiments.runs import RunSpec
from softspin.records import ResultRow


class Finished(NamedTuple):
    """A run that has ended."""

    spec: RunSpec
    rows: list[ResultRow] | None
    """Rows of all seeds, or of those that failed; None if another process is training the run."""


class Launcher(Protocol):
    """Trains runs, in this process or elsewhere."""

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        """Raise early for errors that would stop all runs, such as a missing data set.

        Args:
            specs: The planned runs.
        """

    def launch(self, specs: Iterable[RunSpec], deadline: float | None = None) -> Iterator[Finished]:
        """Train runs, and yield each when it ends, in any order.

        Take the next run only when it can start: the scheduler may insert other runs before it until then.

        Args:
            specs: Runs, on demand.
            deadline: Value of `time.monotonic` after which a run ends with a checkpoint and an OutOfTimeError.

        Returns:
            Runs that have ended.
        """

    def check(self, spec: RunSpec) -> None:
        """Raise if the device of a failed run no longer works, so that all further runs would fail.

        Args:
            spec: The failed run.
        """
