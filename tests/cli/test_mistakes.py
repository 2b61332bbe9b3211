"""User mistakes on the command line: a one-line error with a suggestion, and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli.command import TINY, Call

from softspin.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "dvae#-pow"], "unknown method 'dvae#-pow'; did you mean 'dvae#-power'?"),
        (["--structure", "2-nonlinaer"], "unknown structure '2-nonlinaer'; did you mean '2-nonlinear'?"),
        (["--data", "mnits"], "unknown data set 'mnits'; did you mean 'mnist'?"),
        (["--data", "no/file.npy"], "there is no file"),
        (["--method", "dvae++"], "unknown method 'dvae++'; did you mean one of dvae++-exp, dvae++-power?"),
        (["--profile", "quik"], "unknown profile 'quik'; did you mean 'quick'?"),
        (["--set", "lr=0.1"], "unknown setting 'lr'; here it is called 'learning_rate'"),
        (["--set", "recipe=softspin-1"], "unknown setting 'recipe'; a recipe is a profile: set profile = 'soft"),
        (["--set", "chainz=3"], "unknown setting 'chainz'; did you mean 'chains'?"),
        (["--set", "chains"], "setting 'chains' has no value; write chains=VALUE"),
        (["--set", "=5"], "a setting has no name; write KEY=VALUE, such as width=100"),
        (["--steps", "0"], "steps = 0 is not possible; it must be an integer from 1"),
        (["--steps", "many"], "steps = 'many' is not possible"),
        (["--sampler", "gibbs"], "unknown sampler 'gibbs'; known: pa, pcd, pt"),
        (["--beta", "20,x"], "betas = [20, 'x'] is not possible"),
        (["--seeds", "4-0"], "seeds = '4-0' is not possible"),
        (["--device", "gpu"], "device = 'gpu' is not possible; it must be auto, cpu, cuda or cuda:N"),
        (["--steps", "3", "--set", "steps=4"], "--steps 3 and --set steps=4 contradict each other; give one of them"),
        (["--beta", "3", "--set", "betas=4,5"], "--beta 3 and --set betas=4,5 contradict each other"),
        (["--config", "no.toml"], "no config file no.toml"),
    ],
)
def test_wrong_settings(call: Call, tmp_path: Path, words: list[str], message: str) -> None:
    ended = call("train", tmp_path / "run", *words)
    wrong_file = words[0] in ("--data", "--config")  # the options themselves are right
    assert (ended.code, ended.out) == (1 if wrong_file else 2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f"error: {message}"), ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["train", "tune", "sweep"])
def test_a_recipe_is_chosen_by_profile(
    call: Call, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`train --recipe` is an old option without a value, which would take the name for that of the run directory."""
    monkeypatch.chdir(tmp_path)
    ended = call(command, "--recipe", "softspin-1", *(["beta=1,2"] if command != "train" else []))
    assert (ended.code, ended.out) == (2, "")
    assert "--recipe" in ended.err
    assert "--profile" in ended.err
    assert not list(tmp_path.iterdir())


