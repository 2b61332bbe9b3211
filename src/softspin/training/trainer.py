"""The loop around the engine: reports, validation, checkpoints, and the end of a run.

A run is a folder: `run.json` (what it is), `journal.jsonl` (how it goes), checkpoints `last` and `best`, `result.json`
(what came out) and pictures. Killed at any moment, it goes on from `last`; on a CPU, bit for bit as if nothing had
happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import CheckpointError, RunError, TrainingError
from softspin.evaluation import bernoulli_nll, evaluate, log_z_for
from softspin.model import DiscreteVAE
from softspin.provenance import find_device, provenance
from softspin.training import checkpoint
from softspin.training.engine import TERMS, Engine
from softspin.training.journal import Journal

RUN, RESULT = "run.json", "result.json"


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
        try:
            while self.engine.steps < last:
                self.engine.step()
                step = self.engine.steps
                self.seconds = time.monotonic() - began
                if self.watcher is not None:
                    self.watcher.step(step)
                if step % every.report == 0 or step == last:
                    self._write(journal, self._report())
                if step % every.evaluate == 0 or step == last:
                    self._write(journal, self._validate())
                if step % every.checkpoint == 0 or step == last:
                    self._save()
        except KeyboardInterrupt:
            self._check(self.engine.broken.cpu())
            self._save()
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
        where = (
            f"the last good checkpoint is at step {self._saved()}" if self._saved() else "there is no checkpoint yet"
        )
        raise TrainingError(
            f"training broke at step {int(at.min()) + 1}: '{TERMS[term]}' of the replica with seed "
            f"{self.seeds[replica]} is not finite; {where}. A smaller rate or beta may help"
        )

    def _saved(self) -> int | None:
        with contextlib.suppress(CheckpointError):
            return int(checkpoint.load_meta(self.folder, "last")["step"])
        return None

    # Validation and the result ------------------------------------------------------------------------

    def _validate(self) -> dict[str, Any]:
        """Refresh log Z, estimate the validation NLL, keep the best of each replica."""
        config, model = self.config, self.engine.model
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
        state = {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}
        self.best_model = self.best_model or {name: value.clone() for name, value in state.items()}
        for replica, value in enumerate(nll):
            before = self.best[replica]
            if before is None or value < before["nll"]:
                self.best[replica] = {"step": self.engine.steps, "nll": value}
                for name, rows in state.items():
                    if is_replicated(name):
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
        meta = {"step": self.engine.steps, "seconds": self.seconds, "best": self.best}
        if self.best_model:
            checkpoint.save(self.folder, "best", self.best_model, meta)
        checkpoint.save(self.folder, "last", self.engine.state(), meta)

    def _load(self) -> None:
        about = json.loads((self.folder / RUN).read_text(encoding="utf-8"))
        if about["data"]["fingerprint"] != self.data.fingerprint:
            raise RunError(
                f"the data set '{self.data.name}' is not the one that the run in {self.folder} was trained on"
            )
        state, meta = checkpoint.load(self.folder, "last")
        self.engine.load(state)
        self.seconds, self.best = meta["seconds"], meta["best"]
        if any(best is not None for best in self.best):
            self.best_model, _ = checkpoint.load(self.folder, "best")

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


def result_rows(model: DiscreteVAE, data: Dataset, config: Config) -> list[dict[str, Any]]:
    """The test likelihood of every replica, with its error bars, as plain rows."""
    seeds = [replica.seed for replica in config.replicas]
    log_z = log_z_for(model, temperatures=config.test_temperatures, chains=config.test_chains, seed=seeds)
    found = evaluate(model, data.test, log_z=log_z, samples=config.test_samples, seed=seeds)
    baseline = bernoulli_nll(data.train, data.test)
    made_by = provenance(model.mean.device)
    return [
        {
            "data": data.name,
            "method": config.method,
            "structure": config.structure,
            "samples": config.samples,
            "sampler": config.sampler,
            "seed": replica.seed,
            "beta": replica.beta,
            "nll": found.nll[i].item(),
            "standard_error": _finite(found.standard_error[i]),
            "nll_low": _finite(found.lower[i]),
            "nll_high": _finite(found.upper[i]),
            "log_z": log_z.value[i].item(),
            "log_z_low": _finite(log_z.lower[i]),
            "log_z_high": _finite(log_z.upper[i]),
            "log_z_method": log_z.method,
            "elbo": found.elbo[i].item(),
            "kl": found.kl[i].item(),
            "reconstruction": found.reconstruction[i].item(),
            "effective_sample_size": found.effective_sample_size[i].item(),
            "active_bits": _finite(found.active_bits[i]),
            "images": found.images,
            "importance_samples": found.samples,
            "baseline_nll": float(baseline.nll),
            "fingerprint": data.fingerprint,
            **made_by,
        }
        for i, replica in enumerate(config.replicas)
    ]


def _finite(value: Tensor) -> float | None:
    """A number, or None where JSON has none."""
    number = float(value)
    return number if abs(number) < float("inf") else None


def is_replicated(name: str) -> bool:
    """Whether a tensor of the model has a row for each replica; the pixel means are the same for all."""
    return name not in ("mean", "base_logit")


def describe(data: Dataset) -> dict[str, Any]:
    """Which data, as plain data."""
    return {
        "name": data.name,
        "shape": list(data.shape),
        "images": [len(data.train), len(data.valid), len(data.test)],
        "binarization": data.binarization,
        "source": data.source,
        "fingerprint": data.fingerprint,
    }


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step."""
    temporary = path.with_suffix(".part")
    try:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
