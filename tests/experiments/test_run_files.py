"""Files of runs that are sent between machines: a receiver holds a complete checkpoint at any time."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from softspin import files
from softspin.errors import RunError
from softspin.experiments.launchers import run_files
from softspin.experiments.launchers.run_files import ChangedFiles, take_token, write_files, write_token
from softspin.training import checkpoint
from softspin.training.process import LOCK


def save(folder: Path, step: int) -> None:
    for name in ("best", "last"):
        checkpoint.save(folder, name, {"w": torch.full((3,), float(step))}, {"step": step})


def steps(folder: Path) -> list[int]:
    """Steps of both checkpoints, which are read and checked as a whole."""
    return [int(checkpoint.load(folder, name)[1]["step"]) for name in ("best", "last")]


def test_files_are_sent_after_each_checkpoint(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "plots").mkdir(parents=True)
    changed = ChangedFiles(here)
    (here / "run.json").write_text("{}")
    assert changed.read() == {}, "there is no checkpoint yet"
    save(here, 1)
    (here / LOCK).touch()
    (here / f"{LOCK}.claim").touch()
    (here / ".result.json.part").write_text("temporary")
    (here / "plots" / "a.png").write_bytes(b"a picture")
    sent = changed.read()
    assert list(sent)[-2:] == ["best.json", "last.json"]
    assert set(sent) - {name for name in sent if name.endswith(".safetensors")} == {
        "run.json", "plots/a.png", "best.json", "last.json",
    }  # fmt: skip
    write_files(there, sent)
    assert steps(there) == [1, 1]
    assert (there / "plots" / "a.png").read_bytes() == b"a picture"

    (here / "journal.jsonl").write_text("a line\n")
    assert changed.read() == {}
    save(here, 2)
    sent = changed.read()
    assert "run.json" not in sent
    assert "journal.jsonl" in sent
    write_files(there, sent)
    assert steps(there) == [2, 2]
    assert len(list(there.glob("*.safetensors"))) == 2, "those of the first checkpoint are deleted"

    (here / "result.json").write_text("[]")
    assert changed.read(final=True) == {"result.json": b"[]"}
    assert set(ChangedFiles(there).read(final=True)) == set(ChangedFiles(here).read(final=True)) - {"result.json"}


def test_a_full_disk_leaves_a_complete_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever writing ends; `best` may then be newer than `last`, as after a kill during training."""
    here, there = tmp_path / "here", tmp_path / "there"
    save(here, 1)
    changed = ChangedFiles(here)
    first = changed.read()
    save(here, 2)
    second = changed.read()
    seen = []
    for number in range(len(second)):
        write_files(there, first)
        space = iter(range(number))

        def write(path: Path, content: bytes, *, parents: bool, space: Iterator[int] = space) -> None:
            if next(space, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            path.write_bytes(content)

        with monkeypatch.context() as patch:
            patch.setattr(files, "write_bytes", write)
            with pytest.raises(RunError, match="there cannot be written: No space left on device"):
                write_files(there, second)
        seen.append(steps(there))
        shutil.rmtree(there)
    assert seen == [[1, 1], [1, 1], [1, 1], [2, 1]]


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_sent_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    changed = ChangedFiles(tmp_path)
    original = run_files._tensors
    read: list[bytes] = []

    def replaced_meanwhile(manifest: bytes) -> str:
        if not read:
            read.append(manifest)
            save(tmp_path, 2)
        return original(manifest)

    monkeypatch.setattr(run_files, "_tensors", replaced_meanwhile)
    assert changed.read() == {}
    write_files(tmp_path / "there", changed.read())
    assert steps(tmp_path / "there") == [2, 2]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"folder .*file cannot be written: "):
        write_files(tmp_path / "file", {"run.json": b"{}"})
    with pytest.raises(RunError, match=r"folder .*file cannot be written: "):
        write_token(tmp_path / "file")


def test_a_token_shows_whether_a_folder_is_the_same(tmp_path: Path) -> None:
    token = write_token(tmp_path / "run")
    assert token.is_absolute()
    assert not take_token(tmp_path / "another" / token.name)
    assert take_token(token)
    assert not take_token(token), "it is deleted"
    old = write_token(tmp_path / "run")
    write_token(tmp_path / "run")
    assert not old.exists(), "what a killed process left is deleted"


def test_a_task_does_not_import_torch() -> None:
    """It only passes messages, in a process of its own for each run."""
    code = "import sys, softspin.experiments.launchers.ray_task; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
