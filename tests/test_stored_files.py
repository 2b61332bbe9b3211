"""Stored files of earlier config versions are read with the same meaning: `fixtures/v1` and `fixtures/v2`.

`training/test_bit_for_bit.py` tests that interrupted runs resume bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.command import Call, caller
from fixtures.stored import V1, V2, VERSIONS, Stored, leaves, outputs

import softspin
from softspin.config import Config, differing_setting, version_of
from softspin.experiments.cells import PAPER_TABLES, read_cells
from softspin.experiments.planning import plan_cell
from softspin.experiments.rows import latest, read_rows
from softspin.training.run_files import read_run

PUBLISHED = PAPER_TABLES / "table1.toml"
MODELS = [(stored, name) for stored in VERSIONS for name in stored.models]
FINISHED = [(stored, name) for stored in VERSIONS for name in stored.finished]
PATHS = [(stored, name) for stored in VERSIONS for name in (*stored.runs, *stored.shared)]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


def label(value: object) -> str:
    return value.folder.name if isinstance(value, Stored) else str(value)


def expected(stored: Stored) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((stored.folder / "expected.json").read_text())
    return values


every_version = pytest.mark.parametrize("stored", VERSIONS, ids=label)


@pytest.mark.parametrize(("stored", "name"), MODELS, ids=label)
def test_a_model_gives_the_recorded_outputs(stored: Stored, name: str) -> None:
    """Bits are equal; floats may differ by rounding, which depends on the CPU."""
    found, recorded = outputs(stored.load_model(name)), expected(stored)["models"][name]
    assert found.keys() == recorded.keys()
    for part in ("replicas", "sample_bits", "encode"):
        assert found[part] == recorded[part], part
    for part in ("log_z", "nll"):
        assert found[part] == pytest.approx(recorded[part], rel=1e-6), part
    for mine, theirs in zip(found["decode"], recorded["decode"], strict=True):
        assert mine == [pytest.approx(row, rel=1e-4) for row in theirs]


@pytest.mark.parametrize(("stored", "name"), FINISHED, ids=label)
def test_the_result_of_a_finished_run_is_loaded(stored: Stored, name: str) -> None:
    rows = json.loads((stored.folder / name / "result.json").read_text())
    found = stored.load_model(f"{name}/best").result
    assert found is not None
    assert [(row.seed, row.beta, row.nll) for row in found] == [(row["seed"], row["beta"], row["nll"]) for row in rows]


def test_settings_that_only_training_depends_on_are_kept() -> None:
    assert 0.2 in leaves(V1.load_model("un_exp/best").config.to_dict()), "epsilon"
    assert [[0, 1], [0, 5], [1, 2], [2, 3], [3, 4], [4, 5]] in leaves(V1.load_model("graph/best").config.to_dict())


@every_version
def test_a_finished_run_is_resumed_to_its_own_result(stored: Stored, tmp_path: Path) -> None:
    folder = shutil.copytree(stored.folder / "finished", tmp_path / "finished")
    before = stored.load_model("finished/best").result
    model = softspin.fit(softspin.load(folder, device="cpu").config, folder=folder, resume=True)
    assert before is not None
    assert [row.nll for row in model.result or []] == pytest.approx([row.nll for row in before], rel=1e-6)


@every_version
def test_a_config_file_keeps_its_meaning(stored: Stored) -> None:
    """Old names in a file without a version give a warning; a file with its version may have them."""
    warns = pytest.warns(FutureWarning, match="is now called")
    with warns if stored is V1 else contextlib.nullcontext():
        config = Config.from_toml(stored.folder / "config.toml")
    recorded = expected(stored)["config"]
    assert [[one.seed, one.beta] for one in config.replicas] == recorded["replicas"]
    assert config == Config.from_dict(recorded["values"])
    found = leaves(config.to_dict())
    usual = Config()
    defaults = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    # The values of this file are all different, so each is found under whatever name it has now.
    chosen = {name: value for name, value in recorded["values"].items() if value not in leaves(defaults)}
    chosen.pop("version", None)
    assert len(chosen) == 18
    for name, value in chosen.items():
        assert value in found, name


@pytest.mark.parametrize(("stored", "count"), [(V1, 14), (V2, 3)], ids=label)
def test_every_row_is_read(stored: Stored, count: int) -> None:
    warnings: list[str] = []
    path = stored.folder / "rows.jsonl"
    rows = read_rows(path, warnings.append)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert warnings == []
    assert len(rows) == len(written) == count
    for name in ("status", "cell", "seed", "steps", "short", "nll", "outdated", "error"):
        assert [getattr(row, name) for row in rows] == [row.get(name) for row in written]
    for row in rows:
        replicas = Config.from_dict(row.config or {}).replicas
        assert any(one.seed == row.seed and row.beta in (None, one.beta) for one in replicas)


@every_version
def test_the_grid_counts_every_row(stored: Stored, call: Call, tmp_path: Path) -> None:
    """The cell, seed, steps and variant of every row are found, without a warning."""
    path = stored.folder / "rows.jsonl"
    for row in read_rows(path):
        if row.outdated:
            continue
        assert row.cell is not None
        table = stored.folder / "table.toml" if row.cell.startswith("bars") else PUBLISHED
        arguments: list[object] = ["grid", table, "--only", row.cell, "--seeds", row.seed, "--steps", row.steps]
        arguments += [word for name, value in row.variant.items() for word in ("--set", f"{name}={value}")]
        ended = call(*arguments, "--rows", path, "--folder", tmp_path, "--device", "cpu", "--dry-run", "--json")
        assert (ended.code, ended.err) == (0, "")
        (plan,) = ended.json
        assert plan["missing"] == plan["runs"] == []
        assert plan["failed"] == ([] if row.ok else [row.seed])


@pytest.mark.parametrize(("stored", "name"), PATHS, ids=label)
def test_the_command_line_describes_every_model(stored: Stored, name: str, call: Call) -> None:
    ended = call("info", stored.folder / name, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["data"]["name"] == "bars-and-stripes-3x3"


# Version 2 --------------------------------------------------------------------------------------------


SHORT = ("bits_per_group=6", "width=4", "layers=1", "chains=8", "batch_size=10", "learning_rate=0.01")
LONG = (*SHORT, "sweeps=2", "evaluate_every=4", "validation_samples=5", "test_samples=20")
"""Variants of the unfinished runs of `fixtures/make_v2.py`, by the present names."""


def test_the_files_of_version_2_have_that_version() -> None:
    """And the old names: otherwise they test nothing."""
    for name in V2.runs:
        stored = read_run(V2.folder / name).config
        assert version_of(stored) == 2
        assert {"rate", "rate_schedule", "batch", "samples", "bits"} <= stored.keys()


def test_a_variant_of_version_2_has_the_present_names() -> None:
    """A row of the variant is found by the grid under these names; the recipe has no variant."""
    rows = read_rows(V2.folder / "rows.jsonl")
    renamed = {"bits_per_group": 6, "batch_size": 10, "learning_rate": 0.01}
    for row in rows[:2]:
        assert row.variant.items() >= renamed.items()
        assert not row.variant.keys() & {"bits", "batch", "rate"}
    assert rows[2].variant == {}


@pytest.mark.parametrize(("variant", "end_of_name"), [(SHORT, "chains=8"), (LONG, "-233bd534")], ids=["whole", "cut"])
def test_a_grid_resumes_an_unfinished_run_of_version_2(
    variant: tuple[str, ...], end_of_name: str, tmp_path: Path
) -> None:
    """Its folder is named after settings of version 2."""
    folder = shutil.copytree(V2.folder / "grid", tmp_path / "grid")
    cell = read_cells(V2.folder / "table.toml")[0]
    config = cell.config(steps=10, settings=("device=cpu", *variant))
    (run,) = plan_cell(cell, config, latest([]), folder).runs
    assert (run.resume, run.step) == (True, 5)
    assert run.folder.parent.name.endswith(end_of_name)
    assert differing_setting(run.config, config) is None
