"""Tuning: what is trained and kept in each rung, killed and resumed; a test set that nothing reads before the end."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import Call, caller
from experiments.pausing import in_child
from experiments.tables import STRIPES, timeless
from likelihoods.cases import CASES

import softspin
from softspin import api
from softspin.config import PROFILES, Config
from softspin.data import Dataset
from softspin.data.withheld import without_test
from softspin.errors import ConfigError, DataError, RunError, SupportError
from softspin.experiments import sweep, trials, tune
from softspin.experiments.combinations import cell_of
from softspin.experiments.launchers.this_process import ThisProcess
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import RunSpec, train_run
from softspin.experiments.scheduler import Event, RunStarted, Scheduler
from softspin.experiments.sweep import ROWS
from softspin.report.results import sort_rows
from softspin.training.results import result_rows

SMALL = {
    "structure": "1-nonlinear", "bits_per_group": "6", "width": "8", "chains": "20", "sweeps": "2", "steps": "8",
    "batch_size": "10", "validation_samples": "5", "test_samples": "20", "evaluate_every": "4", "device": "cpu",
}  # fmt: skip
SPACE = ["learning_rate=0.01,0.1", "importance_samples=1,2", "input_flips=0,0.2"]


@pytest.fixture(autouse=True)
def short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SHORTEST", 1)


def small(**changes: Any) -> Config:
    config = Config(data=STRIPES).with_settings([f"{name}={text}" for name, text in SMALL.items()])
    return config.replace(seeds=(0, 1), **changes)


def tuned(folder: Path, values: list[str] = SPACE, **changes: Any) -> tune.Tuned:
    return tune.run(small(), values, folder, **{"rungs": 2, "factor": 2, **changes})


def test_rungs() -> None:
    space = tune.make_space(small(steps=900), ["width=1,2,3,4,5,6,7,8,9,10"], Path())
    assert [space.rung(number) for number in range(3)] == [(10, 100), (4, 300), (2, 900)]
    assert tune.make_space(small(), ["width=1"], Path(), rungs=1).rung(0) == (1, 8)


def test_the_best_train_longer_and_the_best_of_them_is_tested(tmp_path: Path) -> None:
    """Validation NLLs are those of separate runs, up to the rounding of products with another number of replicas."""
    found = tuned(tmp_path)
    assert found.outcome == "done"
    first, last = ([trial for trial in found.trials if trial.rung == number] for number in (0, 1))
    assert (len(first), len(last), {one.config.steps for one in first}, {one.config.steps for one in last}) == (
        8, 4, {4}, {8},
    )  # fmt: skip
    nll = [one.valid_nll or 0.0 for one in first]
    assert nll == sorted(nll)
    assert {one.settings for one in last} == {one.settings for one in first[:4]}
    folders = sorted(tmp_path.glob("rung-1/*/variants-*/run.json"))
    assert len(folders) == 2, "one run for each number of importance samples, of 4 x 2 replicas"
    for trial in (first[0], first[-1]):
        run = softspin.fit(trial.config, folder=tmp_path / "own" / str(trial.settings), progress=False, pictures=False)
        assert run.result is not None
        assert trial.valid_nll == pytest.approx(fmean(row.valid_nll or 0.0 for row in run.result), rel=1e-4)
    assert found.chosen == last[0]
    assert [row.seed for row in found.rows] == [0, 1]
    assert read_rows(tmp_path / ROWS) == found.rows
    data = softspin.data.load(STRIPES)
    for row in found.rows:
        assert row.config is not None
        assert Config.from_dict(row.config) == found.chosen.config
        models = [softspin.load(path.parent) for path in tmp_path.glob("rung-2/*/variants-*/run.json")]
        nlls = [
            one.nll
            for model in models
            for number, replica in enumerate(model.config.replicas)
            if replica.seed == row.seed and model.config.of_replica(number).replace(seeds=(0, 1)) == found.chosen.config
            for one in result_rows(model.only(number).net, data, model.config.of_replica(number))
        ]
        assert nlls == [row.nll]
    assert not list(tmp_path.glob("rung-*/*/*/result.json"))


class Raising:
    """A table of test images that raises when it is read."""

    def __init__(self, table: Any) -> None:
        self.shape, self.ndim = table.shape, 2

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: object) -> Any:
        raise ZeroDivisionError("the test set was read")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def raising(data: Dataset) -> Dataset:
    _ = data.fingerprint
    found = copy.copy(data)
    object.__setattr__(found, "test", Raising(data.test))
    return found


LIKELIHOODS = {case.name: case for case in CASES}


def own_config(likelihood: str, folder: Path) -> Config:
    """The config of a tuning of data of this kind in a file."""
    if likelihood == "bernoulli":
        return small()
    np.save(folder / "own.npy", LIKELIHOODS[likelihood].make(60, 5))
    return small(data=str(folder / "own.npy"), likelihood=likelihood, **LIKELIHOODS[likelihood].settings)


@pytest.mark.parametrize(
    "likelihood", ["bernoulli", "gaussian", "negative-binomial", "categorical", "discretized-logistic"]
)
def test_the_test_set_is_read_only_at_the_end(likelihood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a data set whose test split raises, all rungs train; then the test of the chosen settings raises."""
    config, load = own_config(likelihood, tmp_path), api.load_data
    whole = load(config)
    data = raising(whole)

    def tuned(folder: Path, values: list[str], **changes: Any) -> tune.Tuned:
        return tune.run(config, values, folder, **{"rungs": 2, "factor": 2, **changes})

    monkeypatch.setattr(api, "load_data", lambda config: data)
    with pytest.raises(ZeroDivisionError):
        tuned(tmp_path, SPACE[:1])
    validated = read_rows(tmp_path / trials.VALIDATION_ROWS)
    assert [(row.status, row.steps, row.nll) for row in validated] == [
        ("validated", n, None) for n in (4,) * 4 + (8,) * 2
    ]
    assert not (tmp_path / ROWS).exists()
    report = sort_rows(validated, {})
    assert not [*report.cells, *report.others, *report.failed, *report.rejected], "no report takes them for results"
    monkeypatch.setattr(api, "load_data", load)
    events: list[Event] = []
    assert tuned(tmp_path, SPACE[:1], listener=events.append).outcome == "done"
    assert not events, "nothing is left but the test"
    # The guard is no empty one: a run that is tested reads the test set, and without a guard so would this.
    plain = RunSpec(cell_of(config), config, tmp_path / "tested")
    (row, _) = train_run(plain, data)
    assert row.error == "ZeroDivisionError: the test set was read"
    monkeypatch.setattr("softspin.experiments.runs.Trainer.train", lambda self, **_: self.data.test[:1])
    with pytest.raises(DataError, match="the test images are withheld until settings are chosen"):
        train_run(plain._replace(tested=False, folder=tmp_path / "withheld"), whole)


