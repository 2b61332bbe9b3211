"""Loggers: TensorBoard and Weights & Biases by stand-ins and, where they are installed, themselves; own objects."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from training.runs import bars, small

import softspin
from softspin.errors import ConfigError, MissingExtraError, UnknownNameError
from softspin.project import install_hint
from softspin.training.journal import Journal
from softspin.training.loggers import TensorBoard, make_loggers, started
from softspin.training.run_files import RESULT

LINE = {"step": 20, "bound": [1.0, float("nan")], "valid": {"nll": 2.5}, "kind": "report", "ok": True}


class Writer:
    """Replaces TensorBoard's writer."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.calls: list[Any] = [(Path(folder).name, purge_step)]

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.calls.append((tag, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.calls.append("closed")


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Writer] = []

    def make(folder: str, purge_step: int) -> Writer:
        made.append(Writer(folder, purge_step))
        return made[-1]

    stand_in = types.ModuleType("tensorboard")
    stand_in.SummaryWriter = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    for step in (10, None):
        loggers = make_loggers("tensorboard")
        with started(loggers, tmp_path, {}, step), Journal.open(tmp_path, step, loggers) as journal:
            if step is not None:
                journal.write(LINE)
    assert made[0].calls == [("tensorboard", 11), ("bound/0", 1.0, 20), ("valid/nll", 2.5, 20), "closed"]
    assert made[1].calls == [("tensorboard", 0), "closed"]


def test_tensorboard_itself_accepts_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with started([TensorBoard()], tmp_path, {}, None) as loggers, Journal.open(tmp_path, None, loggers) as journal:
        journal.write({"step": 1, "bound": [1.0, 2.0]})
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 1


class Wandb(types.ModuleType):
    """Replaces the package wandb; it has the functions that are used, with their arguments."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[WandbRun] = []

    def init(
        self, *, id: str, dir: str, config: dict[str, Any], project: str, name: str, mode: str, resume: str = "never"
    ) -> WandbRun:
        self.runs.append(WandbRun({"id": id, "name": name, "mode": mode, "resume": resume, "project": project}, config))
        return self.runs[-1]


class WandbRun:
    def __init__(self, options: dict[str, Any], config: dict[str, Any]) -> None:
        self.options, self.config = options, config
        self.metrics: list[tuple[str, str]] = []
        self.lines: list[dict[str, float]] = []
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.metrics.append((name, step_metric))

    def log(self, data: dict[str, float]) -> None:
        self.lines.append(data)

    def finish(self) -> None:
        self.finished = True


def test_weights_and_biases_is_offline_unless_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    config = small(steps=4)
    model = softspin.fit(config, bars(), tmp_path / "run", loggers="wandb", progress=False, pictures=False)
    (first,) = wandb.runs
    assert (first.options["mode"], first.options["resume"], first.options["name"]) == ("offline", "never", "run")
    assert first.config["chains"] == config.chains
    assert first.finished
    assert first.metrics == [("*", "step")]
    assert [line["step"] for line in first.lines] == [2, 4, 4, 4]
    assert {"bound/0", "kl/0"} <= first.lines[0].keys()
    assert "nll/0" in first.lines[2]
    assert model.result is not None
    assert first.lines[-1]["test/0/nll"] == model.result[0].nll
    monkeypatch.setenv("WANDB_MODE", "online")
    (tmp_path / "run" / RESULT).unlink()  # as if it had been killed before the test
    softspin.fit(folder=tmp_path / "run", resume=True, loggers=["wandb"], progress=False, pictures=False)
    second = wandb.runs[1]
    assert (second.options["mode"], second.options["resume"]) == ("online", "allow")
    assert second.options["id"] == first.options["id"]


def test_weights_and_biases_itself_accepts_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    softspin.fit(small(steps=2), bars(), tmp_path / "run", loggers="wandb", progress=False, pictures=False)
    assert len(list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))) == 1


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_loggers_are_extras(name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint(name))):
        softspin.fit(small(), bars(), tmp_path / "run", loggers=name)
    assert not (tmp_path / "run").exists()


class Own:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, folder: Path, config: Mapping[str, Any], step: int | None) -> None:
        self.calls.append((folder.name, config["steps"], step))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.calls.append(step)

    def close(self) -> None:
        self.calls.append("closed")


def test_an_own_logger_is_closed_also_after_an_error(tmp_path: Path) -> None:
    own = Own()

    def stop(line: Mapping[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        softspin.fit(small(), bars(), tmp_path / "run", loggers=own, callbacks=stop, progress=False)
    assert own.calls == [("run", 10, None), 2, "closed"]


def test_wrong_loggers_are_one_line() -> None:
    with pytest.raises(UnknownNameError, match="unknown logger 'tensorbord'; did you mean 'tensorboard'"):
        make_loggers("tensorbord")
    with pytest.raises(ConfigError, match=r"a \w*Path is not a logger: it has no method 'start'; give a name"):
        make_loggers([Path()])  # type: ignore[list-item]
