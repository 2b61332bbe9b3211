"""Parts of launchers without training: number of workers, places, MPS, remaining time, choice by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from experiments.tables import EXP, POWER, SETTINGS, write_table

from softspin.config import Config
from softspin.errors import ConfigError, UnknownNameError
from softspin.experiments.cells import read_cells
from softspin.experiments.launchers import Progress
from softspin.experiments.launchers.autotune import WINDOW_SECONDS, Autotuner
from softspin.experiments.launchers.choice import make_launcher
from softspin.experiments.launchers.machine import Machine
from softspin.experiments.launchers.mps import CONTROL, Mps
from softspin.experiments.launchers.this_process import ThisProcess
from softspin.experiments.reporting import RemainingTime, step_seconds
from softspin.experiments.runs import RunSpec, new_run


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tuned(throughput: Callable[[int], float], most: int) -> tuple[int, list[int]]:
    """Number of workers found for a curve of throughput, and the numbers tried, in a simulation."""
    clock, work, tried = Clock(), 0.0, [1]
    tuner = Autotuner(most, clock)
    for _ in range(1000):
        busy = tuner.workers
        clock.now += 1.0
        work += throughput(busy)
        for number in range(busy):
            tuner.see(f"run {number}", busy, work)
        if tuner.workers != busy:
            tried.append(tuner.workers)
            tuner.disturbed()  # a run starts
    return tuner.workers, tried


def test_workers_are_added_while_the_throughput_grows() -> None:
    assert tuned(lambda n: min(n, 4), most=16) == (4, [1, 2, 4, 8, 4])
    assert tuned(lambda n: 1 + 0.01 * n, most=8) == (1, [1, 2, 1])
    assert tuned(float, most=6) == (6, [1, 2, 4, 6])
    assert tuned(lambda n: {1: 1.0, 2: 1.8, 3: 1.5}[n], most=3) == (2, [1, 2, 3, 2])
    assert tuned(float, most=1) == (1, [1])


def test_a_window_without_all_workers_is_not_measured() -> None:
    clock = Clock()
    tuner = Autotuner(4, clock)
    for _ in range(100):
        clock.now += WINDOW_SECONDS / 2
        tuner.see("run", 1, clock.now)
        tuner.disturbed()
    assert tuner.workers == 1, "every window was interrupted"
    for _ in range(3):
        clock.now += WINDOW_SECONDS
        tuner.see("run", 1, clock.now)
    assert tuner.workers == 2
    for _ in range(100):
        clock.now += WINDOW_SECONDS
        tuner.see("run", 1, clock.now)
    assert tuner.workers == 2, "the second worker has not reported"


def test_cores_and_gpus_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cpu = Machine((), (0, 1, 2, 5))
    bound = {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true"}
    assert cpu.places(2) == [{**bound, "OMP_PLACES": "{0},{1}"}, {**bound, "OMP_PLACES": "{2},{5}"}]
    one = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
    assert cpu.places(4) == [one] * 4
    assert cpu.places(9) == [one] * 9
    assert cpu.most_workers(None) == 4
    gpus = Machine(("3", "7"), (0,))
    assert [place["CUDA_VISIBLE_DEVICES"] for place in gpus.places(3)] == ["3", "7", "3"]
    assert gpus.most_workers(0.5) == 4
    assert gpus.most_workers(0.3) == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cpu.places(2) == [one] * 2
    with pytest.raises(ConfigError, match="needs a GPU"):
        cpu.most_workers(0.5)
    with pytest.raises(ConfigError, match=r"gpus_per_run = 2 is not in \(0, 1\]"):
        gpus.most_workers(2)


def test_launchers_by_name() -> None:
    assert isinstance(make_launcher("local", 1), ThisProcess)
    with pytest.raises(UnknownNameError, match="unknown launcher 'lokal'; did you mean 'local'"):
        make_launcher("lokal")
    for wrong in ("0", "-1", "many", 0):
        with pytest.raises(ConfigError, match="neither a positive number nor 'auto'"):
            make_launcher("local", wrong)
    with pytest.raises(ConfigError, match="an address needs the launcher ray"):
        make_launcher("local", address="127.0.0.1:1")


def spec_of(tmp_path: Path, cell: str, steps: int) -> RunSpec:
    (found,) = read_cells(write_table(tmp_path / "t.toml", cell))
    return new_run(found, found.config(steps=steps, settings=SETTINGS), [0], tmp_path / cell.replace("/", "-"))


def test_the_remaining_time_weighs_steps_by_their_cost(tmp_path: Path) -> None:
    cheap, dear = spec_of(tmp_path, POWER, 100), spec_of(tmp_path, EXP, 100)
    weights = {cheap.config.method: 1.0, dear.config.method: 9.0}
    clock = Clock()
    left = RemainingTime([cheap, dear], lambda config: weights[config.method], clock)
    assert left.seconds() is None
    left.see(Progress(cheap, 10))
    assert left.seconds() is None, "the time before the first progress does not count"
    clock.now = 20.0
    left.see(Progress(cheap, 50))  # 40 units of work in 20 s; 50 + 900 are left
    assert left.seconds() == pytest.approx(950 / 2)
    left.end(cheap)
    assert left.seconds() == pytest.approx(900 / (90 / 20))
    left.see(Progress(dear, 100))
    assert left.seconds() == 0
    left.add(dear)  # its worker died before the first checkpoint
    assert left.seconds() == pytest.approx(900 / (990 / 20))


def test_the_cost_of_a_step_comes_from_the_time_model() -> None:
    paper = Config(data="mnist", structure="1-nonlinear", device="cpu")
    larger = paper.replace(structure="4-nonlinear", importance_samples=25)
    assert step_seconds(larger) > 3 * step_seconds(paper) > 0
    assert step_seconds(paper.replace(sampler="pt")) == 1e-3, "not covered by the model"


FAKE_CONTROL = """#!/bin/sh
control="$CUDA_MPS_PIPE_DIRECTORY/control"
if [ "$1" = -d ]; then touch "$control"; echo started >> "$MPS_TEST_LOG"; exit; fi
read command
echo "$command" >> "$MPS_TEST_LOG"
test -e "$control" || exit 1
[ "$command" = quit ] && rm "$control"
exit 0
"""


@pytest.fixture
def mps_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the control program of MPS, which logs its commands."""
    tool = tmp_path / "bin" / CONTROL
    tool.parent.mkdir()
    tool.write_text(FAKE_CONTROL)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MPS_TEST_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "users"))
    return tmp_path / "log"


def test_mps_is_started_and_stopped(mps_log: Path, tmp_path: Path) -> None:
    mps = Mps()
    assert not mps_log.exists(), "it starts on first use"
    pipe = Path(mps.environment()["CUDA_MPS_PIPE_DIRECTORY"])
    assert (pipe / "control").exists()
    assert mps.environment() == mps.environment()
    mps.close()
    assert mps_log.read_text().split() == ["started", "quit"]
    assert not pipe.parent.exists()


def test_mps_of_someone_else_is_used_and_left_alone(mps_log: Path, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "control").touch()
    mps = Mps()
    assert mps.environment() == {}
    mps.close()
    assert mps_log.read_text().split() == ["get_server_list"]


def test_without_mps_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    mps = Mps()
    assert mps.environment() == {}
    mps.close()


def test_mps_is_stopped_if_the_grid_is_killed(mps_log: Path) -> None:
    code = "from softspin.experiments.launchers.mps import Mps; print(Mps().environment(), flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as grid:
        assert grid.stdout is not None
        folder = Path(eval(grid.stdout.readline())["CUDA_MPS_PIPE_DIRECTORY"]).parent
        assert folder.exists()
        grid.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert mps_log.read_text().split() == ["started", "quit"]
