"""Data-parallel training: two processes give the results of one, write one run folder, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.command import TINY
from torch import Tensor, nn
from training.processes import Ended, launch
from training.runs import bars, engine, small

import softspin
from softspin.cli.app import run as command_line
from softspin.config import Config
from softspin.data import Dataset, with_condition
from softspin.errors import ConfigError, DataError, OutOfTimeError, PeerError, RunError
from softspin.model import build
from softspin.parallel import SINGLE, World, world
from softspin.samplers.gibbs import Gibbs
from softspin.training import checkpoint, journal
from softspin.training.engine import Engine
from softspin.training.run_files import read_result
from softspin.training.trainer import Trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]
CLOSE = 1e-6
"""Largest relative difference between one process and two."""
WHEEL = [*((i, (i + 1) % 5) for i in range(5)), *((i, 5) for i in range(5))]
"""A graph that is not bipartite."""
CASES: dict[str, dict[str, Any]] = {
    "pcd, 1 group, K = 1": {"sampler": "pcd", "groups": 1, "bits_per_group": 6, "layers": 2},
    "pcd, 2 groups, K = 5, dropout, flips": {
        "sampler": "pcd",
        "importance_samples": 5,
        "gradient": "dreg",
        "decoder_dropout": 0.25,
        "input_flips": 0.1,
    },
    "pa, 1 group, K = 5": {"sampler": "pa", "groups": 1, "bits_per_group": 6, "importance_samples": 5, "layers": 2},
    "pa, 2 groups, K = 1, two seeds": {"sampler": "pa", "seeds": (3, 4)},
    "pt, two betas, weight decay": {"sampler": "pt", "betas": (8.0, 20.0), "weight_decay": 0.1},
    "chains that do not divide, dvae++": {"sampler": "pcd", "chains": 6, "method": "dvae++-exp", "beta": 8.0},
    "given a class, pcd": {"sampler": "pcd", "chains": 24},
    "given a class, pa": {"sampler": "pa", "chains": 24},
    "a graph, the Gaussian integral": {"sampler": "pcd", "graph": WHEEL, "method": "dvae#-gauss_int"},
}


def gray() -> Dataset:
    """Gray images, which each update binarizes."""
    g = torch.Generator().manual_seed(5)
    bits = (torch.rand(8, 9, generator=g) < 0.5).to(torch.uint8)
    return Dataset("gray", torch.rand(30, 9, generator=g), bits, bits, (3, 3), "per-batch", "a test")


def train_all(folder: Path) -> None:
    for name, changes in CASES.items():
        data = with_condition(gray(), torch.arange(46) % 3) if name.startswith("given") else gray()
        Trainer(small(**changes), data, folder / name).train()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of all cases, trained by one process and by two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    train_all(one)
    assert launch(lambda: train_all(two), two / "ends") == [Ended(0, "", "")] * 2
    return one, two


def joined(state: Mapping[str, Tensor], prefix: str) -> Tensor:
    return torch.cat([value.double().reshape(-1) for name, value in sorted(state.items()) if name.startswith(prefix)])


def assert_same(one: Path, two: Path) -> None:
    """Parameters and statistics, Adam's moments, chains, metrics and test results are equal, but for rounding."""
    first, second = (checkpoint.load(folder, "last")[0] for folder in (one, two))
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].shape == second[name].shape
        if not first[name].is_floating_point() or name == "sampler.z":
            assert torch.equal(first[name], second[name]), name
    for part in ("model.", "adam.first", "adam.second", "log_z"):
        own, other = joined(first, part), joined(second, part)
        # The second moments are squares of gradients, which doubles the relative difference.
        assert (own - other).norm() <= (2 if part == "adam.second" else 1) * CLOSE * own.norm(), part
    lines = zip(journal.read(one), journal.read(two), strict=True)
    rows = zip(*([row.to_json() for row in read_result(folder) or []] for folder in (one, two)), strict=True)
    for own_line, other_line in (*lines, *rows):
        assert own_line.keys() == other_line.keys()
        for name in own_line.keys() - {"seconds", "training_seconds", "provenance", "start_commit", "config"}:
            # The KL is a difference of numbers as large as the bound, and as accurate as it.
            mine, theirs = own_line[name], other_line[name]
            if isinstance(mine, dict):  # log Z(c) of each value
                mine, theirs = ([each for many in one.values() for each in many] for one in (mine, theirs))
            is_number = isinstance(mine, float | list)
            assert mine == (pytest.approx(theirs, rel=CLOSE, abs=CLOSE) if is_number else theirs), name


