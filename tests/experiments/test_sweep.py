"""Sweeps over settings: the runs that they make, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli.command import Call, caller
from experiments.tables import STRIPES, timeless

import softspin
from softspin.config import Config
from softspin.errors import ConfigError, RunError
from softspin.experiments import sweep
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import train_run

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
    assert sweep.combinations(["beta=10, 20,10", "width=100,200"]) == [
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
        sweep.combinations(values)


def test_every_combination_is_the_run_that_fit_makes(tmp_path: Path) -> None:
    """A second call with more values trains what is missing."""
    config = small().replace(seeds=(0, 1))
    assert sweep.run(config, ["width=8"], tmp_path) == "done"
    assert sweep.run(config, ["width=8,9", "beta=10,30"], tmp_path) == "done"
    rows = read_rows(tmp_path / sweep.ROWS)
    assert [(row.seed, row.variant["width"], row.beta) for row in rows[2:]] == [
        (seed, width, beta) for width in (8, 9) for beta in (10.0, 30.0) for seed in (0, 1)
    ]
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/run.json")}
    assert {re.sub(r"-[0-9a-f]{6}/", "/", name) for name in folders} == {
        f"{name}/seeds-0-1" for name in ("width=8", *(f"width={w},beta={b}" for w in (8, 9) for b in (10, 30)))
    }
    model = softspin.fit(config.replace(width=9, beta=30.0), folder=tmp_path / "one", progress=False, pictures=False)
    assert model.result is not None
    found = {row.seed: row for row in rows if (row.variant["width"], row.beta) == (9, 30.0)}
    for own in model.result:
        assert (own.nll, own.log_z, own.valid_nll) == (
            found[own.seed].nll, found[own.seed].log_z, found[own.seed].valid_nll,
        )  # fmt: skip
    assert [timeless(row) for row in read_rows(tmp_path / sweep.ROWS)] == [timeless(row) for row in rows]


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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_data_that_are_not_binary(call: Call, workers: str) -> None:
    """Real numbers are not binarized, and values outside the support end in one line, before any run."""
    x = np.random.default_rng(0).normal(5.0, 2.0, (40, 4))
    np.save("table.npy", x)
    options = [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    words = ["--data", "table.npy", "--folder", "s", *options]
    bad = call("sweep", "width=8", "--likelihood", "negative-binomial", *words)
    assert (bad.code, len(bad.err.splitlines())) == (1, 1)
    assert "needs counts, whole numbers from 0" in bad.err
    assert not list(Path("s").rglob("run.json"))
    many = ["--workers", workers] if workers != "1" else []
    assert call("sweep", "scale=feature,output", "--likelihood", "gaussian", *words, *many).code == 0
    rows = sorted(read_rows(Path("s") / sweep.ROWS), key=lambda row: str(row.variant["scale"]))
    assert [(row.variant["scale"], row.unit) for row in rows] == [
        (scale, "nats of a density") for scale in ("feature", "output")
    ]
    config = small().replace(data="table.npy", likelihood="gaussian", scale="output")
    model = softspin.fit(config, folder="one", progress=False, pictures=False)
    assert model.result is not None
    assert model.result[0].nll == rows[1].nll
    assert call("sweep", "seeds=3,4").code == 2
