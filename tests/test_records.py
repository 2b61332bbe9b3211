"""Records: round trips, errors that name the invalid field, and files of version 1 that keep their numbers."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.stored import V1, V2
from made_rows import made_row, row_json
from training.runs import bars, trainer

import softspin
from softspin.config import VERSION as CONFIG_VERSION
from softspin.errors import RecordError, RunError
from softspin.experiments.cells import read_cells
from softspin.experiments.rows import append_rows, key_of, read_rows
from softspin.records import VERSION, DataRecord, ModelRecord, Provenance, Record, ResultRow, RunRecord
from softspin.training.run_files import read_result, read_run

OLD = V1.folder
"""A finished run of two replicas, the same model as a shared folder, one replica as a file, and rows of a grid."""
ROOT = Path(__file__).parents[1]
RENAMED = {
    "began_by": "start_commit", "made_by": "provenance", "samples": "importance_samples",
    "importance_samples": "test_samples",
}  # fmt: skip
OF_CONFIGS = ("config", "variant")
"""Fields that are migrated with the config."""

DATA = DataRecord(
    name="x", shape=(3, 3), images=(5, 2, 2), binarization="static", source="a file", fingerprint="0123"
)  # fmt: skip
RUN = RunRecord(config={"steps": 3}, data=DATA, provenance=Provenance(softspin="9", commit="abc", device="cpu"))
MODEL = ModelRecord(
    config={"steps": 3}, data=DATA, provenance=Provenance(), which="best", steps=(1, 2), valid_nll=(3.0, None),
    chosen="the first", license="mit", result=(made_row(), made_row(seed=1, cell=None, nll=7)),
)  # fmt: skip
RECORDS: list[Record] = [made_row(), made_row("failed", outdated="a slip"), RUN, MODEL]


def old_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (OLD / "rows.jsonl").read_text().splitlines()]


def assert_same_values(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Every value of an earlier version is in the record under its current name, and numbers are equal bit for bit."""
    origin = {one.name for one in dataclasses.fields(Provenance)}
    for name, value in old.items():
        if name in OF_CONFIGS:
            assert len(new[name] or {}) >= len(value or {})
        elif name in origin:
            assert new["provenance"][name] == value
        elif name == "data" and isinstance(value, dict):  # that of a run, which has had no condition and no columns
            assert new[name] == {"condition": None, "columns": None, "class_names": None} | value
        elif name not in ("format", "version"):
            assert new[RENAMED.get(name, name)] == value, name


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_survive_a_round_trip(record: Record) -> None:
    written = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert written["version"] == VERSION
    fields = {one.name for one in dataclasses.fields(record) if one.name != "invalid"}  # type: ignore[arg-type]
    assert written.keys() == fields | {"version"}
    for complete in (False, True):
        assert type(record).from_json(written, complete=complete) == record
    assert type(record).from_json(written | {"unknown key": 1}) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_complete_records_need_every_key_and_every_value_is_type_checked(record: Record) -> None:
    """Fields that were added later have a default instead: complete files of the same version may lack them."""
    written = record.to_json()
    later = {"init_from", "averaged", "unit", "bits_per_dimension", "condition", "log_z_of_values", "more_samples"}
    for name in written.keys() - {"version"}:
        without = {key: value for key, value in written.items() if key != name}
        if name in later:
            assert getattr(type(record).from_json(without, complete=True), name) is None
        else:
            with pytest.raises(RecordError, match=f"^has no '{name}'$"):
                type(record).from_json(without, complete=True)
        with pytest.raises(RecordError, match=f"^has '{name}' = "):
            type(record).from_json(written | {name: complex(1)})


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (ResultRow, {"seed": -1}, "has 'seed' = -1; it must be an integer from 0 to 2147483647"),
        (ResultRow, {"seed": "1"}, "has 'seed' = '1'; it must be an integer from 0 to 2147483647"),
        (ResultRow, {"beta": 0}, "has 'beta' = 0; it must be a finite number above 0"),
        (ResultRow, {"kl": float("inf")}, "has 'kl' = inf; it must be a finite number"),
        (ResultRow, {"short": 1}, "has 'short' = 1; it must be true or false"),
        (ResultRow, {"nll": None}, "is ok, but has no finite 'nll'"),
        (ResultRow, {"status": "failed"}, "is failed, but has no 'error'"),
        (ResultRow, {"provenance": {"commit": 5}}, "has 'provenance.commit' = 5; it must be text"),
        (ResultRow, {"version": 5}, f"has version 5; softspin {softspin.__version__} reads versions 1 to 4"),
        (ResultRow, {"version": True}, f"has version True; softspin {softspin.__version__} reads versions 1 to 4"),
        (ResultRow, {"date": "x" * 99, "data": ["y" * 99]}, f"has 'data' = ['{'y' * 55}...; it must be text"),
        (RunRecord, {"data": {"name": "x"}}, "has no 'data.shape'"),
        (RunRecord, {"config": []}, "has 'config' = []; it must be a JSON object"),
        (ModelRecord, {"which": "first"}, "has 'which' = 'first'; it must be one of best, last"),
        (ModelRecord, {"steps": [1, 2.5]}, "has 'steps' = [1, 2.5]; it must be an integer from 0 to 2147483647"),
        (ModelRecord, {"result": {}}, "has 'result' = {}; it must be a list of rows"),
        (ModelRecord, {"result": [row_json(), 5]}, "has a 'result[1]' that is not a JSON object"),
        (ModelRecord, {"result": [row_json(seed=None)]}, "has a 'result[0]' that has 'seed' = None; it must be an int"),
    ],
)
def test_errors_name_the_invalid_field_in_one_line(kind: type[Record], change: dict[str, Any], message: str) -> None:
    whole = next(record for record in RECORDS if type(record) is kind)
    with pytest.raises(RecordError) as raised:
        kind.from_json(whole.to_json() | change)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("values", [None, 5, "x", [], [1]])
