"""The scheduler of a grid: it passes runs to a launcher, and alone stores their rows.

After a run with non-finite numbers, the other seeds are run again. A run whose worker died is resumed. A listener
receives typed events.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from softspin.errors import TerminatedError, WorkerError
from softspin.experiments.launchers import Ended, Launcher, Progress
from softspin.experiments.planning import CellPlan, keys_of
from softspin.experiments.rows import Key, append_rows, key_of
from softspin.experiments.runs import RunSpec, failed_rows, refresh, remaining
from softspin.records import ResultRow
from softspin.training.process import termination_raises
from softspin.training.run_files import read_result

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
class RunProgress(Event):
    """A run has made steps."""

    progress: Progress


@dataclass(frozen=True)
class RunResumed(Event):
    """The worker of a run died, or was stopped by someone else; the run is queued again, first in line."""

    spec: RunSpec
    reason: str


@dataclass(frozen=True)
class RunBusy(Event):
    """Another process is training a run, which is skipped here."""

    spec: RunSpec
    reason: str = ""
    """What is known about it."""


@dataclass(frozen=True)
class RunEnded(Event):
    """A run has ended, with or without failures. Its rows are in the file, and follow as events."""

    spec: RunSpec


@dataclass(frozen=True)
class RowAdded(Event):
    """A result, or a failure."""

    spec: RunSpec
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
Append = Callable[[Path, Sequence[ResultRow]], object]

MAX_DEATHS = 3
"""How often the worker of a run may die at the same checkpoint before the run counts as failed."""


class Scheduler:
    """Makes the runs of a plan, in order.

    Args:
        plans: Plan of each cell.
        rows: File of result rows.
        launcher: Where to train; closed at the end.
        listener: Called with every event.
        append: Called with the file and the new rows of each run.
    """

    def __init__(
        self,
        plans: Sequence[CellPlan],
        rows: Path,
        launcher: Launcher,
        listener: Listener | None = None,
        append: Append = append_rows,
    ) -> None:
        self.rows, self.launcher, self.listener, self.append = rows, launcher, listener, append
        self.queue = deque(spec for plan in plans for spec in plan.runs)
        self._wanted = sum(len(plan.config.seeds) for plan in plans)
        self._missing, self._failed = set[Key](), set[Key]()
        for plan in plans:
            keys = keys_of(plan.cell, plan.config)
            self._missing |= {keys[seed] for seed in plan.missing}
            self._failed |= {keys[seed] for seed in plan.failed}
        self._active: set[Path] = set()
        self._deaths: dict[Path, list[int]] = {}
        self._stopped: list[str] = []
        self._busy = 0
        self._started = 0

    @property
    def counts(self) -> Counts:
        """Progress of the grid."""
        return Counts(self._wanted, len(self._missing), len(self._failed))

    def run(self, deadline: float | None = None) -> Outcome:
        """Make all runs, and append the rows of each run when it ends.

        Args:
            deadline: Value of `time.monotonic` after which the current runs end with a checkpoint and no other starts.
                The first run always makes a step.

        Returns:
            "done", "failed" or "unfinished".

        Raises:
            KeyboardInterrupt: After Ctrl-C; checkpoints were saved.
            SoftspinError: An error that would stop all cells, such as a missing data set or a full disk.
        """
        self.append(self.rows, [])  # fail now if the file cannot be written, not after the first run
        with contextlib.closing(self.launcher), termination_raises():
            self.launcher.prepare(tuple(self.queue), self._progress)
            if self.queue:
                self._emit(GridStarted(self.counts, len(self.queue)))
            try:
                self._make_runs(deadline)
            except TerminatedError as error:
                self._drain()
                return self._stop(str(error))
            except KeyboardInterrupt:
                self._drain()
                self._stop("stopped")
                raise
            except BaseException:  # the other runs keep what they have
                self._drain()
                raise
        if self.queue or self._stopped:
            return self._stop(self._stopped[0] if len(self._stopped) == 1 else _out_of_time(len(self._stopped)))
        if self._busy:
            return self._stop(f"runs left to other processes: {self._busy}")
        self._emit(GridEnded(self.counts))
        return "failed" if self._failed else "done"

    def _make_runs(self, deadline: float | None) -> None:
        """Start runs and handle their ends until none is left, or the time is up."""
        while self.queue or self._active:
            late = deadline is not None and time.monotonic() >= deadline
            if late and self._started:
                self._drain()
                return
            while self.queue and self.launcher.is_free and not (late and self._started):
                self._start(refresh(self.queue.popleft()))
            for ended in self.launcher.wait(deadline):
                self._handle(ended, resume=deadline is None or time.monotonic() < deadline)

    def _drain(self) -> None:
        """Stop all runs with a checkpoint; rows that arrive meanwhile are kept."""
        for ended in self.launcher.stop():
            self._handle(ended, resume=False)

    def _start(self, spec: RunSpec) -> None:
        self._started += 1
        self._active.add(spec.folder)
        total, trained_before = self._started + len(self.queue), read_result(spec.folder) is not None
        self._emit(RunStarted(self.counts, spec, self._started, total, spec.step, trained_before))
        self.launcher.start(spec)

    def _handle(self, ended: Ended, *, resume: bool) -> None:
        """Store the rows of a run, or queue it again."""
        spec = refresh(ended.spec)
        self._active.discard(spec.folder)
        if ended.status == "done":
            self._add(ended.spec, ended.rows)
        elif ended.status == "busy":
            self._busy += 1
            self._emit(RunBusy(self.counts, spec, ended.reason))
        elif not resume:
            self._stopped.append(ended.reason)
        elif ended.status == "died" and self._dies_again(spec):
            error = WorkerError(f"{ended.reason}; {MAX_DEATHS} workers died at step {spec.step:,}")
            self._add(spec, failed_rows(spec, error))
        else:
            self.queue.appendleft(spec)
            self._started -= 1
            self._emit(RunResumed(self.counts, spec, ended.reason))

    def _dies_again(self, spec: RunSpec) -> bool:
        """Whether workers of a run keep dying at the same checkpoint."""
        steps = self._deaths.setdefault(spec.folder, [])
        steps.append(spec.step)
        return steps.count(spec.step) >= MAX_DEATHS

    def _add(self, spec: RunSpec, rows: Sequence[ResultRow]) -> None:
        self.append(self.rows, rows)
        self._emit(RunEnded(self.counts, spec))
        for row in rows:
            key = key_of(row)
            self._missing.discard(key)
            if not row.ok:
                self._failed.add(key)
            self._emit(RowAdded(self.counts, spec, row))
        rest = remaining(spec, rows)
        self.queue.extendleft(reversed(rest))
        for one in rest:
            self._emit(RerunQueued(self.counts, one))

    def _progress(self, progress: Progress) -> None:
        self._emit(RunProgress(self.counts, progress))

    def _stop(self, reason: str) -> Outcome:
        self._emit(GridStopped(self.counts, reason))
        return "unfinished"

    def _emit(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)


def _out_of_time(runs: int) -> str:
    return f"out of time; {runs} runs stopped with a checkpoint" if runs else "out of time between two runs"
