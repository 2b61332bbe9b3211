"""Sweeps over settings: the runs that combinations share, killed and resumed; and the command."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import Call, caller
from experiments.pausing import in_child
from experiments.tables import STRIPES, timeless

import softspin
from softspin.config import Config
from softspin.errors import ConfigError, RunError
from softspin.experiments import runs, sweep, tune
from softspin.experiments.combinations import combinations
from softspin.experiments.planning import CellPlan
from softspin.experiments.rows import append_rows, read_rows
from softspin.experiments.runs import RunSpec, new_run, train_run
from softspin.experiments.scheduler import Event, RunStarted
from softspin.records import ResultRow
from softspin.training.trainer import Trainer

SMALL = {
    "structure": "1-nonlinear", "bits_per_group": "6", "chains": "20", "sweeps": "2", "steps": "8", "batch_size": "10",
    "validation_samples": "5", "test_samples": "20", "device": "cpu",
}  # fmt: skip


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    return caller(capsys, monkeypatch)


def small() -> Config:
    return Config(data=STRIPES).with_settings([f"{name}={text}" for name, text in SMALL.items()])


def test_combinations() -> None:
    assert combinations(["beta=10, 20,10", "width=100,200"]) == [
        ("beta=10", "width=100"), ("beta=10", "width=200"), ("beta=20", "width=100"), ("beta=20", "width=200"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "there is nothing to sweep; write KEY=VALUE,VALUE"),
        (["beta"], "'beta' has no values"),
        (["beta=,"], "'beta=,' has no values"),
        (["beta=1", "beta=2"], "beta is listed twice; give all its values at once"),
        (["seeds=0,1"], "seeds cannot be swept; give the seeds by --seeds"),
        (["betas=10,20"], "betas cannot be swept; write beta="),
        (["data=a,b"], "data cannot be swept: NLLs of different data cannot be compared"),
        (["device=cpu,cuda"], "device cannot be swept, because it does not change the result"),
    ],
)
def test_wrong_values(values: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        combinations(values)


def specs_of(plans: Sequence[CellPlan]) -> list[RunSpec]:
    return [spec for plan in plans for spec in plan.runs]


def replicas_of(specs: Sequence[RunSpec]) -> list[int]:
    return [len(spec.config.replicas) for spec in specs]


def numbers(row: ResultRow) -> tuple[object, ...]:
    return row.nll, row.log_z, row.valid_nll, row.best_step


def key_of(row: ResultRow) -> tuple[Any, ...]:
    """Swept settings and seed of a row; a failed one has no beta of its own."""
    config = Config.from_dict(row.config or {})
    return config.width, config.beta, config.learning_rate, row.seed


def by_key(folder: Path) -> dict[tuple[Any, ...], ResultRow]:
    return {key_of(row): row for row in read_rows(folder / sweep.ROWS)}


def test_combinations_that_differ_by_replica_share_a_run(tmp_path: Path) -> None:
    """A second call with more values trains what is missing. Other settings have runs of their own."""
    config = small().replace(seeds=(0, 1))
    assert sweep.run(config, ["width=8"], tmp_path) == "done"
    assert sweep.run(config, ["width=8,9", "beta=10,30", "learning_rate=0.01,0.1"], tmp_path) == "done"
    folders = [path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/run.json")]
    assert sorted(re.sub(r"-[0-9a-f]{6,8}(?=/|$)", "", name) for name in folders) == [
        "width=8/seeds-0-1", "width=8/variants", "width=9/variants",
    ]  # fmt: skip
    rows = read_rows(tmp_path / sweep.ROWS)
    assert sorted(map(key_of, rows[2:])) == [
        (width, beta, rate, seed)
        for width in (8, 9)
        for beta in (10.0, 30.0)
        for rate in (0.01, 0.1)
        for seed in (0, 1)
    ]
    again: list[Event] = []
    assert sweep.run(config, ["width=8,9", "beta=10,30", "learning_rate=0.01,0.1"], tmp_path, listener=again.append)
    assert not any(isinstance(event, RunStarted) for event in again)
    assert sweep.run(config, ["width=9", "beta=10,20"], tmp_path, listener=again.append) == "done"
    started = [event.spec for event in again if isinstance(event, RunStarted)]
    assert [(spec.config.of_replicas("learning_rate"), spec.config.betas) for spec in started] == [
        ([small().learning_rate] * 4, (10.0, 20.0)),
    ]  # fmt: skip


def test_a_combination_does_not_depend_on_the_others(tmp_path: Path) -> None:
    """Bit for bit with as many replicas, else up to the rounding of products with another number of replicas."""
    config = small().replace(width=8)
    values = {"three": "0.01,0.1,0.03", "others": "0.02,0.3,0.01", "alone": "0.01", "seven": "1,2,3,4,5,0.01,6"}
    for name, text in values.items():
        assert sweep.run(config, [f"learning_rate={text}"], tmp_path / name) == "done"
    three, others, alone, seven = (by_key(tmp_path / name)[8, config.beta, 0.01, 0] for name in values)
    assert numbers(three) == numbers(others)
    for one in (three, seven):
        assert one.variant == alone.variant
        assert one.nll == pytest.approx(alone.nll, rel=1e-4)
        assert one.valid_nll == pytest.approx(alone.valid_nll, rel=1e-4)
    config = config.replace(learning_rate=0.01)
    model = softspin.fit(config, folder=tmp_path / "fit", progress=False, pictures=False)
    assert model.result is not None
    assert numbers(model.result[0]) == numbers(alone), "a combination alone is the run of fit"


def test_size_and_number_of_runs(tmp_path: Path) -> None:
    def planned(*values: str, **options: Any) -> list[int]:
        config = small().replace(seeds=options.pop("seeds", (0,)), patience=options.pop("patience", None))
        return replicas_of(specs_of(sweep.plan(config, values, tmp_path, **options)))

    many = "learning_rate=" + ",".join(str(1 / n) for n in range(1, 21))
    assert planned(many) == [10, 10], "at most 16, of equal size"
    assert planned(many, replicas=7) == [6, 7, 7]
    assert planned(many, replicas=8, seeds=(0, 1, 2)) == [6] * 10
    assert planned("beta=2,3,4", replicas=2, seeds=(0, 1, 2)) == [3, 3, 3], "seeds of a combination stay together"
    assert planned(many, workers=4) == [5] * 4, "all workers have a run"
    assert planned("beta=2,3,4", workers=8) == [1, 1, 1]
    assert planned("beta=2,3,4", "width=8,9", workers=2) == [3, 3]
    assert planned("beta=2,3,4,5", "width=8,9", workers=3) == [2] * 4
    assert planned("beta=2,3,4", patience=2) == [1, 1, 1], "early stopping waits for all replicas of a run"
    assert planned("method=gumbolt,dvae#-exp", "learning_rate=0.1,0.2") == [2, 2]
    for wrong in (0, 2.5, "3"):
        with pytest.raises(ConfigError, match=f"replicas = {wrong} is not possible; it must be an integer from 1"):
            planned(many, replicas=wrong)
    with pytest.raises(ConfigError, match="workers = none is neither a positive number nor 'auto'"):
        sweep.run(small(), [many], tmp_path, workers="none")


def started_by(folder: Path, values: Sequence[str], **options: Any) -> list[RunSpec]:
    """Run a sweep; the runs that it started."""
    events: list[Event] = []
    config = small().replace(width=8, seeds=(0, 1), checkpoint_every=2)
    assert sweep.run(config, values, folder, listener=events.append, **options) == "done"
    return [event.spec for event in events if isinstance(event, RunStarted)]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_sweep_that_is_killed_gives_the_same_rows(tmp_path: Path) -> None:
    """SIGKILL at random moments: rows are those of a sweep without interruption, and no run is made twice."""
    values = ["beta=10,20", "sweeps=2,3"]
    folder, moments, threads = tmp_path / "killed", random.Random(0), torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    try:
        started = time.monotonic()
        assert len(started_by(tmp_path / "whole", values)) == 2
        usual = time.monotonic() - started
        for _ in range(4):
            child = in_child(lambda: started_by(folder, values))
            time.sleep(moments.uniform(0.1, 0.4) * usual)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        started_by(folder, values)
    finally:
        torch.set_num_threads(threads)
    one, other = (read_rows(place / sweep.ROWS) for place in (folder, tmp_path / "whole"))
    assert sorted(map(repr, map(timeless, one))) == sorted(map(repr, map(timeless, other)))
    assert len([*folder.rglob("run.json")]) == 2


class Stops(Trainer):
    """Stops at step 5, with a checkpoint."""

    def _step(self) -> None:
        super()._step()
        if self.engine.steps == 5:
            raise KeyboardInterrupt


def stopped(folder: Path, values: Sequence[str], monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "Trainer", Stops)
        with pytest.raises(KeyboardInterrupt):
            started_by(folder, values, **options)


def test_more_or_fewer_values_resume_a_run_that_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path, ["beta=10,20,30"], monkeypatch)
    first, second = started_by(tmp_path, ["beta=20,40"], workers=1)
    assert (first.config.betas, first.resume) == ((10.0, 20.0, 30.0), True)
    assert (second.config.beta, second.resume) == (40.0, False)
    assert {row.beta for row in read_rows(tmp_path / sweep.ROWS)} == {10.0, 20.0, 30.0, 40.0}
    assert started_by(tmp_path, ["beta=10,20,30,40"]) == []


def test_folders_of_older_versions_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have a run for each combination: one here is finished, one is not, one has never started."""
    config = small().replace(width=8, seeds=(0, 1), checkpoint_every=2)
    data = softspin.data.load(STRIPES)
    old = []
    for beta in (10, 20):
        (plan,) = sweep.plan(config, [f"beta={beta}"], tmp_path)
        old += [new_run(plan.cell, plan.config, (0, 1), plan.runs[0].folder.parent)]
    append_rows(tmp_path / sweep.ROWS, rows := train_run(old[0], data))
    with monkeypatch.context() as patch:
        patch.setattr(runs, "Trainer", Stops)
        with pytest.raises(KeyboardInterrupt):
            train_run(old[1], data)
    started = started_by(tmp_path, ["beta=10,20,30,40"])
    assert [(spec.config.beta, spec.config.betas, spec.resume) for spec in started] == [
        (20.0, (), True), (None, (30.0, 40.0), False),
    ]  # fmt: skip
    assert started[0].folder == old[1].folder
    assert read_rows(tmp_path / sweep.ROWS)[:2] == rows
    assert len(read_rows(tmp_path / sweep.ROWS)) == 8


