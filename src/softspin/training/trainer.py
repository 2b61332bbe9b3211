"""The training loop: reports, validation, checkpoints, and the test result.

A run is a folder: `run.json` (config, data, provenance), `journal.jsonl` (metrics log), checkpoints `last` and `best`,
`result.json` (test result) and plots. A run that was killed resumes from `last`. On a CPU, the resumed run is equal bit
for bit to an uninterrupted one, unless custom networks draw from torch's global generator.

If `torchrun` started several processes, they share every update. The first one alone has the run folder, evaluates, and
calls the callback; the others wait for what it found.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softspin.config import Config
from softspin.data import Dataset
from softspin.data.notices import notice
from softspin.deprecation import renamed_arguments, renamed_members
from softspin.errors import CheckpointError, DataError, OutOfTimeError, RunError, SupportError, TrainingError
from softspin.evaluation import Likelihood, Progress
from softspin.model import DiscreteVAE, build
from softspin.parallel import world
from softspin.provenance import find_device, provenance
from softspin.records import EVALUATED, ResultRow, RunRecord
from softspin.samplers import LogZ, Sampler
from softspin.training.averaging import averaged, check_averaging, undisturbed
from softspin.training.best import Best
from softspin.training.callbacks import Callback
from softspin.training.capture import compile_errors
from softspin.training.engine import Engine
from softspin.training.failure import nonfinite_error
from softspin.training.journal import Journal, plain
from softspin.training.loggers import Logger, scalars, started
from softspin.training.process import interrupts_wait, locked, noted_by_any, stop_error, termination_raises
from softspin.training.results import result_rows, trained_rows, validated_rows
from softspin.training.resume import Saved, resumed
from softspin.training.run_files import RUN, begin_run, describe, read_result, read_run, write_result
from softspin.training.shards import check_same_run
from softspin.training.validation import forward_log_z, validate
from softspin.training.writer import CheckpointWriter

__all__ = ["AIS_REPORT_INTERVAL", "REPORT_AIS", "Callback", "Trainer"]

AIS_REPORT_INTERVAL = 100
"""Minimum report interval that triggers AIS; below it the drift of log Z is negligible."""
REPORT_AIS = {"temperatures": 200, "chains": 256}
"""Settings of that AIS run: it underestimates log Z by 0 to 1.2 nats on five trained priors of 400 bits, and costs as
much as one or two updates."""


class Trainer:
    """Trains a model in a run directory; :func:`softspin.fit` is the shorter way.

    Args:
        config: Settings of the run.
        data: Data set.
        folder: Run directory, created if missing.
        model: The model to train; None builds that of the config.
        sampler: Custom sampler of the negative phase; the config then has `sampler = custom`.
        callback: Called during training.
        loggers: Programs that get the metrics too; :func:`softspin.training.loggers.make_loggers` makes them.
        init_from: Run that the initial parameters of `model` come from, for the record of the run.
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
        loggers: Sequence[Logger] = (),
        init_from: str | None = None,
    ) -> None:
        self.config, self.data, self.folder = config, data, Path(folder)
        self.callback, self.loggers, self.init_from = callback, loggers, init_from
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
        check_averaging(config, self.world.size)
        self.seeds = [replica.seed for replica in config.replicas]
        self.best = Best(model.replicas)
        self._writer = CheckpointWriter(self.folder)
        self.seconds = 0.0
        self.deadline = math.inf
        """Value of `time.monotonic` at which training saves a checkpoint and raises OutOfTimeError."""

    # The run ------------------------------------------------------------------------------------------

    def train(self, *, resume: bool = False, test: bool = True) -> list[ResultRow]:
        """Train to the end, and evaluate the best parameters on the test set.

        Args:
            resume: Resume the run in the folder from its last checkpoint. A finished run keeps its result.
            test: Whether to evaluate. Without it the test images are not read, and there is no `result.json`.

        Returns:
            A row for each replica: its test NLL with error bars, or only its validation NLL.

        Raises:
            RunError: The folder already holds a run and `resume` is false, or holds none that can be resumed.
            BusyError: Another process is training in the folder.
            CheckpointError: The checkpoint is damaged, or cannot be written.
            TrainingError: A metric became non-finite.
            DataError: Images on disk can no longer be read; a checkpoint was saved.
            OutOfTimeError: The deadline has passed; a checkpoint was saved.
            TerminatedError: After SIGTERM; a checkpoint was saved.
            KeyboardInterrupt: After Ctrl-C; a checkpoint was saved.
        """
        with self.world.quiet(), termination_raises(), self.world.guard(), contextlib.ExitStack() as held:
            check_same_run(self.world, self.config, self.data)
            self._load(self.world.call(lambda: self._open(resume, held)))
            if test and resume and (rows := self.world.call(self._existing_result)) is not None:
                self.engine.model.load_state_dict(self.best.tensors)
                return rows
            if self.init_from is not None and not resume:  # the prior is not uniform, so its log Z is not known
                path = self.config.validation_temperatures, self.config.validation_chains
                self.engine.set_log_z(self.world.call(lambda: self._log_z(*path).value))
            step = self.engine.steps if resume else None
            if self.world.leads:
                held.enter_context(started(self.loggers, self.folder, self.config.to_dict(), step))
            with contextlib.closing(self.engine), contextlib.ExitStack() as files:
                journal = None
                if self.world.leads:
                    journal = files.enter_context(Journal.open(self.folder, step, self.loggers))
                    files.enter_context(self._writer)
                self._loop(journal)
            return self._finish(test)

    def _open(self, resume: bool, held: contextlib.ExitStack) -> Saved | None:
        """Lock the folder, and write `run.json` or read the last checkpoint."""
        held.enter_context(locked(self.folder))
        if resume:
            return resumed(self.config, self.data, self.folder)
        run = RunRecord(
            config=self.config.to_dict(),
            data=describe(self.data),
            provenance=provenance(self.device),
            init_from=self.init_from,
        )
        begin_run(self.folder, run)
        return None

    def _existing_result(self) -> list[ResultRow] | None:
        """The result of a run that is finished, which is not evaluated again; None if it has no valid one."""
        if self.engine.steps < self.config.steps and not self._has_stalled:
            return None
        try:
            rows = read_result(self.folder)
        except RunError:  # damaged: the test is repeated, and writes it again
            return None
        if rows is not None and (warn := getattr(self.callback, "warn", None)) is not None:
            warn(f"the run is finished, and its result is kept; to evaluate it again: softspin evaluate {self.folder}")
        return rows

    def _loop(self, journal: Journal | None) -> None:
        every, last = self.config.intervals, self.config.steps
        started = time.monotonic() - self.seconds
        with interrupts_wait() as waiting:
            while self.engine.steps < last and not self._has_stalled:
                self._step()
                step = self.engine.steps
                self.seconds = time.monotonic() - started
                if self.callback is not None and self.world.leads:
                    self.callback.step(step)
                if step % every.report == 0 or step == last:
                    self._write(journal, self._report())
                if step % every.evaluate == 0 or step == last:
                    self._write(journal, self._validate())
                ended = step == last or self._has_stalled
                late = not ended and time.monotonic() >= self.deadline
                stop, late = noted_by_any(self.world, waiting, late)
                if step % every.checkpoint == 0 or ended or stop or late:
                    self._save()
                if ended or stop or late:
                    self._writer.wait()
                if stop:
                    raise self.world.shared(stop_error(stop, f"at step {step:,} of {last:,}"))
                if late:
                    late_at = f"out of time at step {step:,} of {last:,}, with a checkpoint"
                    raise self.world.shared(OutOfTimeError(late_at))
            stop, _ = noted_by_any(self.world, waiting)
            if stop:  # a signal after the last step
                raise self.world.shared(stop_error(stop, "after the last step"))

    @property
    def _has_stalled(self) -> bool:
        """Whether no replica has improved for so many validations that training stops early."""
        return self.best.has_stalled(self.engine.steps, self.config.intervals.evaluate, self.config.patience)

    def _step(self) -> None:
        try:
            with compile_errors("the step"):
                self.engine.step()
        except DataError as error:  # images on disk cannot be read; nothing of this step was done
            if self.world.size > 1 or not self.engine.steps:
                raise
            self._save()
            self._writer.wait()
            at = f"stopped at step {self.engine.steps:,} of {self.config.steps:,}, with a checkpoint"
            raise DataError(f"{error}; {at}: restore the file, and resume") from error
        except SupportError:  # CPU samplers reject NaN: report where it came from
            self._check()
            raise

    def _write(self, journal: Journal | None, line: dict[str, Any]) -> None:
        if journal is None:
            return
        journal.write(line)
        if self.callback is not None:
            self.callback.report(line)

    def _report(self) -> dict[str, Any]:
        self._check()
        if self.config.intervals.report >= AIS_REPORT_INTERVAL:
            ais = REPORT_AIS["temperatures"], REPORT_AIS["chains"]
            self.engine.correct_log_z(self.world.call(lambda: self._log_z(*ais).value), self._log_z_set)
        means = {name: values.tolist() for name, values in self.engine.report().items()}
        return {"step": self.engine.steps, "kind": "train", "seconds": round(self.seconds, 3), **means}

    def _check(self) -> None:
        """Stop at a non-finite number."""
        if (failure := self.engine.record.failure()) is not None:
            raise self.world.shared(self._broke(failure.step, f"'{failure.term}'", failure.replica))

    def _broke(self, step: int, what: str, replica: int) -> TrainingError:
        with contextlib.suppress(CheckpointError):
            self._writer.wait()
        return nonfinite_error(self.config, self.folder, step, what, replica)

    @property
    def _log_z_set(self) -> int:
        """The last step before this one at which log Z was estimated by AIS; at step 0 it is exact."""
        every, step = self.config.intervals, self.engine.steps
        times = [every.evaluate, *([every.report] if every.report >= AIS_REPORT_INTERVAL else [])]
        return max((step - 1) // time * time for time in times)

    def _log_z(self, temperatures: int, chains: int) -> LogZ:
        """log Z at the current parameters."""
        return forward_log_z(self.engine.model, self.seeds, temperatures, chains)

    def _progress(self, what: str) -> Progress | None:
        """Tells the callback about the phases of a validation or of the test, if it has a method for them."""
        tell: Progress | None = getattr(self.callback, "phase", None)
        return None if tell is None else lambda name, done, total: tell(f"{what}: {name}", done, total)

    # Validation and the result ------------------------------------------------------------------------

    def _validate(self) -> dict[str, Any]:
        """Update log Z, estimate the validation NLL, and keep the best parameters of each replica."""
        self._check()
        with undisturbed(self.engine.update):
            found = self.world.call(self._evaluate)
            log_z, nll = found.log_z, found.nll.tolist()
            for replica, value in enumerate(nll):
                if not math.isfinite(value):
                    raise self.world.shared(self._broke(self.engine.steps, "the validation NLL", replica))
            self.best.update(self.engine.model, self.engine.steps, nll)
        self.engine.correct_log_z((found.log_z_of_values or log_z).value, self._log_z_set)
        average = {} if self.engine.update.average is None else {"averaged_nll": self._validate_average()}
        stopped = {}
        if self.engine.steps < self.config.steps and self._has_stalled:
            times = "validation" if self.config.patience == 1 else f"{self.config.patience} validations"
            stopped = {"stopped": f"no lower validation NLL in the last {times}"}
        return {
            "step": self.engine.steps,
            "kind": "valid",
            "seconds": round(self.seconds, 3),
            "nll": nll,
            "standard_error": found.standard_error.tolist(),
            "log_z": log_z.value.tolist(),
            "log_z_standard_error": log_z.standard_error.tolist(),
            **average,
            **stopped,
        }

    def _validate_average(self) -> list[float]:
        """Validation NLL of the averaged parameters, which are kept where they are the best of a replica."""
        with averaged(self.engine.update):
            nll: list[float] = self._evaluate().nll.tolist()
            for replica, value in enumerate(nll):
                if not math.isfinite(value):
                    raise self._broke(self.engine.steps, "the validation NLL of the averaged parameters", replica)
            self.best.update(self.engine.model, self.engine.steps, nll, averaged=True)
        return nll

    def _evaluate(self) -> Likelihood:
        """The likelihood of the validation images at the current parameters."""
        model, compiled = self.engine.model, self.engine.compiled
        return validate(self.config, model, self.data, compiled, self._progress("validation"))

    def _finish(self, test: bool) -> list[ResultRow]:
        """Evaluate the best model on the test set and write `result.json`; without test, its validation NLL."""
        self.engine.model.load_state_dict(self.best.tensors)
        return self.world.call(self._test if test else lambda: self._finished(validated_rows(self.config, self.data)))

    def _test(self) -> list[ResultRow]:
        config, model, steps = self.config, self.engine.model, self.engine.steps
        evaluated = result_rows(model, self.data, config, self._progress("test"))
        for replica, row in enumerate(evaluated):
            for name in EVALUATED:
                if (value := getattr(row, name)) is None or not math.isfinite(value):
                    raise self._broke(config.steps, f"'{name}' on the test set", replica)
        rows = self._finished(evaluated)
        write_result(self.folder, rows)
        tested = [{name: getattr(row, name) for name in ("nll", "standard_error", "log_z")} for row in rows]
        for logger in self.loggers:
            logger.log(scalars(plain({"test": tested})), steps)
        return rows

    def _finished(self, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Rows of all replicas, with what is known of their training."""
        start_commit = read_run(self.folder).provenance.commit
        return trained_rows(rows, self.best.found, self.engine.steps, self.seconds, start_commit)

    # Checkpoints --------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._check()  # non-finite parameters are never saved
        meta = {
            "step": self.engine.steps, "seconds": self.seconds, "best": self.best.found,
            "config": self.config.to_dict(),
        }  # fmt: skip
        best = {"best": self.best.tensors} if self.best.tensors else {}
        state = self.engine.state()
        if self.world.leads:
            if not (self.folder / RUN).exists():  # a checkpoint would make a directory that is no run
                raise RunError(
                    f"the run directory {self.folder} was moved or deleted during training; resume it where it is "
                    "now, from its last checkpoint, or train again"
                )
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