def test_values_other_than_objects_are_rejected(values: object) -> None:
    for kind in (ResultRow, RunRecord, ModelRecord):
        with pytest.raises(RecordError, match=r"^is not a JSON object$"):
            kind.from_json(values)


def test_the_lenient_reader_requires_the_fields_that_identify_a_row() -> None:
    row = made_row(elbo="x", kl=float("nan"), log_z=3, device=["cpu"])
    assert (row.elbo, row.kl, row.log_z, row.provenance.device) == (None, None, 3.0, None)
    assert row.invalid == "has 'elbo' = 'x'; it must be a finite number"
    assert "invalid" not in row.to_json()
    assert made_row().invalid is None
    for name in ("seed", "steps", "short", "variant", "status", "cell", "outdated", "nll"):
        with pytest.raises(RecordError):
            ResultRow.from_json_lenient(row_json() | {name: complex(1)})


def test_missing_part_names_the_first_missing_field() -> None:
    (row, _) = read_result(OLD / "finished") or []
    assert row.missing_part() is None
    assert dataclasses.replace(row, kl=None).missing_part() == "kl"
    origin = dataclasses.replace(row.provenance, torch=None)
    assert dataclasses.replace(row, provenance=origin).missing_part() == "provenance.torch"
    outside_git = dataclasses.replace(row.provenance, commit=None)
    assert dataclasses.replace(row, provenance=outside_git).missing_part() is None


def test_a_failed_row_has_no_nll() -> None:
    with pytest.raises(RecordError, match="the row of c, seed 0 has no NLL: it broke"):
        _ = made_row("failed").test_nll


# Version 1 --------------------------------------------------------------------------------------------


def test_a_run_of_version_1_is_read_and_its_result_is_rewritten_in_the_current_version(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "run"))
    old, rows = (json.loads((folder / name).read_text()) for name in ("run.json", "result.json"))
    assert "version" not in old
    assert_same_values(read_run(folder).to_json(), old)
    for row, before in zip(read_result(folder) or [], rows, strict=True):
        assert_same_values(row.to_json(), before)
        assert (row.status, row.cell, row.short, row.variant, row.start_commit) == ("ok", None, True, {}, None)
    (folder / "result.json").unlink()
    again = trainer(read_run(folder).read_config(), folder, bars()).train(resume=True)
    for row, before in zip(again, rows, strict=True):
        # log Z is exact; the likelihood is an estimate with the same seed and may differ by rounding on other CPUs
        assert (row.seed, row.best_step, row.valid_nll) == (before["seed"], before["best_step"], before["valid_nll"])
        assert row.nll == pytest.approx(before["nll"], abs=1e-6)
        assert row.start_commit == old["made_by"]["commit"]
    assert all(row["version"] == VERSION for row in json.loads((folder / "result.json").read_text()))


@pytest.mark.parametrize("place", ["shared", "shared/model.safetensors", "shared.safetensors"])
def test_a_shared_model_of_version_1_loads_and_is_saved_in_the_current_version(place: str, tmp_path: Path) -> None:
    model = softspin.load(OLD / place, device="cpu")
    assert model.metadata is not None
    assert model.result is not None
    rows = json.loads((OLD / "finished" / "result.json").read_text())
    rows = [row for row in rows if row["seed"] in model.config.seeds]
    assert len(rows) == (1 if place == "shared.safetensors" else 2)
    for row, before in zip(model.result, rows, strict=True):
        assert_same_values(row.to_json(), before)
    old = json.loads((OLD / "shared" / "config.json").read_text())
    if len(rows) == 2:
        assert_same_values(model.metadata.to_json(), {name: old[name] for name in old if name != "result"})
    else:
        assert (model.metadata.chosen or "").endswith("of 0 to 1, the one with the lowest validation NLL")
    model.save(tmp_path / "again")
    again = softspin.load(tmp_path / "again", device="cpu")
    assert (again.result, again.config, again.metadata) == (model.result, model.config, model.metadata)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["version"] == VERSION


