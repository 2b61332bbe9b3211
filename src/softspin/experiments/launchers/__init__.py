"""Launchers: where the runs of a grid are trained. The scheduler gives them runs, and takes rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from softspin.experiments.runs import RunSpec
from softspin.records import ResultRow


class Finished(NamedTuple):
    """A run that has ended."""

    spec: RunSpec
    rows: list[ResultRow] | None
    """Of each seed, or of those that failed; None if another process is training it."""


class Launcher(Protocol):
    """What trains runs: this process, or others."""

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        """Raise now for what would stop all of these runs later, such as a missing data set."""

    def launch(self, specs: Iterable[RunSpec], deadline: float | None = None) -> Iterator[Finished]:
        """Train runs, and yield each as it ends, in any order.

        Take the next run only when it can start: the scheduler may put others before it until then. A run that is past
        the deadline, by `time.monotonic`, ends with a checkpoint in an OutOfTimeError.
        """

    def check(self, spec: RunSpec) -> None:
        """Raise if the device of a failed run does no more work, so that the next ones would fail too."""