def test_wrong_paths(call: Call, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    for words, message in (
        (["train", tiny], f"{tiny} already holds a run; resume with: softspin train --resume {tiny}"),
        (["train", file], f"{file} is a file; a run needs a directory"),
        (["train", file / "run", *TINY], f"folder {file / 'run'} cannot be written"),
        (["train", "--resume", tmp_path], f"no run in {tmp_path}"),
        (["info", tiny.with_name("tinny")], f"no directory {tiny.with_name('tinny')}; did you mean {tiny}?"),
        (["evaluate", "nowhere"], "no directory nowhere; train one with: softspin train"),
        (["evaluate", tiny, "--split", "tset"], "unknown split 'tset'; did you mean 'test'?"),
        (["logz", tiny, "--which", "first"], "'first' is not a checkpoint; it must be best or last"),
        (["sample", tiny, "--out", "a.jpg"], "--out a.jpg ends in '.jpg'; it must be .png or .npy"),
        (["sample", tiny, "--out", "no/a.png"], "--out no/a.png: the directory no does not exist"),
        (["sample", tiny, "--replica", 2, "--out", "a.npy"], "no replica 2; this model has 2, counted from 0"),
        (["encode", tiny, "--out", tmp_path], f"--out {tmp_path} has no ending"),
        (
            ["evaluate", tiny, "--exact", "--chains", 3],
            "--exact and --chains exclude each other; a sum over all states",
        ),
        (
            ["data", "verify", "digits", "--folder", "x"],
            "--folder is for mnist and omniglot; 'digits' is not looked for",
        ),
        (["data", "fetch", "omniglott"], "unknown data set 'omniglott'; did you mean 'omniglot'?"),
    ):
        ended = call(*words)
        assert ended.code == 1, ended
        assert ended.err.count("\n") == 1
        assert ended.err.startswith(f"error: {message}"), ended.err


def test_a_full_disk_keeps_the_old_array(
    call: Call, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bits.npy"
    out.write_text("before")

    def full(*_: object) -> None:
        raise OSError("7 requested and 0 written")  # what numpy says

    monkeypatch.setattr(np, "save", full)
    ended = call("encode", tiny, "--out", out)
    assert (ended.code, ended.err) == (1, f"error: --out {out} cannot be written: 7 requested and 0 written\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("bits.npy", "before")]


def test_images_of_another_size(call: Call, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.eye(20))
    ended = call("encode", tiny, "--data", tmp_path / "own.npy", "--out", tmp_path / "b.npy")
    assert ended.code == 1
    assert "have 20 pixels, the model's 9" in ended.err


def test_the_input_data_are_not_overwritten(call: Call, tiny: Path, tmp_path: Path) -> None:
    own, run = tmp_path / "own.npy", tmp_path / "run"
    np.save(own, np.eye(20, 9))
    before = own.read_bytes()
    assert call("train", run, *TINY, "--data", own).code == 0
    for words in (["encode", run], ["reconstruct", run], ["sample", run], ["encode", tiny, "--data", own]):
        ended = call(*words, "--out", own)
        assert (ended.code, ended.err) == (1, f"error: --out {own} is the input data file; choose another name\n")
        assert own.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory(call: Call, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    ended = call("train", tmp_path / "run", *TINY)
    assert ended.code == 1
    assert ended.err == f"error: folder {tmp_path / 'run'} cannot be written: Permission denied\n"


def test_wrong_usage_exits_with_2_and_a_suggestion(call: Call) -> None:
    for words, hint in (
        (["trian"], "train"),
        (["train", "--stpes", "3"], "--steps"),
        (["data", "fetsh"], "fetch"),
        (["sample"], "RUN"),
        (["sample", "x", "-n", "0"], "-n"),
        (["train", "--resume"], "--resume"),
        (["train", "--lr", "0.1"], "--learning-rate"),
        (["train", "--minutes", "0"], "--minutes"),
        (["train", "--epochs", "2", "--steps", "3"], "--epochs"),
        (["runs", "--sort", "nlll"], "nll"),
    ):
        ended = call(*words)
        assert ended.code == 2
        assert hint in ended.err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("Unable to allocate 9 GiB"), "out of memory (Unable to allocate 9 GiB); use fewer samples"),
        (RuntimeError("can't allocate\nmemory"), "out of memory (can't allocate memory); use fewer samples"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied\n"),
        (ImportError("Numba needs NumPy 2.2"), "a package cannot be imported: Numba needs NumPy 2.2; reinstall it, in"),
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device\n"),
    ],
)
def test_a_full_memory_or_disk_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("softspin.cli.data.datasets.available", fails)
    ended = call("data", "list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1


def test_a_bug_keeps_its_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softspin.cli.data.datasets.available", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call("data", "list")


def test_a_warning_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def warns() -> list[str]:
        warnings.warn("the population\ncollapsed", UserWarning, stacklevel=1)
        return []

    monkeypatch.setattr("softspin.cli.data.datasets.available", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = call("data", "list", "--json")
    assert (ended.code, ended.out, ended.err) == (0, "[]\n", "warning: the population collapsed\n")


@pytest.mark.parametrize("where", ["softspin.cli.app.run", "softspin.cli.use_compiled_folder"])
def test_ctrl_c_at_the_start(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_help_groups_the_commands(call: Call) -> None:
    text = call("--help").out
    titles = ("─ Train", "─ Inspect a run", "─ Use a run", "─ Data")
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert "Exit codes" in text
