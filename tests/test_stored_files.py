"""Files written by commit 7cc1184 are read with the same meaning: `fixtures/v1`, made by `fixtures/make_v1.py`.

`training/test_bit_for_bit.py` tests that interrupted runs resume bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.command import Call, caller
from fixtures.stored import MODELS, V1, leaves, load_model, outputs

import softspin
from softspin.experiments.cells import PAPER_TABLES
from softspin.experiments.rows import read_rows

EXPECTED: dict[str, Any] = json.loads((V1 / "expected.json").read_text())
ROWS, TABLE = V1 / "rows.jsonl", V1 / "table.toml"
PUBLISHED = PAPER_TABLES / "table1.toml"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_recorded_outputs(name: str) -> None:
    """Bits are equal; floats may differ by rounding, which depends on the CPU."""
    found, recorded = outputs(load_model(name)), EXPECTED["models"][name]
    assert found.keys() == recorded.keys()
    for part in ("replicas", "sample_bits", "encode"):
        assert found[part] == recorded[part], part
    for part in ("log_z", "nll"):
        assert found[part] == pytest.approx(recorded[part], rel=1e-6), part
    for mine, theirs in zip(found["decode"], recorded["decode"], strict=True):
        assert mine == [pytest.approx(row, rel=1e-4) for row in theirs]


@pytest.mark.parametrize("name", ["finished/best", "gauss_int/best", "graph/best", "un_exp/best"])
def test_the_result_of_a_finished_run_is_loaded(name: str) -> None:
    rows = json.loads((V1 / MODELS[name][0] / "result.json").read_text())
    found = load_model(name).result
    assert found is not None
    assert [(row.seed, row.beta, row.nll) for row in found] == [(row["seed"], row["beta"], row["nll"]) for row in rows]


def test_settings_that_only_training_depends_on_are_kept() -> None:
    assert 0.2 in leaves(load_model("un_exp/best").config.to_dict()), "epsilon"
    assert [[0, 1], [0, 5], [1, 2], [2, 3], [3, 4], [4, 5]] in leaves(load_model("graph/best").config.to_dict())


def test_a_finished_run_is_resumed_to_its_own_result(tmp_path: Path) -> None:
    folder = shutil.copytree(V1 / "finished", tmp_path / "finished")
    before = load_model("finished/best").result
    model = softspin.fit(softspin.load(folder, device="cpu").config, folder=folder, resume=True)
    assert before is not None
    assert [row.nll for row in model.result or []] == pytest.approx([row.nll for row in before], rel=1e-6)


def test_a_config_file_keeps_its_meaning() -> None:
    with pytest.warns(FutureWarning, match="is now called"):
        config = softspin.Config.from_toml(V1 / "config.toml")
    recorded = EXPECTED["config"]
    assert [[one.seed, one.beta] for one in config.replicas] == recorded["replicas"]
    assert config == softspin.Config.from_dict(recorded["values"])
    found = leaves(config.to_dict())
    usual = softspin.Config()
    defaults = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    # All values of this file differ, so each is identified even if its name has changed.
    chosen = {name: value for name, value in recorded["values"].items() if value not in leaves(defaults)}
    assert len(chosen) == 18
    for name, value in chosen.items():
        assert value in found, name


def test_every_row_is_read() -> None:
    warnings: list[str] = []
    rows = read_rows(ROWS, warnings.append)
    written = [json.loads(line) for line in ROWS.read_text().splitlines()]
    assert warnings == []
    assert len(rows) == len(written) == 14
    for name in ("status", "cell", "seed", "steps", "short", "nll", "outdated", "error"):
        assert [getattr(row, name) for row in rows] == [row.get(name) for row in written]
    for row in rows:
        replicas = softspin.Config.from_dict(row.config or {}).replicas
        assert any(one.seed == row.seed and row.beta in (None, one.beta) for one in replicas)


def test_the_grid_counts_every_row(call: Call, tmp_path: Path) -> None:
    """The cell, seed, steps and variant of every row are found, without a warning."""
    for row in read_rows(ROWS):
        if row.outdated:
            continue
        assert row.cell is not None
        table = TABLE if row.cell.startswith("bars") else PUBLISHED
        arguments: list[object] = ["grid", table, "--only", row.cell, "--seeds", row.seed, "--steps", row.steps]
        arguments += [word for name, value in row.variant.items() for word in ("--set", f"{name}={value}")]
        ended = call(*arguments, "--rows", ROWS, "--folder", tmp_path, "--device", "cpu", "--dry-run", "--json")
        assert (ended.code, ended.err) == (0, "")
        (plan,) = ended.json
        assert plan["missing"] == plan["runs"] == []
        assert plan["failed"] == ([] if row.ok else [row.seed])


@pytest.mark.parametrize("name", sorted({path for path, _ in MODELS.values()}))
def test_the_command_line_describes_every_model(name: str, call: Call) -> None:
    ended = call("info", V1 / name, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["data"]["name"] == "bars-and-stripes-3x3"
