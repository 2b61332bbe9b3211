"""`softspin train` and `softspin demo`: options, output, interruption, resume."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli.command import TINY, Call

from softspin.cli import demo as demo_command
from softspin.cli.runs import free_folder
from softspin.cli.settings import make_config
from softspin.config import Config
from softspin.project import install_hint
from softspin.timing import probes
from softspin.training import checkpoint, progress
from softspin.training.callbacks import RunStart
from softspin.training.display import Display, start_lines
from softspin.training.process import STOPPING
from softspin.training.run_files import read_result


def softspin(*words: object) -> list[str]:
    return [sys.executable, "-m", "softspin", *map(str, words)]


@pytest.mark.pictures
def test_the_last_lines_are_the_result(call: Call, tmp_path: Path) -> None:
    ended = call("train", tmp_path / "run", *TINY, "--beta", "20,30")
    assert ended.code == 0
    *_, first, second, written = ended.out.splitlines()
    for line, beta in ((first, 20), (second, 30)):
        best = r"( \(lowest validation NLL\))?"
        pattern = rf"seed 0, beta {beta}{best}: test NLL \d+\.\d\d \+- \d\.\d\d, log Z = .* independent pixels: 6\.24"
        assert re.fullmatch(rf"{pattern}(; WARNING: .*)?", line), line
    assert ("lowest" in first) != ("lowest" in second)
    assert written.startswith(f"written: {tmp_path / 'run'}/ with result.json, samples.png")
    assert min(path.stat().st_size for path in (tmp_path / "run").glob("*.png")) > 1000
    assert "profile quick, 6 steps: " in ended.out
    assert "\x1b" not in ended.out


def test_json_output_is_pure_and_plots_change_no_result(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_pictures = [json.loads(line) for line in call("train", tmp_path / "a", *TINY, "--json").out.splitlines()]
    assert [line["kind"] for line in with_pictures] == [
        "start",
        *["train"] * 3,
        "valid",
        *["train"] * 3,
        "valid",
        "result",
    ]
    assert with_pictures[0]["config"]["steps"] == 6
    assert len(with_pictures[-1]["written"]) == 5
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ended = call("train", tmp_path / "b", *TINY, "--json")
    assert ended.err == f"no picture: pictures need the package matplotlib; {install_hint('plot')}\n"
    without = [json.loads(line) for line in ended.out.splitlines()]
    assert len(without[-1]["written"]) == 1
    for one, other in zip(with_pictures[1:-1], without[1:-1], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert with_pictures[-1]["rows"][0]["nll"] == without[-1]["rows"][0]["nll"]


def test_the_estimated_time_is_printed(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = call("train", tmp_path / "a", *TINY).out.splitlines()
    (time,) = (line for line in lines if line.startswith("time "))
    assert re.fullmatch(r"time    about \d+ s, \d+ s to \d+ s, on .+", time)
    assert not (tmp_path / "cache").exists()  # a run this short is not worth a measurement
    monkeypatch.setattr("softspin.api.LONG_SECONDS", 0.0)
    monkeypatch.setattr(probes, "ROUNDS", 1)
    monkeypatch.setattr(probes, "SECONDS", 0.0)
    start = json.loads(call("train", tmp_path / "b", *TINY, "--json").out.splitlines()[0])
    assert start["time"].keys() == {"seconds", "low", "high", "machine"}
    assert "thread" in start["time"]["machine"]
    assert (tmp_path / "cache").exists()


def test_parts_that_the_estimate_does_not_cover_are_timed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(progress, "WARM_UP_STEPS", 2)
    lines = call("train", tmp_path / "run", *TINY, "--sampler", "pt").out.splitlines()
    (time,) = (line for line in lines if line.startswith("time "))
    assert re.fullmatch(r"time    about \d+ s left, estimated from 1 of the steps", time)


def test_settings_reach_the_config(tmp_path: Path) -> None:
    config = make_config({"data": "digits", "beta": "20,30", "seeds": "0-2"}, ["warmup=0.1"], None)
    assert (config.betas, config.beta, config.seeds, config.warmup) == ((20, 30), None, (0, 1, 2), 0.1)
    config = make_config({"data": "mnist", "beta": "20"}, [], None)
    assert (config.beta, config.betas) == (20, ())
    assert make_config({"data": "digits"}, [], None, "paper") == Config(data="digits")
    file = tmp_path / "c.toml"
    file.write_text('method = "dvae++-exp"\nsteps = 7\nbetas = [5, 6]\n')
    config = make_config({"steps": "9", "beta": "8"}, ["chains=3"], file)
    assert (config.method, config.steps, config.beta, config.betas, config.chains) == ("dvae++-exp", 9, 8, (), 3)
    assert config.given == {"method", "steps", "betas", "beta", "chains"}


@pytest.mark.parametrize(
    ("text", "words", "profile"),
    [
        ("", ["--data", "bars-and-stripes-3x3"], "quick"),
        ('data = "bars-and-stripes-3x3"\n', [], "quick"),
        ('data = "bars-and-stripes-3x3"\nprofile = "paper"\n', [], "paper"),
        ('data = "bars-and-stripes-3x3"\nprofile = "paper"\n', ["--profile", "quick"], "quick"),
    ],
)
def test_one_rule_for_the_command_line_and_config_files(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: list[str], profile: str
) -> None:
    """The number of steps is printed, and the same whether the data are given by an option or in a file."""
    file = tmp_path / "c.toml"
    file.write_text(text)
    seen: list[RunStart] = []

    def stop(shown: object, run: RunStart) -> None:
        seen.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(Display, "start", stop)
    monkeypatch.setattr("softspin.api._estimate", lambda *_: None)
    assert call("train", tmp_path / "run", "--config", file, *words).code == 130
    (run,) = seen
    assert (run.profile, run.config.steps) == (profile, 2000 if profile == "quick" else 1_000_000)
    (line,) = (line for line in start_lines(run) if line.startswith("profile"))
    steps = "2,000 steps: steps=2000 chains=200" if profile == "quick" else "1,000,000 steps (the published settings)"
    assert line.startswith(f"profile {profile}, {steps}")


@pytest.mark.parametrize("how", ["--data", "--set", "--config"])
def test_own_data_are_found_from_any_directory(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "c.toml"
    file.write_text('data = "own.npy"\n')
    config = make_config(
        {"data": "own.npy" if how == "--data" else None}, ["data=own.npy"] if how == "--set" else [],
        file if how == "--config" else None,
    )  # fmt: skip
    assert config.data == str(tmp_path / "own.npy")


def test_runs_without_a_name_get_folders_of_their_own(tmp_path: Path) -> None:
    """Threads that choose at the same moment: without an atomic choice, several would get the same folder."""
    together = threading.Barrier(8)

    def choose(held: contextlib.ExitStack) -> Path:
        together.wait()
        return held.enter_context(free_folder(tmp_path / "runs" / "a"))

    for _ in range(20):
        with contextlib.ExitStack() as held, ThreadPoolExecutor(8) as pool:
            found = list(pool.map(choose, [held] * 8))
            assert sorted(found) == sorted(
                tmp_path / "runs" / f"a{end}" for end in ("", *(f"-{n}" for n in range(2, 9)))
            )
        assert list((tmp_path / "runs").iterdir()) == []


def test_a_mistake_leaves_no_folder(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("train", "--data", "missing.npy").code == 1
    assert list(tmp_path.rglob("*missing*")) == []
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").touch()
    ended = call("train", *TINY)
    assert (ended.code, ended.err) == (
        1,
        "error: runs cannot be written: File exists; give the run directory by name, or work in another folder\n",
    )


def test_train_without_arguments_in_an_empty_home(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}
    fast = ["--set", "validation_samples=2", "--set", "test_samples=2", "--set", "test_temperatures=20"]
    words = softspin("train", "--steps", 2, *fast, "--set", "evaluate_every=2", "--set", "bits_per_group=30")
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.search(r"test NLL \d+\.\d\d \+- \d+\.\d\d, log Z in \[", done.stdout)
    assert (tmp_path / "runs" / "digits-dvae-sharp-power-2x30_bits_2x200" / "samples.png").exists()


def test_ctrl_c_leaves_a_run_that_resumes(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    words = softspin("train", folder, *TINY, "--steps", 10**6, "--set", "evaluate_every=5")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        wait_for(folder / "journal.jsonl")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, f"{STOPPING}\n")
    assert out.endswith(f"resume with: softspin train --resume '{folder}'\n")
    about = call("info", folder, "--json").json
    assert 0 < about["checkpoint_step"] < 10**6
    with subprocess.Popen(
        [*softspin("train", "--resume", folder), "--json"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        start = json.loads(child.stdout.readline())
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        *_, last = child.communicate(timeout=60)[0].splitlines()
    assert start["step"] == about["checkpoint_step"]
    assert child.returncode == 130
    assert json.loads(last)["step"] > start["step"]


def wait_for(path: Path) -> None:
    for _ in range(1200):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {path}")


def test_resume_needs_only_the_directory(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert call("train", folder, *TINY).code == 0
    (folder / "result.json").unlink()
    ended = call("train", "--resume", folder)
    assert ended.code == 0
    assert "from step 6" in ended.out
    assert (folder / "result.json").exists()
    refused = call("train", "--resume", folder, "--set", "width=9")
    assert refused.code == 1
    assert refused.err.startswith("error: width = 9 cannot be set in a resumed run, which has width = 8")
    for words in (["--profile", "paper"], ["--config", "c.toml"], ["--epochs", "2"], ["--init-from", folder]):
        refused = call("train", "--resume", folder, *words)
        assert refused.code == 2
        assert str(words[0]) in refused.err


def test_the_demo(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [f"{key}={value}" for key, value in {
        "data": "bars-and-stripes-3x3", "width": 8, "bits_per_group": 6, "chains": 20, "test_samples": 9,
    }.items()]  # fmt: skip
    monkeypatch.setattr(demo_command, "DEMO", demo_command.DEMO.with_settings(small))
    monkeypatch.chdir(tmp_path)
    Path("runs/demo").mkdir(parents=True)  # each run has its own directory
    ended = call("demo", "--steps", 4)
    assert ended.code == 0
    assert "Look at runs/demo-2/samples.png" in ended.out
    assert "runs/demo-2/playground.html in a browser" in ended.out
    assert "window.softspin" in Path("runs/demo-2/playground.html").read_text(encoding="utf-8")
    assert Path("runs/demo-2/softbits.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_plot_does_not_end_a_run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a plot is printed once; the other plots and the run continue."""

    def fails(*_: object, **__: object) -> Path:
        raise ValueError("image too large")

    monkeypatch.setattr("softspin.evaluation.pictures.samples", fails)
    ended = call("train", tmp_path / "run", *TINY)
    assert (ended.code, ended.err) == (0, "no picture: image too large\n")
    assert ended.out.splitlines()[-1].endswith("with result.json, reconstructions.png, curves.png, couplings.png")


def test_sigterm_saves_a_checkpoint_and_exits_with_75(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sends it before a time limit. There is a checkpoint every third step, and one at the signal."""
    folder, step = tmp_path / "run", Display.step

    def terminated(self: Display, number: int) -> None:
        step(self, number)
        if number == 4:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Display, "step", terminated)
        ended = call("train", folder, *TINY)
    assert ended.code == 75
    assert ended.out.splitlines()[-2:] == [
        "terminated at step 4 of 6, with a checkpoint",
        f"resume with: softspin train --resume {folder}",
    ]
    assert checkpoint.load_meta(folder, "last")["step"] == 4
    assert call("train", "--resume", folder).code == 0
    assert call("train", tmp_path / "whole", *TINY).code == 0
    one, other = (read_result(path) or [] for path in (folder, tmp_path / "whole"))
    assert [row.nll for row in one] == [row.nll for row in other]
