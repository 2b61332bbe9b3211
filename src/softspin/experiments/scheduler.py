"""The scheduler of a grid: it passes runs to a launcher and stores their rows.

After a run with non-finite numbers, the other seeds are run again. A listener receives typed events.
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
"""All results exist; some run failed; or runs are left, because the time was up or other processes train them."""


class Counts(NamedTuple):
    """Progress of a grid, in results: pairs of a cell and a seed."""

    wanted: int
    missing: int
    failed: int

    @property
    def results(self) -> int:
        """Number of existing results."""
        return self.wanted - self.missing - self.failed


@dataclass(frozen=True)
class Event:
    """Base class of events."""

    counts: Counts
    """Progress after the event."""


@dataclass(frozen=True)
class GridStarted(Event):
    """The grid starts; there are runs to make."""

    runs: int


@dataclass(frozen=True)
class RunStarted(Event):
    """A run starts, or is resumed after a step."""

    spec: RunSpec
    number: int
    total: int
    """Number of runs known so far, including this one."""
    step: int
    """Step of the checkpoint from which it resumes; 0 for a new run."""
    trained_before: bool
    """Whether training is finished and only the rows are missing."""


@dataclass(frozen=True)
class RunBusy(Event):
    """Another process is training a run, which is skipped here."""

    spec: RunSpec


@dataclass(frozen=True)
class RunEnded(Event):
    """A run has ended, with or without failures. Its rows are in the file, and follow as events."""

    spec: RunSpec


@dataclass(frozen=True)
class RowAdded(Event):
    """A result, or a failure."""

    row: ResultRow


@dataclass(frozen=True)
class RerunQueued(Event):
    """After a failure of one seed, the other seeds are rerun."""

    spec: RunSpec


@dataclass(frozen=True)
class GridStopped(Event):
    """The grid stops before all runs are done; the same call resumes it."""

    reason: str


@dataclass(frozen=True)
class GridEnded(Event):
    """All runs are done."""


Listener = Callable[[Event], object]


class Scheduler:
    """Makes the runs of a plan, in order.

    Args:
        plans: Plan of each cell.
        rows: File of result rows.
        launcher: Where to train.
        listener: Called with every event.
    """

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
        """Progress of the grid."""
        return Counts(self._wanted, len(self._missing), len(self._failed))

    def run(self, deadline: float | None = None) -> Outcome:
        """Make all runs, and append the rows of each run when it ends.

        Args:
            deadline: Value of `time.monotonic` after which the current run ends with a checkpoint and no other starts.
                The first run always makes a step.

        Returns:
            "done", "failed" or "unfinished".

        Raises:
            KeyboardInterrupt: After Ctrl-C; a checkpoint was saved.
            SoftspinError: An error that would stop all cells, such as a missing data set or a full disk.
        """
        append_rows(self.rows, [])  # fail now if the file cannot be written, not after the first run
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
        """Yield runs on demand of the launcher."""
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