def test_a_nonfinite_replica_is_one_failed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other seed of its combination, and the other combinations, have the results that they have without it."""

    class Breaks(Trainer):
        def _step(self) -> None:
            super()._step()
            for number, one in enumerate(self.config.replicas):
                if (one.seed, one.beta) == (1, 20.0) and self.engine.steps == 3:
                    with torch.no_grad():
                        self.engine.model.get_parameter("decoder.linears.0.bias")[number, 0] = torch.nan

    config, values = small().replace(width=8, seeds=(0, 1)), ["beta=10,20,30"]
    with monkeypatch.context() as patch:
        patch.setattr(runs, "Trainer", Breaks)
        assert sweep.run(config, values, tmp_path) == "failed"
    rows = {key_of(row)[1::2]: row for row in read_rows(tmp_path / sweep.ROWS)}
    assert {key: row.ok for key, row in rows.items()} == {
        (beta, seed): (beta, seed) != (20.0, 1) for beta in (10.0, 20.0, 30.0) for seed in (0, 1)
    }
    assert "of the replica with seed 1" in (rows[20.0, 1].error or "")
    assert len(list(tmp_path.glob("*/broken-variants-*"))) == 1
    assert sweep.run(config, values, tmp_path) == "failed", "not retried"
    assert sweep.run(config, values, tmp_path, retry=True) == "done"
    whole = tmp_path / "whole"
    assert sweep.run(config, values, whole) == "done"
    wanted = {(row.beta, row.seed): row for row in read_rows(whole / sweep.ROWS)}
    last = {(row.beta, row.seed): row for row in read_rows(tmp_path / sweep.ROWS) if row.ok}
    assert last.keys() == wanted.keys()
    for key, row in last.items():
        assert row.nll == pytest.approx(wanted[key].nll, rel=1e-4)


def test_a_run_without_memory_can_be_retried_with_fewer_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMemory(Trainer):
        def _step(self) -> None:
            if len(self.config.replicas) > 2:
                raise torch.OutOfMemoryError("out of memory")
            super()._step()

    monkeypatch.setattr(runs, "Trainer", NoMemory)
    config, values = small().replace(width=8), ["beta=10,20,30,40"]
    assert sweep.run(config, values, tmp_path) == "failed"
    assert {row.error for row in read_rows(tmp_path / sweep.ROWS)} == {"OutOfMemoryError: out of memory"}
    assert sweep.run(config, values, tmp_path, retry=True) == "failed"
    assert sweep.run(config, values, tmp_path, retry=True, replicas=2) == "done"


def test_other_settings_and_data_have_other_folders_and_rows(tmp_path: Path) -> None:
    def planned(config: Config, *values: str) -> list[tuple[Path, str]]:
        plans = sweep.plan(config, values, tmp_path)
        return [(spec.folder, plan.cell.id) for plan in plans for spec in plan.runs]

    found = planned(small(), "method=dvae#-exp,dvae++-exp")
    for data in ("digits8x8", tmp_path / "a" / "x.npy", tmp_path / "b" / "x.npy"):
        found += planned(small().replace(data=str(data)), "width=8")
    found += planned(small().replace(steps=9), "width=8")
    assert len({folder for folder, _ in found}) == 6
    assert len({cell for _, cell in found[2:5]}) == 3
    assert len(planned(small(), "learning_rate=0.01,1e-2")) == 1, "two texts of one value"
    again = planned(small().replace(seeds=(0, 1), device="auto"), "width=8")[0][0]
    assert again.parent == planned(small(), "width=8")[0][0].parent, "seeds and device do not matter"
    with pytest.raises(ConfigError, match="betas = 5,30 is a grid of its own; sweep it: beta=5,30"):
        planned(small().replace(betas=(5.0, 30.0)), "width=8")


@pytest.mark.parametrize("run", [sweep.run, tune.run])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({"data": STRIPES}, ["beta=2,3"], "s"), "config = a dict is not a softspin.Config; make one"),
        ((Config(), {"beta": [2, 3]}, "s"), r'texts, such as \["beta=10,20", "width=8,9"\], not a dict'),
        ((Config(), [("beta", 2)], "s"), "values of settings are texts, .*, not a tuple"),
        ((Config(), ["beta=2,3"], 3), "folder = 3 is not the path of a run directory"),
        ((Config(), ["beta=2,3"], __file__), "test_sweep.py is a file; give a folder for rows and runs"),
    ],
)
def test_wrong_arguments(run: Any, arguments: tuple[Any, ...], error: str) -> None:
    with pytest.raises((ConfigError, RunError), match=error):
        run(*arguments)


@pytest.mark.parametrize("workers", [2.5, None, 0, "many"])
def test_workers_that_are_no_number(workers: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"workers = {workers} is neither a positive number nor 'auto'"):
        sweep.run(small(), ["beta=2,3"], tmp_path, workers=workers)


def test_one_text_and_a_folder_by_name(tmp_path: Path) -> None:
    assert replicas_of(specs_of(sweep.plan(small(), "beta=2,3", str(tmp_path)))) == [2]  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["sweep", "tune"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["beta=2,3", "--beta", "5"], "beta=2,3 and --beta 5 contradict each other; give one of them"),
        (["beta=2,3", "--set", "betas=5,6"], "beta=2,3 and --set betas=5,6 contradict each other"),
        (["width=8,9", "--set", "width=7"], "width=8,9 and --set width=7 contradict each other"),
    ],
)
def test_a_setting_that_is_tried_and_set(call: Call, command: str, words: list[str], error: str) -> None:
    ended = call(command, *words, "--data", STRIPES)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert error in ended.err


def test_a_result_of_another_config_is_not_taken(tmp_path: Path) -> None:
    config = small()
    (spec,) = (spec for plan in sweep.plan(config, ["width=8"], tmp_path) for spec in plan.runs)
    train_run(spec, softspin.data.load(STRIPES))
    other = spec._replace(config=spec.config.replace(width=9), resume=True)
    with pytest.raises(RunError, match="has width = 8, not 9"):
        train_run(other, softspin.data.load(STRIPES))


def test_the_command_trains_lists_and_resumes(call: Call) -> None:
    words = ["sweep", "width=8,9", "--data", STRIPES, "--folder", "s"]
    words += [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    plan = call(*words, "--dry-run", "--json")
    assert [one["missing"] for one in plan.json] == [[0], [0]]
    lines = call(*words, "--dry-run").out.splitlines()
    assert [lines[0].endswith("differs by"), *(line.split("  ")[-1].strip() for line in lines[1:3])] == [
        True, "width = 8", "width = 9",
    ]  # fmt: skip
    ended = call(*words, "--minutes", "0")
    assert (ended.code, ended.err) == (75, "")
    assert ended.out.startswith("0 of 2 results in s/rows.jsonl; runs to train: 2\n"), "same cell and seed"
    ended = call(*words)
    assert (ended.code, ended.err) == (0, "")
    assert ", from step 1\n" in ended.out
    table = [line for line in ended.out.splitlines() if not line.startswith("(!)")][-3:]
    assert table[0].split()[:2] == ["run", "replica"]
    assert {re.sub(r"-[0-9a-f]{6}/", "/", line.split()[0]) for line in table[1:]} == {
        "width=8/seeds-0", "width=9/seeds-0",
    }  # fmt: skip
    said = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
    assert [line["kind"] for line in said] == ["end"]
    assert call("sweep", "bta=3").code == 2


def test_the_command_lists_replicas_by_their_settings(call: Call) -> None:
    options = [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    words = ["sweep", "beta=10,20", "input_flips=0,0.1", "--data", STRIPES, "--folder", "s", "--width", "8", *options]
    lines = call(*words, "--dry-run").out.splitlines()
    assert [("in a run above" in line) for line in lines[1:5]] == [False, True, True, True]
    assert lines[5].startswith("missing rows: 4; runs to train: 1")
    plans = call(*words, "--dry-run", "--json", "--replicas", "2").json
    assert [len(one["runs"]) for one in plans] == [1, 0, 1, 0]
    assert call(*words).code == 0
    listed = call("runs", "s", "--json").json
    assert {(one["beta"], one["settings"]["input_flips"]) for one in listed} == {
        (beta, flips) for beta in (10.0, 20.0) for flips in (0.0, 0.1)
    }
    assert len({one["folder"] for one in listed}) == 1
    assert {line.split("  ")[-1].strip() for line in call("runs", "s").out.splitlines()[1:5]} == {
        "input_flips = 0.0", "input_flips = 0.1",
    }  # fmt: skip
    assert call(*words, "--replicas", "0").code == 2
    failing = ["sweep", "learning_rate=1e30,0.01", *words[3:], "--workers", "2", "--replicas", "2"]
    ended = call(*failing, "--workers", "1")
    assert ended.code == 1
    assert "  rerun without the failed replica: seed 0 of 1 combination\n" in ended.out
    assert "left out: 1 run with non-finite numbers (broken-*)" in call("runs", "s").out
    assert {one["state"] for one in call("runs", "s", "--json").json} == {"finished", "broken"}


def test_workers_share_the_combinations(call: Call) -> None:
    """Of real numbers, so that the workers, too, read data that are not binary."""
    np.save("table.npy", np.random.default_rng(0).normal(5.0, 2.0, (40, 4)))
    options = [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    words = ["beta=10,20,30,40", "--data", "table.npy", "--likelihood", "gaussian", "--width", "8", *options]
    assert call("sweep", *words, "--folder", "two", "--workers", "2").code == 0
    assert [*map(len, (softspin.load(path.parent).config.betas for path in Path("two").rglob("run.json")))] == [2, 2]
    assert call("sweep", *words, "--folder", "one", "--replicas", "2").code == 0
    assert {key: numbers(row) for key, row in by_key(Path("one")).items()} == {
        key: numbers(row) for key, row in by_key(Path("two")).items()
    }


def test_data_that_are_not_binary(call: Call) -> None:
    """Real numbers are not binarized, and values outside the support end in one line, before any run."""
    x = np.random.default_rng(0).normal(5.0, 2.0, (40, 4))
    np.save("table.npy", x)
    options = [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    words = ["--data", "table.npy", "--folder", "s", *options]
    bad = call("sweep", "width=8", "--likelihood", "negative-binomial", *words)
    assert (bad.code, len(bad.err.splitlines())) == (1, 1)
    assert "needs counts, whole numbers from 0" in bad.err
    assert not list(Path("s").rglob("run.json"))
    assert call("sweep", "scale=feature,output", "--likelihood", "gaussian", *words).code == 0
    rows = sorted(read_rows(Path("s") / sweep.ROWS), key=lambda row: str(row.variant["scale"]))
    assert [(row.variant["scale"], row.unit) for row in rows] == [
        (scale, "nats of a density") for scale in ("feature", "output")
    ]
    config = small().replace(data="table.npy", likelihood="gaussian", scale="output")
    model = softspin.fit(config, folder="one", progress=False, pictures=False)
    assert model.result is not None
    assert model.result[0].nll == rows[1].nll
    assert call("sweep", "seeds=3,4").code == 2
