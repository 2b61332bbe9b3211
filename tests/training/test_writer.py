"""Checkpoints are written beside training: copies of the tensors, in order, and no error is lost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training.runs import small, trainer

from softspin.errors import CheckpointError
from softspin.training import checkpoint, journal
from softspin.training.writer import CheckpointWriter

SAVE = checkpoint.save


class Gate:
    """Replaces `checkpoint.save`: waits until it is opened, then writes, or raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
        self.opened, self.error = threading.Event(), error
        self.names: list[str] = []
        monkeypatch.setattr(checkpoint, "save", self.save)

    def save(self, folder: Any, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], **how: Any) -> None:
        assert self.opened.wait(timeout=60)
        assert threading.current_thread() is not threading.main_thread()
        self.names.append(name)
        if self.error is not None:
            raise self.error
        SAVE(folder, name, tensors, meta, **how)


class Opens:
    """A callback that opens a gate at a step, and notes at which steps nothing was written yet."""

    def __init__(self, gate: Gate, at: int) -> None:
        self.gate, self.at, self.waited = gate, at, [0]

    def step(self, step: int) -> None:
        if not self.gate.names:
            self.waited.append(step)
        if step == self.at:
            self.gate.opened.set()

    def report(self, line: Mapping[str, Any]) -> None: ...


def test_a_checkpoint_holds_the_values_at_its_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors and meta data may change before the thread writes them."""
    gate = Gate(monkeypatch)
    tensors, meta = {"x": torch.zeros(3)}, {"best": [{"step": 1}]}
    with CheckpointWriter(tmp_path) as writer:
        writer.save({"last": tensors}, meta)
        tensors["x"].fill_(7)
        meta["best"][0] = {"step": 2}
        gate.opened.set()
    stored, stored_meta = checkpoint.load(tmp_path, "last")
    assert stored["x"].tolist() == [0.0, 0.0, 0.0]
    assert stored_meta == {"best": [{"step": 1}]}


def test_training_continues_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of step 5 are written after step 9, `best` before `last`; the run is that of a waiting writer."""
    config = small()
    trainer(config, tmp_path / "whole").train()
    gate = Gate(monkeypatch)
    callback = Opens(gate, at=9)
    trainer(config, tmp_path / "beside", callback=callback).train()
    assert max(callback.waited) == 9
    assert gate.names == ["best", "last", "best", "last"]
    for name in ("best", "last"):
        tensors, _ = checkpoint.load(tmp_path / "whole", name)
        others, _ = checkpoint.load(tmp_path / "beside", name)
        assert all(torch.equal(value, others[key]) for key, value in tensors.items())


def test_an_error_is_raised_at_the_next_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, CheckpointError("no space"))
    gate.opened.set()
    with pytest.raises(CheckpointError, match="no space"):
        trainer(small(checkpoint_every=2, steps=100, report_every=1), tmp_path).train()
    assert journal.read(tmp_path)[-1]["step"] == 4
    assert gate.names == ["last"], "after a failed write nothing else is written"


def test_an_error_of_the_last_write_is_raised_before_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, CheckpointError("no space"))
    gate.opened.set()
    with pytest.raises(CheckpointError, match="no space"):
        trainer(small(checkpoint_every=100), tmp_path).train()
    assert not (tmp_path / "result.json").exists()


def test_another_exception_waits_for_the_write_and_notes_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, CheckpointError("no space"))
    writer = CheckpointWriter(tmp_path)

    def fails() -> None:
        with writer:
            writer.save({"last": {}}, {})
            threading.Timer(0.1, gate.opened.set).start()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as found:
        fails()
    assert gate.names == ["last"]
    assert found.value.__notes__ == ["no space"]
    writer.wait()


def test_an_interrupted_wait_is_repeated_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C while the last checkpoint is written: the run directory is unlocked only after the write."""
    gate = Gate(monkeypatch)

    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupted() -> None:
        with CheckpointWriter(tmp_path) as writer:
            writer.save({"last": {"x": torch.ones(2)}}, {"step": 3})
            threading.Timer(0.1, gate.opened.set).start()
            with monkeypatch.context() as patch:
                patch.setattr(writer._writing, "exception", interrupt)
                writer.wait()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert checkpoint.load_meta(tmp_path, "last") == {"step": 3}


def test_a_writer_can_be_used_again(tmp_path: Path) -> None:
    """`train` may be called twice, as after an interruption."""
    writer = CheckpointWriter(tmp_path)
    for step in (1, 2):
        with writer:
            writer.save({"last": {"x": torch.tensor(step)}}, {"step": step})
        assert checkpoint.load_meta(tmp_path, "last")["step"] == step
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoints")]


def test_a_directory_that_was_moved_is_not_made_again(tmp_path: Path) -> None:
    """It may be moved between the check of the training loop and the write by the thread."""
    writer = CheckpointWriter(tmp_path / "moved")
    writer.save({"last": {"a": torch.ones(1)}}, {})
    with pytest.raises(CheckpointError, match=r"'last' could not be written to .*moved: No such file or directory"):
        writer.wait()
    assert not (tmp_path / "moved").exists()