@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one(both: tuple[Path, Path], name: str) -> None:
    one, two = (folder / name for folder in both)
    assert_same(one, two)
    kinds = [sorted(path.name.split("-")[0] for path in folder.iterdir()) for folder in (one, two)]
    assert kinds[0] == kinds[1]


def test_a_process_has_half_of_the_images_and_chains(tmp_path: Path) -> None:
    """Otherwise the test above would say little."""

    def count() -> None:
        for sampler, chains, own in (("pcd", 8, 4), ("pt", 8, 4), ("pa", 8, 8), ("pcd", 6, 6)):
            config = small(sampler=sampler, chains=chains)
            made = Engine(config, build(config, bars().spec), bars(), torch.device("cpu"), world=world())
            assert made.update.sampler_state.z.shape[1] == own
            assert made.state()["sampler.z"].shape[1] == chains
            assert made.update.next_batch()[0].shape[1] == config.batch_size // 2

    assert launch(count, tmp_path) == [Ended(0, "", "")] * 2


class Limit:
    """A callback that sets the deadline of its trainer to the past at a step."""

    def __init__(self, step: int) -> None:
        self.last = step
        self.trainer: Trainer | None = None

    def step(self, step: int) -> None:
        if step == self.last:
            assert self.trainer is not None
            self.trainer.deadline = 0

    def report(self, line: Mapping[str, Any]) -> None:
        pass


def train_until(step: int, config: Config, folder: Path, *, resume: bool = False) -> None:
    limit = Limit(step)
    limit.trainer = made = Trainer(config, gray(), folder, callback=limit)
    with pytest.raises(OutOfTimeError, match=f"out of time at step {step} of"):
        made.train(resume=resume)


