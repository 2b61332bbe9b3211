"""The scheduler with launchers that do not train: order of runs, reruns and events."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from experiments.tables import EXP, POWER, SETTINGS, write_table
from made_rows import made_row

from softspin.errors import DataError
from softspin.experiments import grid
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.launchers import Ended, Launcher, Progress, Report
from softspin.experiments.launchers.this_process import ThisProcess
from softspin.experiments.planning import plan_cell
from softspin.experiments.rows import latest, read_rows
from softspin.experiments.runs import RunSpec
from softspin.experiments.scheduler import (
    Event,
    GridEnded,
    GridStarted,
    GridStopped,
    RerunQueued,
    RowAdded,
    RunBusy,
    RunEnded,
    RunProgress,
    RunResumed,
    RunStarted,
    Scheduler,
)
from softspin.records import ResultRow


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return read_cells(write_table(tmp_path / "t.toml", POWER, EXP))


def result(spec: RunSpec, seed: int, status: str = "ok") -> ResultRow:
    cell, config = spec.cell, spec.config
    return made_row(status, cell=cell.id, seed=seed, steps=config.steps, variant=cell.variant(config))


Answer = Callable[[RunSpec], list[ResultRow] | Ended]


def all_good(spec: RunSpec) -> list[ResultRow]:
    return [result(spec, seed) for seed in spec.config.seeds]


class Instant:
    """A launcher of several runs at a time, which end when they are waited for, the last one first."""

    def __init__(self, answer: Answer = all_good, workers: int = 1) -> None:
        self.answer, self.workers = answer, workers
        self.prepared: list[RunSpec] = []
        self.active: list[RunSpec] = []
        self.closed = 0

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        self.prepared += specs

    @property
    def is_free(self) -> bool:
        return len(self.active) < self.workers

    def start(self, spec: RunSpec) -> None:
        assert self.is_free
        self.active.append(spec)

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        spec = self.active.pop()
        found = self.answer(spec)
        return [found if isinstance(found, Ended) else Ended(spec, "done", found)]

    def stop(self) -> Sequence[Ended]:
        stopped, self.active = self.active, []
        return [Ended(spec, "stopped", reason="out of time at step 1") for spec in stopped]

    def close(self) -> None:
        self.closed += 1
        assert not self.active


def scheduler(
    cells: list[Cell], launcher: Launcher, tmp_path: Path, seeds: tuple[int, ...] = (0, 1)
) -> tuple[Scheduler, list[Event]]:
    events: list[Event] = []
    rows = tmp_path / "rows.jsonl"
    configs = [cell.config(seeds=seeds, steps=8, settings=SETTINGS) for cell in cells]
    existing_rows = latest(read_rows(rows))
    plans = [plan_cell(*pair, existing_rows, tmp_path / "runs") for pair in zip(cells, configs, strict=True)]
    return Scheduler(plans, rows, launcher, events.append), events


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_all_runs_are_made_in_order_and_counted(cells: list[Cell], tmp_path: Path) -> None:
    launcher = Instant()
    made, events = scheduler(cells, launcher, tmp_path)
    assert made.run() == "done"
    run = [RunStarted, RunEnded, RowAdded, RowAdded]
    assert kinds(events) == [GridStarted, *run, *run, GridEnded]
    assert [event.counts.missing for event in events] == [4, 4, 4, 3, 2, 2, 2, 1, 0, 0]
    assert events[-1].counts.results == 4
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.spec.cell.id, one.number, one.total, one.step) for one in starts] == [(POWER, 1, 2, 0), (EXP, 2, 2, 0)]
    assert [spec.cell.id for spec in launcher.prepared] == [POWER, EXP]
    assert launcher.closed == 1
    assert [(row.cell, row.seed) for row in read_rows(tmp_path / "rows.jsonl")] == [
        (POWER, 0), (POWER, 1), (EXP, 0), (EXP, 1),
    ]  # fmt: skip
    again, events = scheduler(cells, launcher, tmp_path)
    assert (again.run(), kinds(events)) == ("done", [GridEnded])


def test_after_a_nonfinite_seed_the_others_are_next(cells: list[Cell], tmp_path: Path) -> None:
    def one_breaks(spec: RunSpec) -> list[ResultRow]:
        seeds = spec.config.seeds
        return [result(spec, 1, "failed")] if spec.cell.id == POWER and 1 in seeds else all_good(spec)

    launcher = Instant(one_breaks)
    made, events = scheduler(cells, launcher, tmp_path, seeds=(0, 1, 2))
    assert made.run() == "failed"
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.spec.cell.id, one.spec.config.seeds) for one in starts] == [
        (POWER, (0, 1, 2)), (POWER, (0, 2)), (EXP, (0, 1, 2)),
    ]  # fmt: skip
    assert [(one.number, one.total) for one in starts] == [(1, 2), (2, 3), (3, 3)]
    assert kinds(events)[:5] == [GridStarted, RunStarted, RunEnded, RowAdded, RerunQueued]
    assert (events[-1].counts.results, events[-1].counts.failed) == (5, 1)


def test_runs_of_other_processes_are_skipped(cells: list[Cell], tmp_path: Path) -> None:
    def power_is_busy(spec: RunSpec) -> list[ResultRow] | Ended:
        return Ended(spec, "busy") if spec.cell.id == POWER else all_good(spec)

    made, events = scheduler(cells, Instant(power_is_busy), tmp_path)
    assert made.run() == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, RunBusy, RunStarted, RunEnded, RowAdded, RowAdded, GridStopped]
    last = events[-1]
    assert isinstance(last, GridStopped)
    assert (last.reason, last.counts.results) == ("runs left to other processes: 1", 2)


def test_a_deadline_ends_the_grid_between_two_runs_or_within_one(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, events = scheduler(cells, Instant(), tmp_path)
    assert made.run(deadline=time.monotonic() - 1) == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, RunEnded, RowAdded, RowAdded, GridStopped]
    assert isinstance(events[-1], GridStopped)
    assert events[-1].reason == "out of time between two runs"

    clock = time.monotonic() + 1000

    def late(spec: RunSpec) -> Ended:
        monkeypatch.setattr(time, "monotonic", lambda: clock + 1)
        return Ended(spec, "stopped", reason="out of time at step 1")

    made, events = scheduler(cells, Instant(late), tmp_path)
    assert made.run(deadline=clock) == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, GridStopped]
    assert isinstance(events[-1], GridStopped)
    assert events[-1].reason == "out of time at step 1"


def test_a_deadline_stops_all_runs(cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic() + 1000

    class Slow(Instant):
        def wait(self, deadline: float | None) -> Sequence[Ended]:
            assert deadline == clock
            monkeypatch.setattr(time, "monotonic", lambda: clock + 1)
            return []

    launcher = Slow(workers=2)
    made, events = scheduler(cells, launcher, tmp_path)
    assert made.run(deadline=clock) == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, RunStarted, GridStopped]
    assert isinstance(events[-1], GridStopped)
    assert events[-1].reason == "out of time; 2 runs stopped with a checkpoint"
    assert (launcher.active, launcher.closed) == ([], 1)


def test_ctrl_c_is_an_event_and_propagates(cells: list[Cell], tmp_path: Path) -> None:
    def interrupt(spec: RunSpec) -> list[ResultRow]:
        raise KeyboardInterrupt

    launcher = Instant(interrupt, workers=2)
    made, events = scheduler(cells, launcher, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert kinds(events) == [GridStarted, RunStarted, RunStarted, GridStopped]
    assert (launcher.active, launcher.closed) == ([], 1)


def test_sigterm_stops_all_runs_and_the_grid_is_unfinished(cells: list[Cell], tmp_path: Path) -> None:
    def terminate(spec: RunSpec) -> list[ResultRow]:
        signal.raise_signal(signal.SIGTERM)
        return all_good(spec)

    before = signal.getsignal(signal.SIGTERM)
    launcher = Instant(terminate, workers=2)
    made, events = scheduler(cells, launcher, tmp_path)
    assert made.run() == "unfinished"
    assert isinstance(events[-1], GridStopped)
    assert events[-1].reason == "terminated by SIGTERM"
    assert (launcher.active, launcher.closed) == ([], 1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_rows_that_arrive_while_the_grid_stops_are_kept(cells: list[Cell], tmp_path: Path) -> None:
    class LastMinute(Instant):
        def wait(self, deadline: float | None) -> Sequence[Ended]:
            raise DataError("no data")

        def stop(self) -> Sequence[Ended]:
            ended = [Ended(spec, "done", all_good(spec)) for spec in self.active]
            self.active = []
            return ended

    made, _ = scheduler(cells, LastMinute(workers=2), tmp_path)
    with pytest.raises(DataError, match="no data"):
        made.run()
    assert len(read_rows(tmp_path / "rows.jsonl")) == 4


def test_a_run_whose_worker_died_is_resumed_and_fails_after_three_deaths(cells: list[Cell], tmp_path: Path) -> None:
    deaths: list[str] = []

    def die(spec: RunSpec) -> list[ResultRow] | Ended:
        deaths.append(spec.cell.id)
        allowed = 1 if spec.cell.id == POWER else 99
        if deaths.count(spec.cell.id) > allowed:
            return all_good(spec)
        return Ended(spec, "died", reason="the worker was killed by SIGKILL")

    made, events = scheduler(cells, Instant(die), tmp_path)
    assert made.run() == "failed"
    assert deaths == [POWER, POWER, EXP, EXP, EXP]
    resumed = [event for event in events if isinstance(event, RunResumed)]
    assert [(event.spec.cell.id, event.reason) for event in resumed] == [
        (cell, "the worker was killed by SIGKILL") for cell in (POWER, EXP, EXP)
    ]
    rows = read_rows(tmp_path / "rows.jsonl")
    assert [(row.cell, row.seed, row.ok) for row in rows] == [
        (POWER, 0, True), (POWER, 1, True), (EXP, 0, False), (EXP, 1, False),
    ]  # fmt: skip
    assert rows[-1].error == "WorkerError: the worker was killed by SIGKILL; 3 workers died at step 0"


def test_a_run_that_someone_else_stopped_is_resumed(cells: list[Cell], tmp_path: Path) -> None:
    first = iter([True])

    def stopped(spec: RunSpec) -> list[ResultRow] | Ended:
        return Ended(spec, "stopped", reason="terminated at step 3") if next(first, False) else all_good(spec)

    made, events = scheduler(cells, Instant(stopped), tmp_path)
    assert made.run() == "done"
    assert kinds(events)[:4] == [GridStarted, RunStarted, RunResumed, RunStarted]


def test_progress_is_an_event(cells: list[Cell], tmp_path: Path) -> None:
    class Reporting(Instant):
        def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
            report(Progress(specs[0], 3, -5.0))

    made, events = scheduler(cells, Reporting(), tmp_path)
    made.run()
    assert isinstance(events[0], RunProgress)
    assert (events[0].progress.step, events[0].progress.bound) == (3, -5.0)


def test_errors_of_all_runs_are_raised_before_the_first(cells: list[Cell], tmp_path: Path) -> None:
    class NoData(Instant):
        def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
            raise DataError("no data")

    made, events = scheduler(cells, NoData(), tmp_path)
    with pytest.raises(DataError, match="no data"):
        made.run()
    assert events == []


def test_a_launcher_may_train_several_runs_at_once(cells: list[Cell], tmp_path: Path) -> None:
    """Seeds of failed runs are rerun while others are still in training."""

    def first_breaks(spec: RunSpec) -> list[ResultRow]:
        return [result(spec, 0, "failed")] if 0 in spec.config.seeds else all_good(spec)

    made, events = scheduler(cells, Instant(first_breaks, workers=2), tmp_path)
    assert made.run() == "failed"
    assert kinds(events)[:3] == [GridStarted, RunStarted, RunStarted]
    rows = read_rows(tmp_path / "rows.jsonl")
    assert sorted((row.cell or "", row.seed, row.status) for row in rows) == sorted(
        [(POWER, 0, "failed"), (POWER, 1, "ok"), (EXP, 0, "failed"), (EXP, 1, "ok")]
    )
    assert [row.cell for row in rows] == [EXP, EXP, POWER, POWER]


def test_a_grid_in_one_call(cells: list[Cell], tmp_path: Path) -> None:
    events: list[Event] = []
    place = {"folder": tmp_path / "runs", "seeds": [0, 1], "steps": 8, "settings": SETTINGS, "listener": events.append}
    rows = tmp_path / "rows.jsonl"
    assert grid.run(cells[:1], rows, **place, deadline=0.0) == "unfinished"  # type: ignore[arg-type]
    assert grid.run(cells[:1], rows, **place) == "done"  # type: ignore[arg-type]
    assert [(row.cell, row.seed, row.status) for row in read_rows(rows)] == [(POWER, 0, "ok"), (POWER, 1, "ok")]
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.spec.resume, one.step) for one in starts] == [(False, 0), (True, 1)]
    seen = [event.progress for event in events if isinstance(event, RunProgress)]
    assert seen[-1].step == 8
    assert seen[-1].bound is not None
    assert seen[-1].nll is not None
    assert grid.run(cells[:1], rows, **place, launcher=Instant()) == "done"  # type: ignore[arg-type]
    assert len(read_rows(rows)) == 2


def test_this_process_is_a_launcher() -> None:
    launcher: Launcher = ThisProcess()
    assert (launcher.is_free, launcher.wait(None), launcher.stop()) == (True, [], [])
