"""The condition is part of what tells cells, runs, rows and loaded data apart, if it is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.command import Call, caller
from experiments.tables import SETTINGS
from made_rows import row_json

from softspin.config import Config, is_neutral
from softspin.errors import ConfigError, RunError
from softspin.experiments import grid, sweep, trials, tune
from softspin.experiments.cells import Cell
from softspin.experiments.combinations import combinations, digest_of
from softspin.experiments.launchers.this_process import data_key, load_data
from softspin.experiments.planning import keys_of, plan_cell
from softspin.experiments.rows import append_rows, key_of, read_rows
from softspin.experiments.runs import RunSpec, cell_folder, new_run, train_run, variants_run
from softspin.experiments.scheduler import Event, RunStarted
from softspin.records import ResultRow

GIVEN = ("auto", "none", "labels", "a.npy", "b.npy")


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images with labels, and two files of conditions, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trials, "SHORTEST", 1)
    rng = np.random.default_rng(0)
    x = (rng.random((60, 9)) < 0.4).astype(np.uint8)
    np.savez("own.npz", x=x, y=x[:, 0])
    np.save("a.npy", x[:, 1])
    np.save("b.npy", x[:, 2])


def cell_of(condition: str | None) -> Cell:
    settings = () if condition is None else (("condition", condition),)
    return Cell("own.npz", "1-nonlinear", 1, "dvae#-power", "pa", settings=settings)


def started(events: Sequence[Event]) -> list[str]:
    return [event.spec.config.condition for event in events if isinstance(event, RunStarted)]


def small(**changes: Any) -> Config:
    config = Config(data="own.npz", structure="1-nonlinear", steps=8)
    return config.with_settings(SETTINGS).replace(**changes)


def trained(spec: RunSpec) -> list[ResultRow]:
    return train_run(spec, load_data([spec])[data_key(spec.config)])


def test_cells_with_other_conditions_are_other_cells(tmp_path: Path) -> None:
    """Each trains on its own data, and a second call finds all of them, also from the name of a file elsewhere."""
    cells, events = [cell_of(one) for one in GIVEN], list[Event]()
    rows = tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"seeds": (0,), "steps": 8, "settings": SETTINGS}
    assert grid.run(cells, rows, folder=tmp_path / "runs", listener=events.append, **options) == "done"
    assert started(events) == [str(tmp_path / one) if one.endswith(".npy") else one for one in GIVEN]
    found = read_rows(rows)
    assert [row.variant.get("condition") for row in found] == [
        None, "none", "labels", str(tmp_path / "a.npy"), str(tmp_path / "b.npy"),
    ]  # fmt: skip
    assert [row.condition is None for row in found] == [True, True, False, False, False]
    assert len({row.fingerprint for row in found}) == 4, "auto is none, for data without a condition"
    assert found[0].nll == found[1].nll
    again: list[Event] = []
    other = [cell_of(one) for one in (*GIVEN[:3], "runs/../a.npy", str(tmp_path / "b.npy"))]
    assert grid.run(other, rows, folder=tmp_path / "runs", listener=again.append, **options) == "done"
    assert started(again) == []


@pytest.mark.parametrize("condition", ["labels", "a.npy"])
def test_a_later_condition_is_another_result(condition: str, tmp_path: Path) -> None:
    """`sweep` and `tune` do not return the results without it."""
    for config in (small(), small(condition=condition)):
        events: list[Event] = []
        assert sweep.run(config, ["learning_rate=0.01,0.02"], tmp_path / "sweep", listener=events.append) == "done"
        assert len(started(events)) == 1
    found = read_rows(tmp_path / "sweep" / sweep.ROWS)
    assert [row.condition is None for row in found] == [True, True, False, False]
    first = tune.run(small(), ["learning_rate=0.01,0.02"], tmp_path / "tune", rungs=1)
    assert [row.condition for row in first.rows] == [None]
    with pytest.raises(RunError, match="the test set has been used in"):
        tune.run(small(condition=condition), ["learning_rate=0.01,0.02"], tmp_path / "tune", rungs=1)


def test_the_chosen_run_is_one_with_the_same_condition(tmp_path: Path) -> None:
    """Both conditions have been validated in one folder, and only then is one of them chosen and tested."""
    values = ["learning_rate=0.01,0.02"]
    for condition in ("none", "labels"):
        space = tune.make_space(small(condition=condition), values, tmp_path / "tune", rungs=1)
        for plan in trials.plan_rung(space, space.settings, 0):
            for spec in plan.runs:
                append_rows(space.folder / trials.VALIDATION_ROWS, trained(spec))
    for condition in ("labels", "none"):
        (tmp_path / "tune" / sweep.ROWS).unlink(missing_ok=True)
        found = tune.run(small(condition=condition), values, tmp_path / "tune", rungs=1)
        assert found.outcome == "done"
        assert [row.condition is None for row in found.rows] == [condition == "none"]


def test_data_are_loaded_once_for_each_condition() -> None:
    specs = [new_run(cell_of(None), small(condition=one), (0,), Path()) for one in GIVEN]
    found = load_data([*specs, *specs])
    assert len(found) == len(GIVEN)
    assert len({data.fingerprint for data in found.values()}) == 4


def test_without_a_condition_names_keys_and_digests_are_as_before(tmp_path: Path) -> None:
    """Digests are those of all settings that are not neutral, and the condition is."""
    cell, config = cell_of(None), cell_of(None).config(steps=8)
    assert config == cell_of("auto").config(steps=8)
    assert cell.variant(config) == {}
    assert keys_of(cell, config)[0] == ("own.npz/1-nonlinear/k1/dvae#-power/pa", 0, 8, "{}", "")
    assert cell_folder(cell, config, Path()) == Path("own.npz/1-nonlinear/k1/dvae-sharp-power/pa/8")
    settings = config.settings()
    fixed = {name: value for name, value in settings.items() if not is_neutral(name)}
    assert "condition" not in fixed

    def digest(values: dict[str, Any], **more: Any) -> str:
        return hashlib.sha256(json.dumps(values, **more).encode()).hexdigest()

    own = {name: value for name, value in settings.items() if name in fixed or name == "data"}
    own.pop("seeds")
    assert digest_of(config) == digest(own, sort_keys=True)
    assert variants_run(cell, config, Path()).folder == Path(f"variants-{digest(fixed)[:8]}")
    given = config.replace(condition="labels")
    assert digest_of(given) != digest_of(config)
    assert variants_run(cell, given, Path()).folder != variants_run(cell, config, Path()).folder
    assert cell_folder(cell, given, Path()).name == "8-condition=labels"


def test_rows_of_before_have_the_condition_of_their_config() -> None:
    """Their variant did not name it, so that they would be taken for results without a condition."""

    def key(config: Config, **changes: Any) -> object:
        row = ResultRow.from_json_lenient(row_json(config=config.to_dict(), **changes))
        return json.loads(key_of(row).variant)

    assert key(small()) == {}
    assert key(small(condition="labels")) == {"condition": "labels"}
    assert key(small(condition="labels"), variant={"width": 8}) == {"width": 8, "condition": "labels"}
    assert ResultRow.from_json(row_json(cell=None, config=small(condition="labels").to_dict())).variant == {}


def test_a_run_of_before_with_another_condition_is_not_resumed(tmp_path: Path) -> None:
    """Its folder was named as that of a run without one."""
    cell = cell_of(None)
    config = cell.config(steps=8, settings=SETTINGS)
    spec = new_run(cell, config, (0,), cell_folder(cell, config, tmp_path / "runs"))
    labelled = spec._replace(config=spec.config.replace(condition="labels"))
    (row,) = trained(labelled)
    assert row.ok
    with pytest.raises(RunError, match=r"has condition = labels, not auto; move the folder away"):
        plan_cell(cell, config, {}, tmp_path / "runs")
    plan = plan_cell(cell, labelled.config, {}, tmp_path / "runs")
    assert [one.resume for one in plan.runs] == [False]
    assert plan.runs[0].folder != spec.folder


def test_a_resumed_run_may_find_its_conditions_in_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call: Call = caller(capsys, monkeypatch)
    sets = [word for one in SETTINGS if not one.startswith("device") for word in ("--set", one)]
    words = ("--data", "own.npz", "--structure", "1-nonlinear", "--steps", 8, *sets, "--device", "cpu", "--json")
    assert call("train", "run", "--condition", "a.npy", *words).code == 0
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "a.npy").rename(tmp_path / "moved.npy")
    ended = call("train", "run", "--resume", "--condition", "moved.npy")
    assert (ended.code, (tmp_path / "run" / "result.json").exists()) == (0, True)
    assert call("train", "run", "--resume", "--condition", "b.npy").code == 1


def test_runs_are_listed_with_the_condition_in_which_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for condition in ("none", "labels"):
        cell = cell_of(condition)
        config = cell.config(steps=8, settings=SETTINGS)
        trained(new_run(cell, config, (0,), tmp_path / "runs" / condition))
    out = caller(capsys, monkeypatch)("runs", tmp_path / "runs").out
    assert "condition = none" in out
    assert "condition = labels" in out


def test_a_condition_cannot_be_swept() -> None:
    text = r"condition cannot be swept: NLLs given different conditions cannot be compared; run a sweep for each"
    with pytest.raises(ConfigError, match=text):
        combinations(["condition=none,labels"])
    with pytest.raises(ConfigError, match="device cannot be swept, because it does not change the result"):
        combinations(["device=cpu,cuda"])
