"""The scheduler with launchers that do not train: order of runs, reruns and events."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from experiments.tables import EXP, POWER, SETTINGS, write_table
from made_rows import made_row

from softspin.errors import DataError, DeviceError, OutOfTimeError
from softspin.experiments import grid
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.launchers import Finished, Launcher
from softspin.experiments.launchers.local import ThisProcess
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


Answer = Callable[[RunSpec], list[ResultRow] | None]


def all_good(spec: RunSpec) -> list[ResultRow]:
    return [result(spec, seed) for seed in spec.config.seeds]


class Instant:
    """A launcher whose runs end at once, with rows from a function."""

    def __init__(self, answer: Answer = all_good) -> None:
        self.answer = answer
        self.prepared: list[RunSpec] = []
        self.checked: list[RunSpec] = []

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        self.prepared += specs

    def launch(self, specs: Iterable[RunSpec], deadline: float | None = None) -> Iterator[Finished]:
        for spec in specs:
            yield Finished(spec, self.answer(spec))

    def check(self, spec: RunSpec) -> None:
        self.checked.append(spec)


class TwoAtOnce(Instant):
    """Takes two runs before it returns rows, the second one first."""

    def launch(self, specs: Iterable[RunSpec], deadline: float | None = None) -> Iterator[Finished]:
        queue = iter(specs)
        while pair := list(itertools.islice(queue, 2)):
            yield from (Finished(spec, self.answer(spec)) for spec in reversed(pair))


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
    assert launcher.checked == []
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
    assert [spec.config.seeds for spec in launcher.checked] == [(0, 1, 2)]


def test_a_device_that_no_longer_works_ends_the_grid_after_its_rows(cells: list[Cell], tmp_path: Path) -> None:
    class Broken(Instant):
        def check(self, spec: RunSpec) -> None:
            raise DeviceError("no more")

    made, events = scheduler(cells, Broken(lambda spec: [result(spec, 0, "failed")]), tmp_path)
    with pytest.raises(DeviceError, match="no more"):
        made.run()
    assert kinds(events) == [GridStarted, RunStarted, RunEnded, RowAdded]
    assert len(read_rows(tmp_path / "rows.jsonl")) == 1


def test_runs_of_other_processes_are_skipped(cells: list[Cell], tmp_path: Path) -> None:
    made, events = scheduler(cells, Instant(lambda spec: None if spec.cell.id == POWER else all_good(spec)), tmp_path)
    assert made.run() == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, RunBusy, RunStarted, RunEnded, RowAdded, RowAdded, GridStopped]
    last = events[-1]
    assert isinstance(last, GridStopped)
    assert (last.reason, last.counts.results) == ("runs left to other processes: 1", 2)


def test_a_deadline_ends_the_grid_between_two_runs_or_within_one(cells: list[Cell], tmp_path: Path) -> None:
    made, events = scheduler(cells, Instant(), tmp_path)
    assert made.run(deadline=time.monotonic() - 1) == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, RunEnded, RowAdded, RowAdded, GridStopped]
    assert isinstance(events[-1], GridStopped)
    assert events[-1].reason == "out of time between two runs"

    def late(spec: RunSpec) -> list[ResultRow]:
        raise OutOfTimeError("out of time at step 1")

    made, events = scheduler(cells, Instant(late), tmp_path)
    assert made.run(deadline=time.monotonic() + 1000) == "unfinished"
    assert kinds(events) == [GridStarted, RunStarted, GridStopped]


def test_ctrl_c_is_an_event_and_propagates(cells: list[Cell], tmp_path: Path) -> None:
    def interrupt(spec: RunSpec) -> list[ResultRow]:
        raise KeyboardInterrupt

    made, events = scheduler(cells, Instant(interrupt), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert kinds(events) == [GridStarted, RunStarted, GridStopped]


def test_errors_of_all_runs_are_raised_before_the_first(cells: list[Cell], tmp_path: Path) -> None:
    class NoData(Instant):
        def prepare(self, specs: Sequence[RunSpec]) -> None:
            raise DataError("no data")

    made, events = scheduler(cells, NoData(), tmp_path)
    with pytest.raises(DataError, match="no data"):
        made.run()
    assert events == []


def test_a_launcher_may_train_several_runs_at_once(cells: list[Cell], tmp_path: Path) -> None:
    """Seeds of failed runs are rerun also if the queue is empty."""

    def first_breaks(spec: RunSpec) -> list[ResultRow]:
        return [result(spec, 0, "failed")] if 0 in spec.config.seeds else all_good(spec)

    made, events = scheduler(cells, TwoAtOnce(first_breaks), tmp_path)
    assert made.run() == "failed"
    assert kinds(events)[:3] == [GridStarted, RunStarted, RunStarted]
    rows = read_rows(tmp_path / "rows.jsonl")
    assert sorted((row.cell or "", row.seed, row.status) for row in rows) == sorted(
        [(POWER, 0, "failed"), (POWER, 1, "ok"), (EXP, 0, "failed"), (EXP, 1, "ok")]
    )
    assert [row.cell for row in rows][:2] == [EXP, POWER]


def test_a_grid_in_one_call(cells: list[Cell], tmp_path: Path) -> None:
    events: list[Event] = []
    place = {"folder": tmp_path / "runs", "seeds": [0, 1], "steps": 8, "settings": SETTINGS, "listener": events.append}
    rows = tmp_path / "rows.jsonl"
    assert grid.run(cells[:1], rows, **place, deadline=0.0) == "unfinished"  # type: ignore[arg-type]
    assert grid.run(cells[:1], rows, **place) == "done"  # type: ignore[arg-type]
    assert [(row.cell, row.seed, row.status) for row in read_rows(rows)] == [(POWER, 0, "ok"), (POWER, 1, "ok")]
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.spec.resume, one.step) for one in starts] == [(False, 0), (True, 1)]
    assert grid.run(cells[:1], rows, **place, launcher=Instant()) == "done"  # type: ignore[arg-type]
    assert len(read_rows(rows)) == 2


def test_this_process_is_a_launcher() -> None:
    launcher: Launcher = ThisProcess()
    assert list(launcher.launch([])) == []
