"""The loop around the engine: reports, validation, checkpoints, and the end of a run.

A run is a folder: `run.json` (what it is), `journal.jsonl` (how it goes), checkpoints `last` and `best`, `result.json`
(what came out) and pictures. Killed at any moment, it goes on from `last`; on a CPU, bit for bit as if nothing had
happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import CheckpointError, OutOfTimeError, RunError, SupportError, TrainingError
from softspin.evaluation import evaluate, log_z_for
from softspin.model import DiscreteVAE
from softspin.provenance import find_device, provenance
from softspin.training import checkpoint
from softspin.training.engine import TERMS, Engine
from softspin.training.journal import Journal
from softspin.training.results import RESULT, RUN, describe, read_about, result_rows, write_json

MAY_CHANGE = ("data", "device", "compile", "tf32")
"""Settings that a resumed run may have otherwise: where it runs, and the name of data that are known by their bits."""
STOPPING = "stopping after this step and its validation, with a checkpoint; Ctrl-C again stops at once, without"


class Watcher(Protocol):
    """Who wants to see a run go by."""

    def report(self, line: Mapping[str, Any]) -> None:
        """A line of the journal was written."""

    def step(self, step: int) -> None:
        """A step was made."""


class Trainer:
    """One run, in one folder."""

    def __init__(
        self,
        config: Config,
        data: Dataset,
        folder: str | os.PathLike[str],
        model: DiscreteVAE,
        *,
        watcher: Watcher | None = None,
        tensorboard: bool = False,
    ) -> None:
        self.config, self.data, self.folder = config, data, Path(folder)
        self.watcher, self.tensorboard = watcher, tensorboard
        self.device = find_device(config.device)
        self.engine = Engine(config, model, data, self.device)
        self.seeds = [replica.seed for replica in config.replicas]
        self.best: list[dict[str, Any] | None] = [None] * model.replicas
        """Of each replica: step and validation NLL."""
        self.best_model: dict[str, Tensor] = {}
        """The parameters at those steps, each replica's row from its own."""
        self.seconds = 0.0
        self.deadline = math.inf
        """When `time.monotonic` says so, training ends as after Ctrl-C, with a checkpoint, in an OutOfTimeError."""

    # The run ------------------------------------------------------------------------------------------

    def train(self, *, resume: bool = False) -> list[dict[str, Any]]:
        """Train to the end, or go on from the last checkpoint; the rows of the result, one for each replica."""
        with self._lock():
            self._open(resume)
            with Journal.open(self.folder, self.engine.steps if resume else None, self.tensorboard) as journal:
                self._loop(journal)
            return self._finish()

    def _open(self, resume: bool) -> None:
        """Write what the run is, or read where it was."""
        is_run = (self.folder / RUN).exists()
        if resume:
            if not is_run:
                raise RunError(f"no run in {self.folder} to resume; there is no {RUN}")
            self._check_same()
            if checkpoint.exists(self.folder, "last"):
                self._load()
            return
        if is_run:
            raise RunError(f"{self.folder} already holds a run; resume it, or give another folder")
        about = {"config": self.config.to_dict(), "data": describe(self.data), "made_by": provenance(self.device)}
        write_json(self.folder / RUN, about)

    def _loop(self, journal: Journal) -> None:
        every, last = self.config.intervals, self.config.steps
        began = time.monotonic() - self.seconds
        with interrupts_wait() as waiting:
            while self.engine.steps < last:
                self._step()
                step = self.engine.steps
                self.seconds = time.monotonic() - began
                if self.watcher is not None:
                    self.watcher.step(step)
                if step % every.report == 0 or step == last:
                    self._write(journal, self._report())
                if step % every.evaluate == 0 or step == last:
                    self._write(journal, self._validate())
                late = step < last and time.monotonic() >= self.deadline
                stop = bool(waiting)  # asked once: what comes after this has no checkpoint yet
                if step % every.checkpoint == 0 or step == last or stop or late:
                    self._save()
                if stop:
                    raise KeyboardInterrupt
                if late:
                    raise OutOfTimeError(f"out of time at step {step:,} of {last:,}, with a checkpoint")
            if waiting:  # since the last step
                raise KeyboardInterrupt

    def _step(self) -> None:
        try:
            self.engine.step()
        except SupportError:  # the samplers of the CPU refuse NaN: say where it came from
            self._check(self.engine.broken.cpu())
            raise

    def _write(self, journal: Journal, line: dict[str, Any]) -> None:
        journal.write(line)
        if self.watcher is not None:
            self.watcher.report(line)

    def _report(self) -> dict[str, Any]:
        report = self.engine.report()
        self._check(report.broken)
        means = {name: values.tolist() for name, values in report.mean.items()}
        return {"step": self.engine.steps, "kind": "train", "seconds": round(self.seconds, 3), **means}

    def _check(self, broken: Tensor) -> None:
        """Stop at a number that is not one."""
        if bool((broken < 0).all()):
            return
        at = torch.where(broken < 0, torch.iinfo(torch.int64).max, broken)
        replica, term = divmod(int(at.argmin()), len(TERMS))
        raise self._broke(int(at.min()) + 1, f"'{TERMS[term]}'", self.seeds[replica])

    def _broke(self, step: int, what: str, seed: int) -> TrainingError:
        where = "there is no checkpoint yet"
        with contextlib.suppress(CheckpointError):
            where = f"the last good checkpoint is at step {checkpoint.load_meta(self.folder, 'last')['step']}"
        return TrainingError(
            f"training broke at step {step}: {what} of the replica with seed {seed} is not finite; {where}. "
            "A smaller rate or beta may help",
            seed,
        )

    # Validation and the result ------------------------------------------------------------------------

    def _validate(self) -> dict[str, Any]:
        """Refresh log Z, estimate the validation NLL, keep the best of each replica."""
        config, model = self.config, self.engine.model
        self._check(self.engine.broken.cpu())
        log_z = log_z_for(
            model,
            temperatures=config.validation_temperatures,
            chains=config.validation_chains,
            seed=self.seeds,
            sandwich=False,
        )
        self.engine.set_log_z(log_z.value)
        found = evaluate(model, self.data.valid, log_z=log_z, samples=config.validation_samples, seed=self.seeds)
        nll = found.nll.tolist()
        for seed, value in zip(self.seeds, nll, strict=True):
            if not math.isfinite(value):
                raise self._broke(self.engine.steps, "the validation NLL", seed)
        state = {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}
        self.best_model = self.best_model or {name: value.clone() for name, value in state.items()}
        for replica, value in enumerate(nll):
            before = self.best[replica]
            if before is None or value < before["nll"]:
                self.best[replica] = {"step": self.engine.steps, "nll": value}
                if len(nll) == 1:  # the modules of a single replica may be ordinary ones, without a row for each
                    self.best_model = state
                for name, rows in state.items():
                    if len(nll) > 1 and is_replicated(name):
                        self.best_model[name][replica] = rows[replica]
        return {
            "step": self.engine.steps,
            "kind": "valid",
            "seconds": round(self.seconds, 3),
            "nll": nll,
            "standard_error": found.standard_error.tolist(),
            "log_z": log_z.value.tolist(),
            "log_z_standard_error": log_z.standard_error.tolist(),
        }

    def _finish(self) -> list[dict[str, Any]]:
        """The best model on the test set, written to `result.json`."""
        config, model = self.config, self.engine.model
        model.load_state_dict(self.best_model)
        rows = result_rows(model, self.data, config)
        for row, best in zip(rows, self.best, strict=True):
            row |= {
                "best_step": None if best is None else best["step"],
                "valid_nll": None if best is None else best["nll"],
                "steps": config.steps,
                "training_seconds": round(self.seconds, 3),
            }
        write_json(self.folder / RESULT, rows)
        return rows

    # Checkpoints --------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._check(self.engine.broken.cpu())  # what is on the disk is good
        meta = {"step": self.engine.steps, "seconds": self.seconds, "best": self.best}
        if self.best_model:
            checkpoint.save(self.folder, "best", self.best_model, meta)
        checkpoint.save(self.folder, "last", self.engine.state(), meta)

    def _check_same(self) -> None:
        """Raise unless the run in the folder is of this config and this data."""
        about = read_about(self.folder)
        if about["data"]["fingerprint"] != self.data.fingerprint:
            raise RunError(
                f"the data set '{self.data.name}' is not the one that the run in {self.folder} was trained on"
            )
        mine = self.config.to_dict()
        for name, value in about["config"].items():
            if name not in MAY_CHANGE and mine[name] != value:
                raise RunError(
                    f"the run in {self.folder} has {name} = {value}, not {mine[name]}; a run goes on as it began, "
                    "so resume it with its own config or train in another folder"
                )

    def _load(self) -> None:
        state, meta = checkpoint.load(self.folder, "last")
        self.engine.load(state)
        self.seconds, self.best = meta["seconds"], meta["best"]
        if any(best is not None for best in self.best):
            # `best` is saved before `last`; killed between the two, it is ahead, and says of what step it is.
            self.best_model, meta = checkpoint.load(self.folder, "best")
            self.best = meta["best"]

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Two processes in one folder would overwrite each other's checkpoints."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("w")
        except OSError as error:
            raise RunError(f"folder {self.folder} cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"another process is training in {self.folder}; wait for it, or stop it") from None
            yield


def is_replicated(name: str) -> bool:
    """Whether a tensor of the model has a row for each replica; the pixel means are the same for all."""
    return name not in ("mean", "base_logit")


@contextlib.contextmanager
def interrupts_wait() -> Iterator[list[int]]:
    """The first Ctrl-C is only noted in the list, so that an update is never cut in two; a second one stops at once.

    It is answered by a line on stderr: a validation that is under way may take minutes. Outside of the main thread,
    where Python lets nobody handle signals, this does nothing.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)
        with contextlib.suppress(OSError, RuntimeError):  # stderr may be closed, or in the middle of a line
            print(STOPPING, file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
