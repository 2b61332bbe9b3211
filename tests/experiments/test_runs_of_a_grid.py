"""Runs of a grid: planning, training, failures and resuming."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table
from made_rows import made_row
from unsealed import unseal

from softspin.data import Dataset, load
from softspin.errors import DeviceError, OutOfTimeError, RunError
from softspin.experiments import runs
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.planning import CellPlan, plan_cell
from softspin.experiments.rows import latest
from softspin.experiments.runs import RunSpec, check_device, remaining, seeds_text, train_run
from softspin.records import ResultRow
from softspin.training.trainer import Trainer


@pytest.fixture
def cells(tmp_path: Path) -> dict[str, Cell]:
    return {cell.id: cell for cell in read_cells(write_table(tmp_path / "t.toml", POWER, EXP, BROKEN))}


@pytest.fixture
def data() -> Dataset:
    return load("bars-and-stripes-3x3")


def needed(cell: Cell, folder: Path, rows: list[ResultRow] | None = None, *more: str, retry: bool = False) -> CellPlan:
    config = cell.config(seeds=(0, 1, 2), steps=8, settings=[*SETTINGS, *more])
    return plan_cell(cell, config, latest(rows or []), folder, retry=retry)


def only(specs: Sequence[RunSpec]) -> RunSpec:
    (spec,) = specs
    return spec


def test_missing_seeds_are_grouped_into_runs(cells: dict[str, Cell], tmp_path: Path) -> None:
    found = needed(cells[POWER], tmp_path)
    spec = only(found.runs)
    assert (found.missing, found.failed) == ((0, 1, 2), ())
    assert (spec.config.seeds, spec.resume, spec.step) == ((0, 1, 2), False, 0)
    assert spec.folder.is_relative_to(tmp_path / "bars-and-stripes-3x3/1-nonlinear/k1/dvae-sharp-power/pa")
    variant = cells[POWER].variant(found.config)
    row = made_row(cell=POWER, seed=1, steps=8, variant=variant)
    assert only(needed(cells[POWER], tmp_path, [row]).runs).config.seeds == (0, 2)
    others: list[dict[str, Any]] = [
        {"cell": EXP}, {"seed": 3}, {"steps": 9}, {"variant": variant | {"clamp": 1e-7}}, {"outdated": "?"},
    ]  # fmt: skip
    for other in others:
        assert needed(cells[POWER], tmp_path, [replace(row, **other)]).missing == (0, 1, 2)
    assert needed(cells[POWER], tmp_path, [replace(row, seed=seed) for seed in range(3)]).runs == ()


def test_a_run_with_outdated_results_is_not_resumed(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    rows = train_run(only(needed(cells[POWER], tmp_path).runs), data)
    old = [replace(row, outdated="it rounded down") for row in rows]
    with pytest.raises(RunError, match=r"seeds-0-2 is outdated \(it rounded down\); move the folder away"):
        needed(cells[POWER], tmp_path, old)
    by_others = [replace(row, start_commit="another commit") for row in old]
    assert only(needed(cells[POWER], tmp_path, by_others).runs).resume, "a run of other code, which may be correct"
    found = needed(cells[POWER], tmp_path / "elsewhere", [*old, rows[0]])
    assert (found.missing, found.outdated, only(found.runs).resume) == ((1, 2), (1, 2), False)


def test_numbers_of_steps_and_variants_have_separate_folders(cells: dict[str, Cell], tmp_path: Path) -> None:
    folders = {
        only(needed(cells[POWER], tmp_path, [], *more).runs).folder
        for more in (
            [],
            ["clamp=1e-7"],
            ["clamp=1e-6"],
            ["steps=9"],
            ["learning_rate=0.1", "warmup=0.1", "weight_decay=0.1"],
        )
    }
    assert len(folders) == 5
    assert all(len(part) <= runs.MAX_FOLDER_NAME for folder in folders for part in folder.relative_to(tmp_path).parts)
    assert only(needed(cells[POWER], tmp_path, [], "report_every=3").runs).folder in folders


def test_a_row_has_result_config_and_provenance(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    spec = only(needed(cells[EXP], tmp_path).runs)
    rows = train_run(spec, data)
    assert [row.seed for row in rows] == [0, 1, 2]
    for row in rows:
        assert ResultRow.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False)), complete=True) == row
        assert (row.status, row.cell, row.steps, row.short) == ("ok", EXP, 8, True)
        assert row.variant == cells[EXP].variant(spec.config)
        assert row.variant["width"] == 8
        assert "device" not in row.variant
        assert row.config == spec.config.to_dict()
        assert (row.beta, row.sampler, row.importance_samples) == (10.0, "pcd", 5)
        assert None not in (row.nll_low, row.nll_high, row.log_z_low, row.log_z_high)
        assert (row.nll_low or 0.0) <= row.test_nll <= (row.nll_high or 0.0)
        assert (row.log_z_low or 0.0) <= (row.log_z or 0.0) <= (row.log_z_high or 0.0)
        assert (row.fingerprint, row.source) == (data.fingerprint, data.source)
        assert row.missing_part() is None
        absent = {name for name, value in row.to_json().items() if value is None}
        # None for nats of bits without a condition
        optional = {
            "outdated", "error", "averaged", "unit", "bits_per_dimension", "condition", "log_z_of_values",
            "more_samples",
        }  # fmt: skip
        assert absent - {"warning"} == {*optional, "pareto_k", "unreliable_images"}, "20 samples have no tail"
        assert row.provenance.commit == row.start_commit
    assert needed(cells[EXP], tmp_path, rows).runs == ()


def test_the_full_length_is_not_short(cells: dict[str, Cell], tmp_path: Path) -> None:
    for steps, short in ((1_000_000, False), (999_999, True)):
        config = cells[POWER].config(steps=steps)
        row = runs._finished(RunSpec(cells[POWER], config, tmp_path), made_row(steps=steps))
        assert (row.short, row.variant) == (short, {})
    config = cells[POWER].config(steps=1_000_000)
    early = runs._finished(RunSpec(cells[POWER], config, tmp_path), made_row(steps=500_000))
    assert (early.short, early.steps) == (True, 1_000_000), "the key of the row is that of the plan"


def test_a_run_that_was_out_of_time_resumes_bit_for_bit(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    """Each call past its deadline still makes a step; the result equals that of an uninterrupted run."""
    for step in (1, 2):
        spec = only(needed(cells[POWER], tmp_path / "a").runs)
        assert (spec.resume, spec.step) == (step > 1, step - 1)
        with pytest.raises(OutOfTimeError, match=f"out of time at step {step} of 8, with a checkpoint"):
            train_run(spec, data, deadline=time.monotonic() - 1)
    parted = train_run(only(needed(cells[POWER], tmp_path / "a").runs), data, deadline=time.monotonic() + 1000)
    whole = train_run(only(needed(cells[POWER], tmp_path / "b").runs), data)
    assert [*map(timeless, parted)] == [*map(timeless, whole)]


def test_an_unfinished_run_resumes_with_its_own_seeds(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells[POWER]
    first = only(needed(cell, tmp_path).runs)
    with pytest.raises(OutOfTimeError):
        train_run(first, data, deadline=0.0)
    config = cell.config(seeds=(2, 3, 4), steps=8, settings=[*SETTINGS, "checkpoint_every=7"])
    goes_on, new = plan_cell(cell, config, {}, tmp_path).runs
    assert (goes_on.folder, goes_on.resume, goes_on.config.seeds) == (first.folder, True, (0, 1, 2))
    assert (new.resume, new.config.seeds) == (False, (3, 4))
    rows = train_run(goes_on, data)
    assert len(rows) == 3
    assert only(plan_cell(cell, config, latest(rows), tmp_path).runs) == new
    # Killed before the rows were written: they are read from the result, and nothing is recomputed.
    again = only(needed(cell, tmp_path).runs)
    monkeypatch.setattr(runs, "Trainer", None)
    assert [*map(timeless, train_run(again, data))] == [*map(timeless, rows)]


def test_a_nonfinite_seed_is_one_failed_row_and_the_others_are_rerun(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(Trainer):
        def _step(self) -> None:
            super()._step()
            if self.engine.steps == 3 and 1 in self.seeds:
                with torch.no_grad():
                    self.engine.model.get_parameter("decoder.linears.0.bias")[self.seeds.index(1), 0] = torch.nan

    monkeypatch.setattr(runs, "Trainer", Breaks)
    spec = only(needed(cells[POWER], tmp_path).runs)
    failed = train_run(spec, data)
    assert [(row.status, row.seed) for row in failed] == [("failed", 1)]
    assert "training broke at step 4" in (failed[0].error or "")
    assert "seed 1 is not finite" in (failed[0].error or "")
    assert failed[0].config == spec.config.to_dict()
    assert not spec.folder.exists()
    assert (spec.folder.parent / "broken-seeds-0-2" / "journal.jsonl").exists()
    (rest,) = remaining(spec, failed)
    assert (rest.config.seeds, rest.resume, rest.folder.name) == ((0, 2), False, "seeds-0,2")
    rows = train_run(rest, data)
    assert [(row.status, row.seed) for row in rows] == [("ok", 0), ("ok", 2)]
    assert remaining(rest, rows) == []
    # Failed runs are not repeated without `retry`, and then start over.
    found = needed(cells[POWER], tmp_path, failed + rows)
    assert (found.missing, found.failed, found.runs) == ((), (1,), ())
    found = needed(cells[POWER], tmp_path, failed + rows, retry=True)
    assert (found.missing, found.failed) == ((1,), ())
    assert (only(found.runs).config.seeds, only(found.runs).resume) == ((1,), False)
    monkeypatch.setattr(runs, "Trainer", Trainer)
    assert [row.status for row in train_run(only(found.runs), data)] == ["ok"]
    assert (
        needed(cells[POWER], tmp_path, failed + rows + train_run(only(found.runs)._replace(resume=True), data)).failed
        == ()
    )


def test_a_cell_that_is_never_finite(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    specs: list[RunSpec] = [only(needed(cells[BROKEN], tmp_path).runs)]
    errors = []
    while specs:
        rows = train_run(spec := only(specs), data)
        errors += [row.error or "" for row in rows]
        specs = remaining(spec, rows)
    assert len(errors) == 3
    assert all("training broke at step 1" in error for error in errors)


def test_any_other_failure_is_a_row_for_each_seed_and_can_be_resumed(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMemory(Trainer):
        def _finish(self, test: bool) -> list[ResultRow]:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    spec = only(needed(cells[POWER], tmp_path).runs)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "Trainer", NoMemory)
        rows = train_run(spec, data)
    assert [row.seed for row in rows] == [0, 1, 2]
    assert {row.error for row in rows} == {"OutOfMemoryError: CUDA out of memory. Tried to allocate"}
    assert remaining(spec, rows) == []
    assert needed(cells[POWER], tmp_path, rows).runs == ()
    again = only(needed(cells[POWER], tmp_path, rows, retry=True).runs)
    assert (again.folder, again.resume, again.step) == (spec.folder, True, 8)
    assert [row.status for row in train_run(again, data)] == ["ok"] * 3


def test_errors_that_would_stop_all_cells_give_no_row(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    spec = only(needed(cells[POWER], tmp_path).runs)
    spec.folder.parent.mkdir(parents=True)
    spec.folder.write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        train_run(spec, data)
    spec.folder.unlink()
    with pytest.raises(OutOfTimeError):
        train_run(spec, data, deadline=0.0)
    (spec.folder / "last.json").write_text("{")


@pytest.mark.parametrize(("file", "step"), [("last.json", 0), ("journal.jsonl", 1)])
def test_a_damaged_run_is_a_row_and_the_grid_continues(
    file: str, step: int, cells: dict[str, Cell], data: Dataset, tmp_path: Path
) -> None:
    spec = only(needed(cells[POWER], tmp_path).runs)
    with pytest.raises(OutOfTimeError):
        train_run(spec, data, deadline=0.0)
    (spec.folder / file).write_text("{\n")
    again = only(needed(cells[POWER], tmp_path).runs)
    assert (again.resume, again.step) == (True, step)
    rows = train_run(again, data)
    assert [(row.status, row.seed) for row in rows] == [("failed", seed) for seed in spec.config.seeds]
    what = {
        "last.json": f"checkpoint 'last' in {spec.folder} is damaged: last.json is not JSON; to start over, move the "
        "folder away",
        "journal.jsonl": f"metrics log {spec.folder / file} is damaged: line 1 is not an object with a step; delete "
        "the file, and the run can be resumed without it",
    }
    assert {row.error for row in rows} == {f"DamagedError: {what[file]}"}
    assert (spec.folder / file).read_text() == "{\n"
    spec.folder.rename(tmp_path / "away")
    renewed = only(needed(cells[POWER], tmp_path, rows, retry=True).runs)
    assert [row.status for row in train_run(renewed, data)] == ["ok"] * 3


def test_a_run_with_other_settings_is_not_resumed(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    train_run(only(needed(cells[POWER], tmp_path).runs), data)
    again = only(needed(cells[POWER], tmp_path).runs)
    path = unseal(again.folder / "run.json")
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"provenance": about["provenance"] | {"commit": "abc+"}}))
    assert {row.start_commit for row in train_run(again, data)} == {"abc+"}
    path.write_text(json.dumps(about | {"config": about["config"] | {"learning_rate": 0.5}}))
    with pytest.raises(RunError, match=r"seeds-0-2 has learning_rate = 0.5, not 0.003; move the folder away"):
        needed(cells[POWER], tmp_path)


def test_a_device_that_no_longer_works_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device("cpu")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")

    monkeypatch.setattr(torch, "zeros", fail)
    with pytest.raises(
        DeviceError, match=r"cpu no longer works .RuntimeError: CUDA error: an illegal memory access was"
    ):
        check_device("cpu")


def test_seeds_text() -> None:
    assert [seeds_text(seeds) for seeds in ([], [3], [2, 0, 1], [0, 2, 3, 9])] == ["", "3", "0-2", "0,2-3,9"]