def test_values_outside_the_support_are_found_before_runs_that_are_tested(tmp_path: Path) -> None:
    """In a tuning those of the training images; those of the test images before the chosen settings are evaluated."""
    counts = LIKELIHOODS["negative-binomial"].make(60, 5)
    wrong = counts.copy()
    wrong[7, 1] = -1
    for part, others in (("test", "train"), ("train", "test")):
        arrays: dict[str, Any] = {part: wrong, others: counts}
        np.savez(tmp_path / f"{part}.npz", **arrays)
        config = small(data=str(tmp_path / f"{part}.npz"), likelihood="negative-binomial")
        with pytest.raises(SupportError, match=r"row 7.*needs counts"):
            tune.run(config, ["learning_rate=0.01,0.02"], tmp_path / part, rungs=1)
        assert bool(read_rows(tmp_path / part / trials.VALIDATION_ROWS)) == (part == "test")
        assert not (tmp_path / part / ROWS).exists()
        with pytest.raises(SupportError):
            sweep.run(config, ["learning_rate=0.01"], tmp_path / f"swept-{part}")
        assert not list((tmp_path / f"swept-{part}").glob("*/*/run.json"))


def test_withheld_images_have_a_number_and_no_values() -> None:
    data = softspin.data.load(STRIPES)
    found = without_test(data)
    assert (len(found.test), found.fingerprint, found.train is data.train) == (len(data.test), data.fingerprint, True)
    for read in (lambda: found.test[0], lambda: found.test.float, lambda: found.test.sum):
        with pytest.raises(DataError, match="withheld"):
            read()
    assert data.test.sum() > 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_tuning_that_is_killed_gives_the_same_result(tmp_path: Path) -> None:
    """SIGKILL at random moments: rows, and what was chosen, are those of a tuning without interruption."""
    folder, moments, threads = tmp_path / "killed", random.Random(0), torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    try:
        started = time.monotonic()
        whole = tuned(tmp_path / "whole", SPACE[:2])
        usual = time.monotonic() - started
        for _ in range(4):
            child = in_child(lambda: tuned(folder, SPACE[:2]))
            time.sleep(moments.uniform(0.1, 0.4) * usual)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert folder.exists()
        found = tuned(folder, SPACE[:2])
    finally:
        torch.set_num_threads(threads)
    assert found.outcome == "done"
    assert [trial.valid_nll for trial in found.trials] == [trial.valid_nll for trial in whole.trials]
    assert [timeless(row) for row in found.rows] == [timeless(row) for row in whole.rows]
    files = (trials.VALIDATION_ROWS, ROWS)
    for one, other in ((read_rows(place / name) for place in (folder, tmp_path / "whole")) for name in files):
        assert sorted(map(repr, map(timeless, one))) == sorted(map(repr, map(timeless, other)))


