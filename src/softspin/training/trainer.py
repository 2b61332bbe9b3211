"""The training loop: reports, validation, checkpoints, and the test result.

A run is a folder: `run.json` (config, data, provenance), `journal.jsonl` (metrics log), checkpoints `last` and `best`,
`result.json` (test result) and plots. A run that was killed resumes from `last`. On a CPU, the resumed run is equal bit
for bit to an uninterrupted one, unless custom networks draw from torch's global generator.

If `torchrun` started several processes, they share every update. The first one alone has the run folder, evaluates, and
calls the callback; the others wait for what it found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.data.notices import notice
from softspin.deprecation import renamed_arguments, renamed_members
from softspin.errors import CheckpointError, OutOfTimeError, RunError, SupportError, TrainingError
from softspin.evaluation import Likelihood, evaluate, log_z_for
from softspin.model import DiscreteVAE, build
from softspin.parallel import world
from softspin.provenance import find_device, provenance
from softspin.records import EVALUATED, ResultRow, RunRecord
from softspin.samplers import LogZ, Sampler
from softspin.training import checkpoint
from softspin.training.best import Best
from softspin.training.capture import compile_errors
from softspin.training.engine import Engine
from softspin.training.journal import NAME, Journal, summary_writer
from softspin.training.process import interrupts_wait, locked, noted_by_any, stop_error, termination_raises
from softspin.training.record import TERMS
from softspin.training.results import RESULT, RUN, check_same, describe, read_run, result_rows, write_json
from softspin.training.resume import Saved, read_saved
from softspin.training.shards import check_same_run
from softspin.training.writer import CheckpointWriter

AIS_REPORT_INTERVAL = 100
"""Minimum report interval that triggers AIS; below it the drift of log Z is negligible."""
REPORT_AIS = {"temperatures": 200, "chains": 256}
"""Settings of that AIS run: it underestimates log Z by half a nat for trained priors of 400 bits, and costs as much as
one or two updates."""


class Callback(Protocol):
    """Object that is called during training."""

    def report(self, line: Mapping[str, Any]) -> None:
        """Called after a line was written to the metrics log.

        Args:
            line: The line: `step`, `kind` (`"train"` or `"valid"`), and metrics by name.
        """

    def step(self, step: int) -> None:
        """Called after every step.

        Args:
            step: Number of steps made so far.
        """


class Trainer:
    """Trains a model in a run directory; :func:`softspin.fit` is the shorter way.

    Args:
        config: Settings of the run.
        data: Data set.
        folder: Run directory, created if missing.
        model: The model to train; None builds that of the config.
        sampler: Custom sampler of the negative phase; the config then has `sampler = custom`.
        callback: Called during training.
        tensorboard: Whether the metrics also go to `folder/tensorboard`.
    """

    @renamed_arguments(watcher="callback")
    def __init__(
        self,
        config: Config,
        data: Dataset,
        folder: str | os.PathLike[str],
        model: DiscreteVAE | None = None,
        *,
        sampler: Sampler | None = None,
        callback: Callback | None = None,
        tensorboard: bool = False,
    ) -> None:
        self.config, self.data, self.folder = config, data, Path(folder)
        self.callback, self.tensorboard = callback, tensorboard
        if tensorboard:
            summary_writer()  # a missing extra is an error before the run is created
        self.world = world()
        self.device = self.world.device(find_device(config.device))
        provenance(self.device)  # caches the commit now: the working tree may change during training
        # The recipe's batches are larger than some small data sets. Only a size that was chosen is worth a warning.
        if len(data.train) < config.batch_size != Config.batch_size:
            notice(
                f"batch_size = {config.batch_size} is larger than the training set; each step uses all "
                f"{len(data.train)} images"
            )
        model = build(config, data.spec) if model is None else model
        self.engine = Engine(config, model, data, self.device, sampler, self.world)
        self.seeds = [replica.seed for replica in config.replicas]
        self.best = Best(model.replicas)
        self._writer = CheckpointWriter(self.folder)
        self.seconds = 0.0
        self.deadline = math.inf
        """Value of `time.monotonic` at which training saves a checkpoint and raises OutOfTimeError."""

    # The run ------------------------------------------------------------------------------------------

    def train(self, *, resume: bool = False) -> list[ResultRow]:
        """Train to the end, and evaluate the best parameters on the test set.

        Args:
            resume: Resume the run in the folder from its last checkpoint.

        Returns:
            A row for each replica: its test NLL with error bars.

        Raises:
            RunError: The folder already holds a run and `resume` is false, or holds none that can be resumed.
            BusyError: Another process is training in the folder.
            CheckpointError: The checkpoint is damaged, or cannot be written.
            TrainingError: A metric became non-finite.
            OutOfTimeError: The deadline has passed; a checkpoint was saved.
            TerminatedError: After SIGTERM; a checkpoint was saved.
            KeyboardInterrupt: After Ctrl-C; a checkpoint was saved.
        """
        with self.world.quiet(), termination_raises(), self.world.guard(), contextlib.ExitStack() as held:
            check_same_run(self.world, self.config, self.data)
            self._load(self.world.call(lambda: self._open(resume, held)))
            with contextlib.ExitStack() as files:
                journal = None
                if self.world.leads:
                    start = self.engine.steps if resume else None
                    journal = files.enter_context(Journal.open(self.folder, start, self.tensorboard))
                    files.enter_context(self._writer)
                self._loop(journal)
            return self._finish()

    def _open(self, resume: bool, held: contextlib.ExitStack) -> Saved | None:
        """Lock the folder, and write `run.json` or read the last checkpoint."""
        held.enter_context(locked(self.folder))
        is_run = (self.folder / RUN).exists()
        if resume:
            if not is_run:
                raise RunError(f"no run in {self.folder} to resume; there is no {RUN}")
            check_same(self.config, self.data, self.folder)
            if checkpoint.exists(self.folder, "last"):
                return read_saved(self.config, self.folder)
            if (self.folder / RESULT).exists():
                raise RunError(
                    f"the run in {self.folder} is finished, but its checkpoint 'last' is missing; it cannot be resumed"
                )
            return None
        if is_run:
            raise RunError(f"{self.folder} already holds a run; resume it, or give another folder")
        for name in (NAME, RESULT, "last.json", "best.json"):
            if (self.folder / name).exists():
                raise RunError(f"{self.folder} holds a {name}, but no {RUN}; give another folder")
        run = RunRecord(config=self.config.to_dict(), data=describe(self.data), provenance=provenance(self.device))
        write_json(self.folder / RUN, run.to_json())
        return None

    def _loop(self, journal: Journal | None) -> None:
        every, last = self.config.intervals, self.config.steps
        started = time.monotonic() - self.seconds
        with interrupts_wait() as waiting:
            while self.engine.steps < last:
                self._step()
                step = self.engine.steps
                self.seconds = time.monotonic() - started
                if self.callback is not None and self.world.leads:
                    self.callback.step(step)
                if step % every.report == 0 or step == last:
                    self._write(journal, self._report())
                if step % every.evaluate == 0 or step == last:
                    self._write(journal, self._validate())
                late = step < last and time.monotonic() >= self.deadline
                stop, late = noted_by_any(self.world, waiting, late)
                if step % every.checkpoint == 0 or step == last or stop or late:
                    self._save()
                if step == last or stop or late:
                    self._writer.wait()
                if stop:
                    raise self.world.shared(stop_error(stop, f"at step {step:,} of {last:,}"))
                if late:
                    late_at = f"out of time at step {step:,} of {last:,}, with a checkpoint"
                    raise self.world.shared(OutOfTimeError(late_at))
            stop, _ = noted_by_any(self.world, waiting)
            if stop:  # a signal after the last step
                raise self.world.shared(stop_error(stop, "after the last step"))

    def _step(self) -> None:
        try:
            with compile_errors("the step"):
                self.engine.step()
        except SupportError:  # CPU samplers reject NaN: report where it came from
            self._check(self.engine.record.first_nonfinite.cpu())
            raise

    def _write(self, journal: Journal | None, line: dict[str, Any]) -> None:
        if journal is None:
            return
        journal.write(line)
        if self.callback is not None:
            self.callback.report(line)

    def _report(self) -> dict[str, Any]:
        self._check(self.engine.record.first_nonfinite.cpu())
        if self.config.intervals.report >= AIS_REPORT_INTERVAL:
            log_z = self.world.call(lambda: self._log_z(**REPORT_AIS).value)
            self.engine.correct_log_z(log_z, self._log_z_set)
        means = {name: values.tolist() for name, values in self.engine.report().items()}
        return {"step": self.engine.steps, "kind": "train", "seconds": round(self.seconds, 3), **means}

    def _check(self, broken: Tensor) -> None:
        """Stop at a non-finite number."""
        if bool((broken < 0).all()):
            return
        at = torch.where(broken < 0, torch.iinfo(torch.int64).max, broken)
        replica, term = divmod(int(at.argmin()), len(TERMS))
        raise self.world.shared(self._broke(int(at.min()) + 1, f"'{TERMS[term]}'", self.seeds[replica]))

    def _broke(self, step: int, what: str, seed: int) -> TrainingError:
        where = "there is no checkpoint yet"
        with contextlib.suppress(CheckpointError):
            self._writer.wait()
        with contextlib.suppress(CheckpointError):
            where = f"the last good checkpoint is at step {checkpoint.load_meta(self.folder, 'last')['step']}"
        return TrainingError(
            f"training broke at step {step}: {what} of the replica with seed {seed} is not finite; {where}. "
            "A smaller learning_rate or beta may help",
            seed,
        )

    @property
    def _log_z_set(self) -> int:
        """The last step before this one at which log Z was estimated by AIS; at step 0 it is exact."""
        every, step = self.config.intervals, self.engine.steps
        times = [every.evaluate, *([every.report] if every.report >= AIS_REPORT_INTERVAL else [])]
        return max((step - 1) // time * time for time in times)

    def _log_z(self, temperatures: int, chains: int) -> LogZ:
        """log Z at the current parameters, by forward AIS, or exact if that is possible."""
        model, own = self.engine.model, self.seeds
        return log_z_for(model, temperatures=temperatures, chains=chains, seed=own, sandwich=False)

    # Validation and the result ------------------------------------------------------------------------

    def _validate(self) -> dict[str, Any]:
        """Update log Z, estimate the validation NLL, and keep the best parameters of each replica."""
        self._check(self.engine.record.first_nonfinite.cpu())
        found = self.world.call(self._evaluate)
        log_z, nll = found.log_z, found.nll.tolist()
        self.engine.correct_log_z(log_z.value, self._log_z_set)
        for seed, value in zip(self.seeds, nll, strict=True):
            if not math.isfinite(value):
                raise self.world.shared(self._broke(self.engine.steps, "the validation NLL", seed))
        self.best.update(self.engine.model, self.engine.steps, nll)
        return {
            "step": self.engine.steps,
            "kind": "valid",
            "seconds": round(self.seconds, 3),
            "nll": nll,
            "standard_error": found.standard_error.tolist(),
            "log_z": log_z.value.tolist(),
            "log_z_standard_error": log_z.standard_error.tolist(),
        }

    def _evaluate(self) -> Likelihood:
        """The likelihood of the validation images at the current parameters."""
        config, model = self.config, self.engine.model
        log_z = self._log_z(config.validation_temperatures, config.validation_chains)
        options: dict[str, Any] = {"samples": config.validation_samples, "compiled": self.engine.compiled}
        with compile_errors("the validation"):
            return evaluate(model, self.data.valid, log_z=log_z, seed=self.seeds, **options)

    def _finish(self) -> list[ResultRow]:
        """Evaluate the best model on the test set and write `result.json`."""
        self.engine.model.load_state_dict(self.best.tensors)
        return self.world.call(self._test)

    def _test(self) -> list[ResultRow]:
        config, model = self.config, self.engine.model
        start_commit, rows = read_run(self.folder).provenance.commit, []
        for row, best in zip(result_rows(model, self.data, config), self.best.found, strict=True):
            for name in EVALUATED:
                if (value := getattr(row, name)) is None or not math.isfinite(value):
                    raise self._broke(config.steps, f"'{name}' on the test set", row.seed)
            found = dataclasses.replace(
                row,
                best_step=None if best is None else best["step"],
                valid_nll=None if best is None else best["nll"],
                training_seconds=round(self.seconds, 3),
                start_commit=start_commit,
            )
            rows.append(found)
        write_json(self.folder / RESULT, [row.to_json() for row in rows])
        return rows

    # Checkpoints --------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._check(self.engine.record.first_nonfinite.cpu())  # non-finite parameters are never saved
        meta = {
            "step": self.engine.steps, "seconds": self.seconds, "best": self.best.found,
            "config": self.config.to_dict(),
        }  # fmt: skip
        best = {"best": self.best.tensors} if self.best.tensors else {}
        state = self.engine.state()
        if self.world.leads:
            # `best` first: a run that is killed between the two resumes from the older `last`.
            self._writer.save({**best, "last": state}, meta)

    def _load(self, saved: Saved | None) -> None:
        """Continue from checkpoints; without them, all processes start from the state of the first."""
        if saved is not None:
            self.engine.load(saved.last)
            self.seconds, self.best.found = saved.seconds, saved.found
            self.best.tensors = {name: value.to(self.device) for name, value in saved.best.items()}
        elif self.world.size > 1:
            state = self.engine.state()
            self.engine.load(self.world.call(lambda: state))


__getattr__ = renamed_members(__name__, {"Watcher": "Callback"})
