"""The scheduler of a grid: which run is next, what becomes of its rows, and when to stop.

It gives runs to a launcher, appends the rows that come back, and reruns the seeds of a broken run that have none. A
listener receives what happens as typed events.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from softspin.errors import OutOfTimeError
from softspin.experiments.launchers import Launcher
from softspin.experiments.planning import CellPlan
from softspin.experiments.rows import append_rows
from softspin.experiments.runs import RunSpec, refresh, remaining
from softspin.records import ResultRow
from softspin.training.results import read_result

Outcome = Literal["done", "failed", "unfinished"]
"""All results are there; some run failed; time was up, or runs were left to other processes."""


class Counts(NamedTuple):
    """How far a grid is, in results: pairs of a cell and a seed."""

    wanted: int
    missing: int
    failed: int

    @property
    def results(self) -> int:
        """Those that are there."""
        return self.wanted - self.missing - self.failed


@dataclass(frozen=True)
class Event:
    """Something happened, after which the counts are these."""

    counts: Counts


@dataclass(frozen=True)
class GridStarted(Event):
    """There are runs to make."""

    runs: int


@dataclass(frozen=True)
class RunStarted(Event):
    """A run starts, or is resumed after a step."""

    spec: RunSpec
    number: int
    total: int
    """Runs that are known of by now, this one included."""
    step: int
    trained_before: bool
    """Whether only its rows are missing."""


@dataclass(frozen=True)
class RunBusy(Event):
    """Another process is training a run; it is left to that one."""

    spec: RunSpec


@dataclass(frozen=True)
class RunEnded(Event):
    """A run has ended, well or not. Its rows are in the file, and follow as events."""

    spec: RunSpec


@dataclass(frozen=True)
class RowAdded(Event):
    """A result, or why there is none."""

    row: ResultRow


@dataclass(frozen=True)
class RerunQueued(Event):
    """After one seed broke, the others are next, from the beginning."""

    spec: RunSpec


@dataclass(frozen=True)
class GridStopped(Event):
    """It ends before all is done; the same call resumes from here."""

    reason: str


@dataclass(frozen=True)
class GridEnded(Event):
    """Every run was made."""


Listener = Callable[[Event], object]


class Scheduler:
    """The runs of a plan in their order."""

    def __init__(
        self, plans: Sequence[CellPlan], rows: Path, launcher: Launcher, listener: Listener | None = None
    ) -> None:
        self.rows, self.launcher, self.listener = rows, launcher, listener
        self.queue = deque(spec for plan in plans for spec in plan.runs)
        self._wanted = sum(len(plan.config.seeds) for plan in plans)
        self._missing = {(plan.cell.id, seed) for plan in plans for seed in plan.missing}
        self._failed = {(plan.cell.id, seed) for plan in plans for seed in plan.failed}
        self._busy = 0
        self._started = 0

    @property
    def counts(self) -> Counts:
        """How far it is."""
        return Counts(self._wanted, len(self._missing), len(self._failed))

    def run(self, deadline: float | None = None) -> Outcome:
        """Make all runs, and append their rows as each ends.

        Args:
            deadline: When `time.monotonic` has passed it, the current run ends with a checkpoint, and no other starts.
                The first run always makes a step.

        Raises:
            KeyboardInterrupt: After a checkpoint and an event.
            SoftspinError: For what is not a cell's fault, such as a missing data set or a full disk.
        """
        append_rows(self.rows, [])  # a file that cannot be written is found now, not after a day
        self.launcher.prepare(tuple(self.queue))
        if self.queue:
            self._emit(GridStarted(self.counts, len(self.queue)))
        try:
            while self.queue:
                for spec, rows in self.launcher.launch(self._next_runs(deadline), deadline):
                    if rows is None:
                        self._busy += 1
                        self._emit(RunBusy(self.counts, spec))
                    else:
                        self._add(spec, rows)
        except OutOfTimeError as error:
            return self._stop(str(error))
        except KeyboardInterrupt:
            self._stop("stopped")
            raise
        if self._busy:
            return self._stop(f"runs left to other processes: {self._busy}")
        self._emit(GridEnded(self.counts))
        return "failed" if self._failed else "done"

    def _next_runs(self, deadline: float | None) -> Iterator[RunSpec]:
        """Runs, as a launcher asks for them."""
        while self.queue:
            if self._started and deadline is not None and time.monotonic() >= deadline:
                raise OutOfTimeError("out of time between two runs")
            spec = refresh(self.queue.popleft())
            self._started += 1
            total, trained_before = self._started + len(self.queue), read_result(spec.folder) is not None
            self._emit(RunStarted(self.counts, spec, self._started, total, spec.step, trained_before))
            yield spec

    def _add(self, spec: RunSpec, rows: list[ResultRow]) -> None:
        append_rows(self.rows, rows)
        self._emit(RunEnded(self.counts, spec))
        for row in rows:
            key = spec.cell.id, row.seed
            self._missing.discard(key)
            if not row.ok:
                self._failed.add(key)
            self._emit(RowAdded(self.counts, row))
        if not all(row.ok for row in rows):
            self.launcher.check(spec)
        if (rest := remaining(spec, rows)) is not None:
            self.queue.appendleft(rest)
            self._emit(RerunQueued(self.counts, rest))

    def _stop(self, reason: str) -> Outcome:
        self._emit(GridStopped(self.counts, reason))
        return "unfinished"

    def _emit(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)
