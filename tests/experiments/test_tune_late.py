"""Tuning of settings that change late in training: what each trial trains with, plain runs, and SIGKILL."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest
import torch
from cli.command import Call, caller
from experiments.pausing import in_child
from experiments.tables import STRIPES, timeless

from softspin.cli.grid_display import GridDisplay
from softspin.config import Config
from softspin.experiments import trials
from softspin.experiments.combinations import cell_of
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import RunSpec
from softspin.experiments.scheduler import Counts, RunStarted
from softspin.experiments.sweep import ROWS
from softspin.training import checkpoint
from softspin.training.update import Update

STEPS = 8
"""Steps of the last of two rungs."""
HALF = STEPS // 2
"""Steps of the first."""
CASES = {
    "none": [],
    "flips": ["input_flips=0.2"],
    "samples": ["late_importance_samples=0.5:3"],
    "samples-flips": ["late_importance_samples=0.5:3", "input_flips=0.2"],
    "chains": ["late_chains=0.25:12", "late_sampler=0.75:pcd"],
    "average": ["ema_decay=0.6", "cosine_tail=0.5", "gradient=dreg"],
}
"""The first two pairs differ only by replica: each pair shares a run."""
OPTIONS = {
    "data": STRIPES, "structure": "1-nonlinear", "bits-per-group": "6", "width": "8", "chains": "20", "sweeps": "2",
    "batch-size": "10", "validation-samples": "5", "test-samples": "20", "evaluate-every": "4",
    "checkpoint-every": "1", "report-every": "1", "device": "cpu", "seeds": "0-1",
}  # fmt: skip
COMMON = [word for name, text in OPTIONS.items() for word in (f"--{name}", text)]


class Drawn(NamedTuple):
    """What a training step draws: importance samples of the posterior, and chains of a sampler."""

    samples: int
    chains: int
    sampler: str


PLAIN = Drawn(1, 20, "PopulationAnnealing")


class Tuning(NamedTuple):
    folder: Path
    drawn: dict[tuple[int, str], list[Drawn]]
    """What each step drew, by the steps of a run and its kind."""
    said: list[dict[str, Any]]


def kind(config: Config) -> str:
    """Which late settings a run has; those of a pair have the same."""
    if config.late_importance_samples:
        return "samples"
    return "chains" if config.late_chains else "average" if config.ema_decay else "none"


def command(folder: Path) -> list[str]:
    lines = [f"{name} = {json.dumps(case)}\n" for name, case in CASES.items()]
    folder.with_suffix(".toml").write_text("[cases]\n" + "".join(lines))
    words = ["--cases", str(folder.with_suffix(".toml")), "--folder", str(folder), "--steps", str(STEPS)]
    return ["tune", *words, "--rungs", "2", "--factor", "2", *COMMON]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    monkeypatch.setattr(trials, "SHORTEST", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process does not have the threads of its parent
    yield caller(capsys, monkeypatch)
    torch.set_num_threads(threads)


def tuned(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tuning:
    """A tuning without interruption, and what its steps drew."""
    drawn: dict[tuple[int, str], list[Drawn]] = {}
    draw = Update.batch_noise

    def seen(update: Update, features: int) -> Any:
        found = draw(update, features)
        z, name = update.sampler.samples(update.sampler_state), type(update.sampler).__name__
        steps = drawn.setdefault((update.config.steps, kind(update.config)), [])
        assert len(steps) == int(update.step_counter)
        steps.append(Drawn(found[1].shape[-3], z.shape[1], name))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Update, "batch_noise", seen)
        ended = call(*command(folder), "--json")
    assert (ended.code, ended.err) == (0, "")
    return Tuning(folder, drawn, [json.loads(line) for line in ended.out.splitlines()])


def expected(name: str, steps: int) -> list[Drawn]:
    """By the definition: a step, counted from 0, is late if its number is at least the share times the steps."""
    found = [PLAIN] * steps
    if name == "samples":
        found[steps // 2 :] = [Drawn(3, 20, "PopulationAnnealing")] * (steps // 2)
    if name == "chains":
        found[steps // 4 :] = [Drawn(1, 12, "PopulationAnnealing")] * (3 * steps // 4)
        found[3 * steps // 4 :] = [Drawn(1, 12, "Gibbs")] * (steps // 4)
    return found


def journal(run: Path) -> list[dict[str, Any]]:
    """Lines of training without times, one for each step."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in one.items() if name != "seconds"} for one in lines if one["kind"] == "train"
    ]


def runs_of(folder: Path, rung: int) -> dict[str, Path]:
    """The runs of a rung by kind; the config that a run stores says which it is."""
    found = {}
    for path in sorted(folder.glob(f"rung-{rung}/*/*/run.json")):
        found[kind(Config.from_dict(json.loads(path.read_text())["config"]))] = path.parent
    return found