def test_rows_of_version_1_are_read_and_current_rows_follow_them(tmp_path: Path) -> None:
    path = Path(shutil.copy(OLD / "rows.jsonl", tmp_path))
    before = path.read_bytes()
    rows = read_rows(path)
    failed = [row for row in rows if not row.ok]
    assert (len(rows), len(failed)) == (14, 2)
    for row, old in zip(rows, old_rows(), strict=True):
        assert_same_values(row.to_json(), old)
        assert row.invalid is None
        assert row.start_commit == old.get("began_by", old["commit"])
    assert append_rows(path, rows) == failed, "failed rows may be retried, results are unique"
    assert path.read_bytes().startswith(before)
    assert [json.loads(line).get("version") for line in path.read_text().splitlines()] == [None] * 14 + [VERSION] * 2
    assert [key_of(row) for row in read_rows(path)] == [key_of(row) for row in (*rows, *failed)]


def test_the_committed_rows_keep_every_number() -> None:
    path = ROOT / "experiments" / "rows.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = read_rows(path)
    assert len(rows) == len(lines) >= 63
    for row, old in zip(rows, lines, strict=True):
        if "version" not in old:
            assert_same_values(row.to_json(), old)
        assert row.invalid is None


@pytest.mark.parametrize(
    ("change", "start"),
    [({}, "aaaaaaa"), ({"began_by": "bbbbbbb"}, "bbbbbbb"), ({"began_by": None}, None)],
)
def test_the_start_commit_of_a_run_of_version_1(change: dict[str, Any], start: str | None) -> None:
    old = next(row for row in old_rows() if row["status"] == "ok")
    old = {name: value for name, value in old.items() if name != "began_by"} | {"commit": "aaaaaaa"} | change
    row = ResultRow.from_json(old)
    assert (row.provenance.commit, row.start_commit) == ("aaaaaaa", start)
    assert row.commits == tuple(dict.fromkeys((start, "aaaaaaa")))


def test_the_required_keys_of_a_row_of_version_1() -> None:
    (old, *_) = json.loads((OLD / "finished" / "result.json").read_text())
    ResultRow.from_json(old, complete=True)
    needed = set()
    for name in old:
        try:
            ResultRow.from_json({key: value for key, value in old.items() if key != name}, complete=True)
        except RecordError:
            needed.add(name)
    assert needed == {
        "seed", "beta", "nll", "standard_error", "nll_low", "nll_high", "log_z", "log_z_low", "log_z_high", "elbo",
        "kl", "reconstruction", "effective_sample_size", "active_bits", "images", "importance_samples", "baseline_nll",
        "softspin", "commit", "torch", "device", "steps",
    }  # fmt: skip


# Version 2 --------------------------------------------------------------------------------------------


def test_records_of_version_2_keep_every_value() -> None:
    folder = V2.folder / "finished"
    old, rows = (json.loads((folder / name).read_text()) for name in ("run.json", "result.json"))
    assert old["version"] == 2
    assert_same_values(read_run(folder).to_json(), old)
    assert read_run(folder).config == old["config"]
    for row, before in zip(read_result(folder) or [], rows, strict=True):
        assert_same_values(row.to_json(), before)
    path = V2.folder / "rows.jsonl"
    for row, line in zip(read_rows(path), path.read_text().splitlines(), strict=True):
        before = json.loads(line)
        assert_same_values(row.to_json(), before)
        assert list(row.variant.values()) == list(before["variant"].values())
        assert (row.config, row.invalid) == (before["config"], None)


def test_rows_of_version_2_are_not_added_again_under_the_present_names(tmp_path: Path) -> None:
    path = Path(shutil.copy(V2.folder / "rows.jsonl", tmp_path))
    before = path.read_bytes()
    cells = {cell.id: cell for cell in read_cells(V2.folder / "table.toml")}
    present = []
    for row in read_rows(path):
        config = softspin.Config.from_dict(row.config or {})
        variant = cells[row.cell or ""].variant(config)
        present.append(dataclasses.replace(row, config=config.to_dict(), variant=variant))
    assert append_rows(path, present) == []
    assert path.read_bytes() == before


def test_a_shared_model_with_a_config_of_version_2_is_saved_with_the_present_one(tmp_path: Path) -> None:
    model = softspin.load(V2.folder / "shared.safetensors", device="cpu")
    model.save(tmp_path / "again")
    again = softspin.load(tmp_path / "again", device="cpu")
    assert (again.result, again.config) == (model.result, model.config)
    written = json.loads((tmp_path / "again" / "config.json").read_text())["config"]
    assert written["version"] == CONFIG_VERSION
    assert written["batch_size"] == 4


def test_the_error_for_a_damaged_result_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("[{}]")
    with pytest.raises(RunError, match=r"result\.json has a row that has no 'seed'; resume the run to write it again"):
        read_result(tmp_path)


def test_records_do_not_load_torch() -> None:
    code = "import sys, softspin.records, softspin.formatting; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_row_of_version_2_has_other_names_of_sample_counts() -> None:
    row = ResultRow.from_json_lenient(row_json(version=2, samples=25, importance_samples=4000))
    assert (row.importance_samples, row.test_samples) == (25, 4000)
    again = ResultRow.from_json(json.loads(json.dumps(row.to_json())))
    assert (again.importance_samples, again.test_samples) == (25, 4000)