def test_settings_that_diverge_are_given_up(tmp_path: Path) -> None:
    found = tuned(tmp_path, ["learning_rate=1e30,0.01,0.02"])
    assert found.outcome == "done"
    bad = [trial for trial in found.trials if trial.failed]
    assert [(trial.settings, trial.rung, trial.valid_nll) for trial in bad] == [(("learning_rate=1e30",), 0, None)]
    rows = [row for row in read_rows(tmp_path / trials.VALIDATION_ROWS) if row.status == "failed"]
    assert [row.seed for row in rows] == [0, 1]
    assert all("learning_rate 1e+30 is not finite" in (row.error or "") for row in rows)
    assert len(list(tmp_path.glob("rung-1/*/broken-variants-*"))) == 1
    assert tuned(tmp_path / "all", ["learning_rate=1e30"]).outcome == "failed"


def test_a_second_choice_needs_another_folder(tmp_path: Path) -> None:
    first = tuned(tmp_path, SPACE[:1])
    events: list[Event] = []
    assert tuned(tmp_path, SPACE[:1], listener=events.append) == first
    assert not events
    with pytest.raises(RunError, match=r"the test set has been used in .*; tune other values in another folder"):
        tuned(tmp_path, ["learning_rate=0.01,0.1,0.2"])


def test_cases_are_divided_among_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines train a part each; with both folders in one, the choice is that of one machine, and nothing trains.

    The parts do not read the test set.
    """
    path = tmp_path / "c.toml"
    path.write_text('[cases]\nnone = []\nflips-1 = ["input_flips=0.1"]\nflips-2 = ["input_flips=0.2"]\n')
    cases = tune.read_cases(path)
    parts = [tune.read_cases(path, only) for only in (["flips-*"], ["none"])]
    assert parts == [[("input_flips=0.1",), ("input_flips=0.2",)], [()]]
    with pytest.raises(ConfigError, match="has no case 'flip'; there are: none, flips-1, flips-2"):
        tune.read_cases(path, ["none", "flip"])
    whole = tuned(tmp_path / "whole", [], cases=cases, rungs=1)
    data, load = raising(softspin.data.load(STRIPES)), api.load_data
    monkeypatch.setattr(api, "load_data", lambda config: data)
    for number, part in enumerate(parts):
        found = tuned(tmp_path / str(number), [], cases=cases, part=part, rungs=1)
        assert (found.outcome, found.chosen, found.rows) == ("done", None, [])
        assert {trial.settings for trial in found.trials} == {*part}
    monkeypatch.setattr(api, "load_data", load)
    shutil.copytree(tmp_path / "1", tmp_path / "0", dirs_exist_ok=True, ignore=lambda *_: [trials.VALIDATION_ROWS])
    with (tmp_path / "0" / trials.VALIDATION_ROWS).open("a") as file:
        file.write((tmp_path / "1" / trials.VALIDATION_ROWS).read_text())
    events: list[Event] = []
    joined = tuned(tmp_path / "0", [], cases=cases, rungs=1, listener=events.append)
    assert not events
    assert joined.chosen is not None
    assert whole.chosen is not None
    assert joined.chosen.settings == whole.chosen.settings
    assert [row.nll for row in joined.rows] == [pytest.approx(row.nll, rel=1e-4) for row in whole.rows]
    with pytest.raises(ConfigError, match="width=3 is not one of the cases, of which `part` has some"):
        tuned(tmp_path, [], cases=cases, part=[("width=3",)])


def test_more_values_before_the_test_train_what_is_missing(tmp_path: Path) -> None:
    space = tune.make_space(small(), ["learning_rate=0.01,0.1"], tmp_path, rungs=2, factor=2)
    plans = trials.plan_rung(space, space.settings, 0)
    assert [len(plan.runs) for plan in plans] == [1, 0]
    Scheduler(plans, tmp_path / trials.VALIDATION_ROWS, ThisProcess()).run()
    events: list[Event] = []
    tuned(tmp_path, ["learning_rate=0.01,0.1,0.2"], replicas=3, listener=events.append)
    started = [event.spec for event in events if isinstance(event, RunStarted)]
    assert started[0].config.of_replicas("learning_rate") == [0.2, 0.2], "the others have rows"
    assert all(len(spec.config.replicas) <= 3 for spec in started)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rungs": 0}, "rungs = 0 is not possible; it must be an integer from 1"),
        ({"factor": 1}, "factor = 1 is not possible; it must be an integer from 2"),
        ({"rungs": 6}, "steps = 8 are too few for 6 rungs: the first would have 1 steps, and needs 2"),
    ],
)
def test_numbers_that_are_not_possible(
    changes: dict[str, Any], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "SHORTEST", 2)
    with pytest.raises(ConfigError, match=error):
        tuned(tmp_path, **changes)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ("steps=1,2", "steps cannot be tuned; they are those of the last rung"),
        ("decoder_dropout=0,3", r"decoder_dropout = 3(\.0)? is not possible"),
        ("test_samples=10,20", "test_samples cannot be tuned: it changes the estimate of the NLL, not the model"),
        ("validation_chains=10,20", "validation_chains cannot be tuned: it changes the estimate"),
        ("prior=rbm,factorial centred=true", "centred = true is not possible: prior = factorial trains no couplings"),
        ("beta=9,9.0", "'beta=9' and 'beta=9.0' are the same settings; remove one of them"),
    ],
)
def test_values_that_are_not_possible(values: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        tuned(tmp_path, values.split())


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (("seeds=0-3",), "seeds cannot be tuned; give them by --seeds"),
        (("data=digits",), "data cannot be tuned: NLLs of different data cannot be compared"),
        (("condition=none",), "condition cannot be tuned: NLLs of different data cannot be compared"),
        (("device=cuda",), "device cannot be tuned, because it does not change the result"),
        (("width=3", "width=4"), "width is there twice in: width=3 width=4; a combination has one value of a setting"),
        (("input_flips=0,0.1",), "input_flips=0,0.1 has several values of input_flips; write a case for each of them"),
        (("betas=5,9",), "betas=5,9 has several values of beta; write a case for each of them"),
        (("width=8",), "'no changes' and 'width=8' are the same settings; remove one of them"),
    ],
)
def test_cases_that_are_not_possible(case: tuple[str, ...], error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        tune.make_space(small(), [], tmp_path, cases=[(), case], rungs=1)


def test_a_grid_of_its_own_is_not_possible(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="betas = 5,9 is a grid of its own; tune it: beta=5,9"):
        tune.run(small(betas=(5.0, 9.0)), ["width=3"], tmp_path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", r"has no cases; write a table \[cases\]"),
        ("[cases]\n", "has no cases"),
        ('[cases]\na = "width=3"\n', "a is not a list of settings"),
        ('[cases]\na = ["width"]\n', "a is not a list of settings"),
        ("rungs = 3\n[cases]\na = []\n", r"rungs is not in the table \[cases\]; give what all cases share by options"),
    ],
)
def test_files_that_have_no_cases(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=error):
        tune.read_cases(path)
    with pytest.raises(ConfigError, match=r"give either values to combine, such as .*, or a file of cases"):
        tune.make_space(small(), [], tmp_path)


@pytest.mark.parametrize(("name", "runs"), [("ablation", 6), ("levers", 3)])
def test_the_cases_of_the_project(name: str, runs: int, tmp_path: Path) -> None:
    """The recipe and all but one of its settings; and settings of replicas alone, in runs of at most 12 replicas."""
    path = Path(__file__).parents[2] / "experiments" / f"{name}.toml"
    cases = tune.read_cases(path)
    (words,) = [line for line in path.read_text().splitlines() if "softspin tune" in line]
    assert "--steps 200000 --seeds 0-2 --rungs 1 --replicas 12" in words
    base = Config(data="mnist", steps=200_000, seeds=(0, 1, 2), importance_samples=25)
    if name == "ablation":
        base = base.replace(profile="softspin-1")
        removed = {text.partition("=")[0] for case in cases for text in case}
        levers = {name for name in PROFILES["softspin-1"] if not name.startswith(trials.ESTIMATES)}
        assert removed == levers - {"steps", "importance_samples"}
        default = Config(data="mnist")
        for case in cases:
            config = base.with_settings(case)
            for text in case:
                setting = text.partition("=")[0]
                assert getattr(config, setting) == getattr(default, setting) != getattr(base, setting)
    space = tune.make_space(base, [], tmp_path, cases=cases, rungs=1, replicas=12)
    specs = [spec for plan in trials.plan_rung(space, space.settings, 0) for spec in plan.runs]
    assert len(specs) == runs
    assert sum(len(spec.config.replicas) for spec in specs) == 3 * len(cases)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    call: Call = caller(capsys, monkeypatch)
    words = ["tune", "learning_rate=0.01,0.1", "--data", STRIPES, "--folder", "t", "--rungs", "2", "--factor", "2"]
    words += [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    plan = call(*words, "--dry-run", "--json").json
    assert [(one["settings"], one["steps"], one["runs"]) for one in plan] == [(2, 4, 1), (1, 8, 1)]
    ended = call(*words, "--minutes", "0")
    assert (ended.code, ended.err) == (75, "")
    ended = call(*words)
    assert (ended.code, ended.err) == (0, "")
    assert "chosen: learning_rate=" in ended.out
    assert "seed 0: test NLL" in ended.out.splitlines()[-1]
    said = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
    assert [(line["kind"], line["outcome"], len(line["rows"])) for line in said] == [("tuned", "done", 1)]
    Path("c.toml").write_text('[cases]\na = []\nb = ["input_flips=0.1"]\n')
    words[1:2] = ["--cases", "c.toml", "--only", "b"]
    assert [one["settings"] for one in call(*words, "--dry-run", "--json").json] == [1]
    ended = call(*words, "--folder", "part")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].startswith("nothing is chosen yet; run the command without --only")
    assert call("tune", "width=3", "--only", "a").err == "error: --only names cases; give their file by --cases\n"
    assert call("tune", "bta=3").code == 2
    assert call("tune", "steps=3,4").code == 2