@pytest.mark.parametrize("sampler", ["pcd", "pa"])
def test_a_run_resumes_on_another_number_of_processes(tmp_path: Path, sampler: str) -> None:
    """One process, then two, then one. The deadline is that of the first process alone, but both stop."""
    config = small(sampler=sampler, steps=12)
    Trainer(config, gray(), tmp_path / "whole").train()
    train_until(4, config, tmp_path / "parts")
    two = launch(lambda: train_until(7, config, tmp_path / "parts", resume=True), tmp_path)
    assert two == [Ended(0, "", "")] * 2
    Trainer(config, gray(), tmp_path / "parts").train(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_fit_returns_the_model_on_every_process_and_errors_are_raised_on_all(tmp_path: Path) -> None:
    """Weights of the user's networks differ at first: those of the first process count."""
    config = small(groups=1, bits_per_group=6, layers=0, steps=4)

    def fit() -> None:
        torch.manual_seed(world().rank)
        decoder = nn.Linear(6, 9)
        model = softspin.fit(config, bars(), tmp_path / "run", decoder=decoder, progress=False)
        flat = torch.cat([value.reshape(-1) for value in model.net.state_dict().values()])
        assert torch.equal(*world().gather(flat))
        assert [*(model.result or [])] == read_result(tmp_path / "run")
        with pytest.raises(RunError, match="already holds a run"):
            softspin.fit(config, bars(), tmp_path / "run", decoder=decoder, progress=False)
        softspin.fit(config, bars(), tmp_path / "run", decoder=decoder, resume=True, progress=False)

    assert launch(fit, tmp_path) == [Ended(0, "", "")] * 2


def test_other_data_on_one_process_is_an_error(tmp_path: Path) -> None:
    def train() -> None:
        with pytest.raises(RunError, match="the processes have different settings or data; give all of them the same"):
            Trainer(small(), bars() if world().leads else gray(), tmp_path / "run").train()

    assert launch(train, tmp_path) == [Ended(0, "", "")] * 2
    assert not (tmp_path / "run").exists()


class Stops:
    """A callback that fails."""

    def step(self, step: int) -> None:
        raise RuntimeError("the user's own error")

    def report(self, line: Mapping[str, Any]) -> None:
        pass


def test_an_error_of_one_process_ends_the_other(tmp_path: Path) -> None:
    def fit() -> None:
        expected, text = (RuntimeError, "own error") if world().leads else (PeerError, "another process of this run")
        with pytest.raises(expected, match=text):
            softspin.fit(small(), bars(), tmp_path / "run", callbacks=Stops(), progress=False)

    assert launch(fit, tmp_path) == [Ended(0, "", "")] * 2


def command(*words: object, at: Callable[[], None] | None = None, step: int = 0) -> Callable[[], None]:
    """The command line. The second process calls a function before a step."""

    def work() -> None:
        sys.argv = ["softspin", *map(str, words)]
        take = Engine.step

        def stepping(self: Engine) -> None:
            if at is not None and self.steps == step and not world().leads:
                at()
            take(self)

        Engine.step = stepping  # type: ignore[method-assign]
        command_line()

    return work


def fail() -> None:
    raise DataError("a disk of the second node is broken")


def test_one_line_tells_the_error_of_the_second_process(tmp_path: Path) -> None:
    first, second = launch(command("train", tmp_path / "run", *TINY, at=fail, step=1), tmp_path)
    assert (first.code, second.code) == (1, 1)
    assert first.err + second.err == "error: a disk of the second node is broken\n"
    assert second.out == ""


def kill(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code", "last_line"),
    [
        (signal.SIGINT, 130, None),
        (signal.SIGTERM, 75, "terminated at step 2 of 6, with a checkpoint; run the same command to resume\n"),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_to_one_process_stops_both_with_a_checkpoint(
    tmp_path: Path, number: int, code: int, last_line: str | None
) -> None:
    first, second = launch(command("train", tmp_path / "run", *TINY, at=kill(number), step=1), tmp_path)
    assert (first.code, second.code) == (code, code)
    assert (first.err, second.out, second.err) == (last_line or "", "", "")
    assert last_line or "stopped; the checkpoint is of step 2" in first.out
    assert checkpoint.load_meta(tmp_path / "run", "last")["step"] == 2


def test_a_killed_process_ends_the_other_with_one_line_and_torchrun_resumes(tmp_path: Path) -> None:
    first, second = launch(command("train", tmp_path / "run", *TINY, at=kill(signal.SIGKILL), step=4), tmp_path)
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    assert first.err == "error: another process of this run has ended; its own error says why\n"
    torchrun(tmp_path, "train", "--resume", "run")
    assert [line["step"] for line in journal.read(tmp_path / "run") if line["kind"] == "valid"] == [3, 6]


def torchrun(folder: Path, *words: str) -> None:
    """The launcher itself: it starts Python twice, which takes longer than all else."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(softspin.__file__).parents[1])}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "softspin", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [done.stdout.count(text) for text in ("2 processes", "from step 3", "test NLL", "written: ")] == [1] * 4


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train", "run", *TINY, "--set", "batch_size=7"], "a batch of 7 images cannot be divided among 2 processes; "),
        (["train", "run", *TINY, "--set", "compile=on"], "compile = on is not possible with 2 processes; use "),
        (["train", "--resume", "nowhere"], "no directory nowhere; "),
        (["info", "run"], "softspin info runs in one process; torchrun is for softspin train"),
    ],
)
def test_mistakes_are_told_once(words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ends = launch(command(*words), tmp_path)
    assert [end.code for end in ends] == [1, 1]
    told = "".join(end.err for end in ends)
    assert told.startswith(f"error: {line}")
    assert told.count("\n") == 1


def test_the_error_of_a_batch_names_sizes_that_fit() -> None:
    config = small(batch_size=10)
    for size, right in ((3, "9 or 12"), (4, "8 or 12"), (11, "11")):
        with pytest.raises(ConfigError, match=f"use batch_size = {right}, or another number of processes"):
            Engine(config, build(config, bars().spec), bars(), torch.device("cpu"), world=World(0, size))


def test_batch_norm_of_torch_is_rejected() -> None:
    config = small(groups=1, bits_per_group=6)
    nets = nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 6))
    model = softspin.api.with_nets(config, bars().spec, [nets], None)
    with pytest.raises(ConfigError, match=r"'encoder.0.net.1' is torch's BatchNorm1d, .*; use softspin.nets.layers"):
        Engine(config, model, bars(), torch.device("cpu"), world=World(0, 2))


class Derived(Gibbs):
    """A sampler whose step ignores the numbers of its chains."""

    def step(self, state: Any, boltzmann: Any, sweeps: int) -> Any:
        return super().step(state, boltzmann, sweeps)


def test_chains_of_a_derived_sampler_are_not_shared() -> None:
    config = small(sampler="custom")
    for sampler, chains in ((Gibbs(), 4), (Derived(), 8)):
        made = Engine(config, build(config, bars().spec), bars(), torch.device("cpu"), sampler, World(1, 2))
        assert made.update.sampler_state.z.shape[1] == chains
        assert sampler.first_chain == (0 if chains == 8 else 4)


def test_one_process_is_not_touched() -> None:
    """No tensor is copied, and the sampler keeps its chains."""
    x = torch.ones(3)
    assert world() is SINGLE
    assert SINGLE.mean(x)[0] is x
    assert SINGLE.any(True, False) == (True, False)
    sampler = Gibbs()
    made = engine(small())
    assert sampler.first_chain == made.update.sampler.first_chain == 0
    noise = torch.ones(1, 4, 2)
    assert made.update.shards.own_noise(noise) is noise
