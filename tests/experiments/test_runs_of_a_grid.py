"""The grid: what is missing, how it is packed, and what becomes of runs that end well, badly or not at all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table

from softspin.data import Dataset, load
from softspin.errors import DeviceError, OutOfTimeError, RunError
from softspin.experiments import grid
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.grid import Need, Pack, check_device, need, remaining, run_pack, seeds_text
from softspin.experiments.rows import Row, latest
from softspin.training.trainer import Trainer


@pytest.fixture
def cells(tmp_path: Path) -> dict[str, Cell]:
    return {cell.id: cell for cell in read_cells(write_table(tmp_path / "t.toml", POWER, EXP, BROKEN))}


@pytest.fixture
def data() -> Dataset:
    return load("bars-and-stripes-3x3")


def needed(cell: Cell, folder: Path, rows: list[Row] | None = None, *more: str, retry: bool = False) -> Need:
    config = cell.config(seeds=(0, 1, 2), steps=8, settings=[*SETTINGS, *more])
    return need(cell, config, latest(rows or []), folder, retry=retry)


def only(packs: tuple[Pack, ...]) -> Pack:
    (pack,) = packs
    return pack


def test_seeds_are_packed_and_those_with_results_left_out(cells: dict[str, Cell], tmp_path: Path) -> None:
    found = needed(cells[POWER], tmp_path)
    pack = only(found.packs)
    assert (found.missing, found.failed) == ((0, 1, 2), ())
    assert (pack.config.seeds, pack.resume, pack.step) == ((0, 1, 2), False, 0)
    assert pack.folder.is_relative_to(tmp_path / "bars-and-stripes-3x3/1-nonlinear/k1/dvae-sharp-power/pa")
    variant = cells[POWER].variant(found.config)
    row = {"cell": POWER, "seed": 1, "steps": 8, "variant": variant, "status": "ok"}
    assert only(needed(cells[POWER], tmp_path, [row]).packs).config.seeds == (0, 2)
    for other in ({"cell": EXP}, {"seed": 3}, {"steps": 9}, {"variant": variant | {"clamp": 1e-7}}, {"outdated": "?"}):
        assert needed(cells[POWER], tmp_path, [row | other]).missing == (0, 1, 2)
    assert needed(cells[POWER], tmp_path, [row | {"seed": seed} for seed in range(3)]).packs == ()


def test_a_run_that_made_what_is_outdated_is_not_taken_for_a_new_one(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path
) -> None:
    rows = run_pack(only(needed(cells[POWER], tmp_path).packs), data)
    old = [row | {"outdated": "it rounded down"} for row in rows]
    with pytest.raises(RunError, match=r"seeds-0-2 made what is outdated \(it rounded down\); move it away"):
        needed(cells[POWER], tmp_path, old)
    by_others = [row | {"began_by": "another commit"} for row in old]
    assert only(needed(cells[POWER], tmp_path, by_others).packs).resume, "a run of code that may be right by now"
    found = needed(cells[POWER], tmp_path / "elsewhere", [*old, rows[0]])
    assert (found.missing, found.outdated, only(found.packs).resume) == ((1, 2), (1, 2), False)


def test_lengths_and_variants_have_their_own_folders(cells: dict[str, Cell], tmp_path: Path) -> None:
    folders = {
        only(needed(cells[POWER], tmp_path, [], *more).packs).folder
        for more in ([], ["clamp=1e-7"], ["clamp=1e-6"], ["steps=9"], ["rate=0.1", "warmup=0.1", "weight_decay=0.1"])
    }
    assert len(folders) == 5
    assert all(len(part) <= grid.MOST_LETTERS for folder in folders for part in folder.relative_to(tmp_path).parts)
    assert only(needed(cells[POWER], tmp_path, [], "report_every=3").packs).folder in folders


def test_a_row_holds_all_that_it_takes_to_believe_it(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    pack = only(needed(cells[EXP], tmp_path).packs)
    rows = run_pack(pack, data)
    assert [row["seed"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert json.loads(json.dumps(row, allow_nan=False)) == row
        assert (row["status"], row["cell"], row["steps"], row["short"]) == ("ok", EXP, 8, True)
        assert row["variant"] == cells[EXP].variant(pack.config)
        assert row["variant"]["width"] == 8
        assert "device" not in row["variant"]
        assert row["config"] == pack.config.to_dict()
        assert (row["beta"], row["sampler"], row["samples"]) == (10.0, "pcd", 5)
        assert row["nll_low"] <= row["nll"] <= row["nll_high"]
        assert row["log_z_low"] <= row["log_z"] <= row["log_z_high"]
        assert (row["fingerprint"], row["source"]) == (data.fingerprint, data.source)
        assert {
            "standard_error", "log_z_method", "elbo", "kl", "reconstruction", "effective_sample_size", "active_bits",
            "images", "importance_samples", "baseline_nll", "softspin", "commit", "torch", "device", "best_step",
            "valid_nll", "training_seconds", "date", "began_by",
        } <= row.keys()  # fmt: skip
    assert needed(cells[EXP], tmp_path, rows).packs == ()


def test_the_full_length_is_not_short(cells: dict[str, Cell], tmp_path: Path) -> None:
    for steps, short in ((1_000_000, False), (999_999, True)):
        config = cells[POWER].config(steps=steps)
        row = grid._row(Pack(cells[POWER], config, tmp_path), 0, {"status": "ok"})
        assert (row["short"], row["variant"]) == (short, {})


def test_out_of_time_goes_on_as_if_nothing_had_been(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    """Each call past its deadline still makes a step; the end is that of a run that was never stopped."""
    for step in (1, 2):
        pack = only(needed(cells[POWER], tmp_path / "a").packs)
        assert (pack.resume, pack.step) == (step > 1, step - 1)
        with pytest.raises(OutOfTimeError, match=f"out of time at step {step} of 8, with a checkpoint"):
            run_pack(pack, data, deadline=time.monotonic() - 1)
    parted = run_pack(only(needed(cells[POWER], tmp_path / "a").packs), data, deadline=time.monotonic() + 1000)
    whole = run_pack(only(needed(cells[POWER], tmp_path / "b").packs), data)
    assert [*map(timeless, parted)] == [*map(timeless, whole)]


def test_an_unfinished_run_goes_on_with_its_own_seeds(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells[POWER]
    first = only(needed(cell, tmp_path).packs)
    with pytest.raises(OutOfTimeError):
        run_pack(first, data, deadline=0.0)
    config = cell.config(seeds=(2, 3, 4), steps=8, settings=[*SETTINGS, "checkpoint_every=7"])
    goes_on, new = need(cell, config, {}, tmp_path).packs
    assert (goes_on.folder, goes_on.resume, goes_on.config.seeds) == (first.folder, True, (0, 1, 2))
    assert (new.resume, new.config.seeds) == (False, (3, 4))
    rows = run_pack(goes_on, data)
    assert len(rows) == 3
    assert only(need(cell, config, latest(rows), tmp_path).packs) == new
    # Killed before the rows were written: they come from the result, and nothing is computed again.
    again = only(needed(cell, tmp_path).packs)
    monkeypatch.setattr(grid, "Trainer", None)
    assert [*map(timeless, run_pack(again, data))] == [*map(timeless, rows)]


def test_a_broken_seed_is_one_row_and_the_others_begin_again(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(Trainer):
        def _step(self) -> None:
            super()._step()
            if self.engine.steps == 3 and 1 in self.seeds:
                with torch.no_grad():
                    self.engine.model.get_parameter("decoder.linears.0.bias")[self.seeds.index(1), 0] = torch.nan

    monkeypatch.setattr(grid, "Trainer", Breaks)
    pack = only(needed(cells[POWER], tmp_path).packs)
    failed = run_pack(pack, data)
    assert [(row["status"], row["seed"]) for row in failed] == [("failed", 1)]
    assert "training broke at step 4" in failed[0]["error"]
    assert "seed 1 is not finite" in failed[0]["error"]
    assert failed[0]["config"] == pack.config.to_dict()
    assert not pack.folder.exists()
    assert (pack.folder.parent / "broken-seeds-0-2" / "journal.jsonl").exists()
    rest = remaining(pack, failed)
    assert rest is not None
    assert (rest.config.seeds, rest.resume, rest.folder.name) == ((0, 2), False, "seeds-0,2")
    rows = run_pack(rest, data)
    assert [(row["status"], row["seed"]) for row in rows] == [("ok", 0), ("ok", 2)]
    assert remaining(rest, rows) is None
    # What failed is not tried again unless somebody says so, and then from the beginning.
    found = needed(cells[POWER], tmp_path, failed + rows)
    assert (found.missing, found.failed, found.packs) == ((), (1,), ())
    found = needed(cells[POWER], tmp_path, failed + rows, retry=True)
    assert (found.missing, found.failed) == ((1,), ())
    assert (only(found.packs).config.seeds, only(found.packs).resume) == ((1,), False)
    monkeypatch.setattr(grid, "Trainer", Trainer)
    assert [row["status"] for row in run_pack(only(found.packs), data)] == ["ok"]
    assert (
        needed(cells[POWER], tmp_path, failed + rows + run_pack(only(found.packs)._replace(resume=True), data)).failed
        == ()
    )


def test_a_cell_whose_numbers_are_never_finite(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    pack: Pack | None = only(needed(cells[BROKEN], tmp_path).packs)
    errors = []
    while pack is not None:
        rows = run_pack(pack, data)
        errors += [row["error"] for row in rows]
        pack = remaining(pack, rows)
    assert len(errors) == 3
    assert all("training broke at step 1" in error for error in errors)


def test_any_other_failure_is_a_row_for_each_seed_and_can_go_on(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMemory(Trainer):
        def _finish(self) -> list[dict[str, Any]]:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    pack = only(needed(cells[POWER], tmp_path).packs)
    with monkeypatch.context() as patch:
        patch.setattr(grid, "Trainer", NoMemory)
        rows = run_pack(pack, data)
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert {row["error"] for row in rows} == {"OutOfMemoryError: CUDA out of memory. Tried to allocate"}
    assert remaining(pack, rows) is None
    assert needed(cells[POWER], tmp_path, rows).packs == ()
    again = only(needed(cells[POWER], tmp_path, rows, retry=True).packs)
    assert (again.folder, again.resume, again.step) == (pack.folder, True, 8)
    assert [row["status"] for row in run_pack(again, data)] == ["ok"] * 3


def test_what_is_not_the_cells_fault_is_no_row(cells: dict[str, Cell], data: Dataset, tmp_path: Path) -> None:
    pack = only(needed(cells[POWER], tmp_path).packs)
    pack.folder.parent.mkdir(parents=True)
    pack.folder.write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        run_pack(pack, data)
    pack.folder.unlink()
    with pytest.raises(OutOfTimeError):
        run_pack(pack, data, deadline=0.0)
    (pack.folder / "last.json").write_text("{")


@pytest.mark.parametrize(("file", "step"), [("last.json", 0), ("journal.jsonl", 1)])
def test_a_damaged_run_is_a_row_and_the_grid_goes_on(
    file: str, step: int, cells: dict[str, Cell], data: Dataset, tmp_path: Path
) -> None:
    pack = only(needed(cells[POWER], tmp_path).packs)
    with pytest.raises(OutOfTimeError):
        run_pack(pack, data, deadline=0.0)
    (pack.folder / file).write_text("{\n")
    again = only(needed(cells[POWER], tmp_path).packs)
    assert (again.resume, again.step) == (True, step)
    rows = run_pack(again, data)
    assert [(row["status"], row["seed"]) for row in rows] == [("failed", seed) for seed in pack.config.seeds]
    what = {
        "last.json": f"checkpoint 'last' in {pack.folder} is damaged: last.json is not JSON; to begin anew, move the "
        "folder away",
        "journal.jsonl": f"journal {pack.folder / file} is damaged: line 1 is not an object with a step; the run can "
        "go on without it, once it is deleted",
    }
    assert {row["error"] for row in rows} == {f"DamagedError: {what[file]}"}
    assert (pack.folder / file).read_text() == "{\n"
    pack.folder.rename(tmp_path / "away")
    renewed = only(needed(cells[POWER], tmp_path, rows, retry=True).packs)
    assert [row["status"] for row in run_pack(renewed, data)] == ["ok"] * 3


def test_a_run_of_another_recipe_or_code_is_not_taken_for_this_one(
    cells: dict[str, Cell], data: Dataset, tmp_path: Path
) -> None:
    run_pack(only(needed(cells[POWER], tmp_path).packs), data)
    again = only(needed(cells[POWER], tmp_path).packs)
    path = again.folder / "run.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"made_by": {"commit": "abc+"}}))
    assert {row["began_by"] for row in run_pack(again, data)} == {"abc+"}
    path.write_text(json.dumps(about | {"config": about["config"] | {"rate": 0.5}}))
    with pytest.raises(RunError, match=r"seeds-0-2 began with rate = 0.5, not 0.003; move it away"):
        needed(cells[POWER], tmp_path)


def test_a_device_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device("cpu")

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")

    monkeypatch.setattr(torch, "zeros", refuse)
    with pytest.raises(
        DeviceError, match=r"cpu does not work any more .RuntimeError: CUDA error: an illegal memory access was"
    ):
        check_device("cpu")


def test_seeds_text() -> None:
    assert [seeds_text(seeds) for seeds in ([], [3], [2, 0, 1], [0, 2, 3, 9])] == ["", "3", "0-2", "0,2-3,9"]