def equal(one: Path, other: Path) -> bool:
    """Whether two runs ended in the same state, bit for bit."""
    (first, _), (second, _) = checkpoint.load(one, "last"), checkpoint.load(other, "last")
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def test_each_trial_trains_with_its_own_late_settings(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn is by the definition. A late phase leaves the steps before it as they are, bit for bit.

    Trials that have a run of their own are `softspin train` bit for bit, the others up to rounding. A tuning that is
    killed in each phase has the same rows.
    """
    whole = tuned(call, tmp_path / "whole", monkeypatch)
    result = whole.said[-1]
    assert (result["kind"], result["outcome"]) == ("tuned", "done")
    kept = [one["settings"] for one in result["trials"] if one["rung"] == 2]
    assert len(kept) == 3, "one at least has late settings"
    last = {next(kind(Config().with_settings(case)) for case in CASES.values() if case == one) for one in kept}
    kinds = {(HALF, name) for name in ("none", "samples", "chains", "average")} | {(STEPS, name) for name in last}
    assert whole.drawn == {(steps, name): expected(name, steps) for steps, name in kinds}

    first = runs_of(whole.folder, 1)
    lines = {name: journal(run) for name, run in first.items()}
    assert {name: len(found) for name, found in lines.items()} == dict.fromkeys(first, HALF)
    assert lines["samples"][:2] == lines["none"][:2]
    assert lines["samples"][2]["bound"] != lines["none"][2]["bound"], "the first late step has the same parameters"

    rows = read_rows(whole.folder / trials.VALIDATION_ROWS)
    assert len({(row.seed, row.steps, json.dumps(row.variant)) for row in rows}) == 2 * (len(CASES) + len(kept))
    trained = {tuple(one["settings"]): one["valid_nll"] for one in result["trials"] if one["rung"] == 1}
    for name in ("none", "chains", "average"):
        options = [word for text in CASES[name] for word in ("--set", text)]
        ended = call("train", tmp_path / name, "--steps", HALF, *COMMON, *options, "--json")
        assert ended.code == 0, ended.err
        alone = fmean(row["valid_nll"] for row in json.loads((tmp_path / name / "result.json").read_text()))
        exact = name in first and first[name].name == "seeds-0-1"
        assert exact == (name in ("chains", "average"))
        assert trained[tuple(CASES[name])] == (alone if exact else pytest.approx(alone, rel=1e-4))
        assert not exact or equal(first[name], tmp_path / name)
    assert journal(tmp_path / "chains")[:1] == journal(tmp_path / "none")[:1]
    assert journal(tmp_path / "chains")[1] != journal(tmp_path / "none")[1]

    folder = tmp_path / "killed"
    later = next(one for one in ("samples", "chains", "average", "none") if one in last)
    moments = [(HALF, "samples", 1), (HALF, "samples", 3), (HALF, "chains", 3), (STEPS, later, 5)]
    for moment in moments:
        child = in_child(functools.partial(killed, call, folder, moment))
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    ended = call(*command(folder), "--json")
    assert (ended.code, ended.err) == (0, "")
    assert {**json.loads(ended.out.splitlines()[-1]), "rows": 0} == {**result, "rows": 0}
    for name in (trials.VALIDATION_ROWS, ROWS):
        one, other = (sorted(map(repr, map(timeless, read_rows(at / name)))) for at in (folder, whole.folder))
        assert one == other
    for rung in (1, 2):
        resumed, whole_runs = runs_of(folder, rung), runs_of(whole.folder, rung)
        assert resumed.keys() == whole_runs.keys()
        assert all(equal(resumed[name], whole_runs[name]) for name in resumed)


def killed(call: Call, folder: Path, moment: tuple[int, str, int]) -> None:
    """A tuning that is killed before it draws for a step of a run."""
    draw = Update.batch_noise

    def stop(update: Update, features: int) -> Any:
        if (update.config.steps, kind(update.config), int(update.step_counter)) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return draw(update, features)

    pytest.MonkeyPatch().setattr(Update, "batch_noise", stop)
    call(*command(folder))


def test_late_settings_are_shown_as_the_command_line_takes_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A list of two values is one of replicas."""
    texts = ["late_chains=0.25:12", "late_sampler=0.75:pcd", "input_flips=0,0.2"]
    config = Config(data=STRIPES).with_settings(texts)
    spec = RunSpec(cell_of(config), config, tmp_path)
    GridDisplay(tmp_path / "rows.jsonl", [], json=False)(
        RunStarted(Counts(1, 1, 0), spec, 1, 1, 0, trained_before=False)
    )
    shown = capsys.readouterr().out
    assert "late_chains=0.25:12, late_sampler=0.75:pcd\n" in shown
    assert "input_flips=0.0,0.2, " in shown
