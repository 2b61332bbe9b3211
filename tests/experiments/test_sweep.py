"""Sweeps over settings: the runs that they make, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.command import Call, caller
from experiments.tables import STRIPES, timeless

import softspin
from softspin.config import Config
from softspin.errors import ConfigError
from softspin.experiments import sweep
from softspin.experiments.rows import read_rows

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
    assert folders == {
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


def test_the_command_trains_lists_and_resumes(call: Call) -> None:
    words = ["sweep", "width=8,9", "--data", STRIPES, "--folder", "s"]
    words += [word for name, text in SMALL.items() for word in (f"--{name.replace('_', '-')}", text)]
    plan = call(*words, "--dry-run", "--json")
    assert [one["missing"] for one in plan.json] == [[0], [0]]
    ended = call(*words, "--minutes", "0")
    assert (ended.code, ended.err) == (75, "")
    ended = call(*words)
    assert (ended.code, ended.err) == (0, "")
    assert ", from step 1\n" in ended.out
    table = ended.out.splitlines()[-3:]
    assert table[0].split()[:2] == ["run", "replica"]
    assert {line.split()[0] for line in table[1:]} == {"width=8/seeds-0", "width=9/seeds-0"}
    said = [json.loads(line) for line in call(*words, "--json").out.splitlines()]
    assert [line["kind"] for line in said] == ["end"]
    assert call("sweep", "bta=3").code == 2
    assert call("sweep", "seeds=3,4").code == 2
