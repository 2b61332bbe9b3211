"""The training loop of a Boltzmann machine: evaluations, checkpoints, and the result.

A run is a folder: `boltzmann.json` (settings, data, provenance), `journal.jsonl` (metrics log), checkpoints `last` and
`best`, and `result.json`. A run that was killed resumes from `last`; on a CPU, it is then equal bit for bit to an
uninterrupted one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.engine import Engine
from softspin.boltzmann_machine.likelihood import LogLikelihood, activity_base, log_likelihood, mean_activity
from softspin.boltzmann_machine.parameters import empty_parameters
from softspin.boltzmann_machine.run_files import RUN, BoltzmannResult, BoltzmannRun, check_same
from softspin.data import Dataset
from softspin.data.mapped import Table
from softspin.distributions import Boltzmann, VisibleMarginal
from softspin.distributions.visible import joint_means
from softspin.errors import CheckpointError, OutOfTimeError, RunError, SupportError, TrainingError
from softspin.evaluation import bernoulli_nll
from softspin.evaluation.partition import EXACT, Progress, log_z_of_replicas, method_text, without_rounded
from softspin.parallel import SINGLE
from softspin.provenance import find_device, provenance
from softspin.seals import sealed
from softspin.training import checkpoint
from softspin.training.callbacks import Callbacks
from softspin.training.capture import compile_errors
from softspin.training.failure import last_checkpoint_text
from softspin.training.journal import Journal
from softspin.training.loggers import Logger, started
from softspin.training.process import interrupts_wait, locked, noted_by_any, stop_error, termination_raises
from softspin.training.results import finite
from softspin.training.run_files import RESULT, check_unused, describe, write_json
from softspin.training.writer import CheckpointWriter

STARTS = 500
"""Rows of training data from which the guards of log Z search for missed states."""
TRAIN_ROWS = 10_000
"""Largest number of training data whose likelihood is computed: the first ones."""


class Trainer:
    """Trains a Boltzmann machine in a run directory; :func:`softspin.fit_boltzmann` is the shorter way.

    Args:
        config: Settings of the run.
        data: Binary data, or gray levels that are binarized for every batch.
        folder: Run directory, created if missing.
        callbacks: Called during training.
        source: Name or path of the data, for the record of the run; None if they were given as arrays.
        loggers: Programs that get the metrics too.
    """

    def __init__(
        self,
        config: BoltzmannConfig,
        data: Dataset,
        folder: Path,
        callbacks: Callbacks,
        *,
        source: str | None = None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.config, self.data, self.folder, self.callbacks = config, data, folder, callbacks
        self.source, self.loggers, self.device = source, loggers, find_device(config.device)
        provenance(self.device)  # caches the commit now: the working tree may change during training
        self.shape = config.shape(data.pixels)
        self.engine = Engine(config, data, self.device)
        self.best: dict[str, Tensor] = {}
        """Parameters of each replica at its highest validation log-likelihood."""
        self.found: list[dict[str, Any] | None] = [None] * len(config.seeds)
        self.seconds, self.deadline = 0.0, math.inf
        self._writer = CheckpointWriter(folder)
        self._splits: dict[str, Table] = {"train": first_bits(data), "valid": data.valid, "test": data.test}

    def train(self, *, resume: bool = False) -> list[BoltzmannResult]:
        """Train to the end, and evaluate the best parameters.

        Args:
            resume: Resume the run in the folder from its last checkpoint.

        Returns:
            A row for each replica.

        Raises:
            RunError: The folder already holds a run and `resume` is false, or holds none that can be resumed.
            BusyError: Another process is training in the folder.
            CheckpointError: The checkpoint is damaged, or cannot be written.
            TrainingError: A gradient or a likelihood became non-finite.
            OutOfTimeError: The deadline has passed; a checkpoint was saved.
            TerminatedError: After SIGTERM; a checkpoint was saved.
            KeyboardInterrupt: After Ctrl-C; a checkpoint was saved.
        """
        with termination_raises(), locked(self.folder):
            self._open(resume)
            step = self.engine.steps if resume else None
            with contextlib.ExitStack() as files:
                files.enter_context(started(self.loggers, self.folder, self.config.to_dict(), step))
                journal = files.enter_context(Journal.open(self.folder, step, self.loggers))
                files.enter_context(self._writer)
                self._loop(journal)
            return self._test()

    def _open(self, resume: bool) -> None:
        """Write `boltzmann.json`, or read the last checkpoint."""
        if resume:
            check_same(self.config, self.data, self.folder)
            if checkpoint.exists(self.folder, "last"):
                self._load()
            return
        check_unused(self.folder, RUN, "run.json")
        run = BoltzmannRun(
            config=self.config.to_dict(),
            hidden=self.shape.hidden,
            edges=self.shape.edges,
            data=describe(self.data),
            source=self.source,
            provenance=provenance(self.device),
        )
        write_json(self.folder / RUN, sealed([run.to_json()])[0])

    def _loop(self, journal: Journal) -> None:
        config, last = self.config, self.config.steps
        started = time.monotonic() - self.seconds
        with interrupts_wait() as waiting:
            while self.engine.steps < last:
                self._step()
                step = self.engine.steps
                self.seconds = time.monotonic() - started
                self.callbacks.step(step)
                ended = step == last
                if step % config.evaluation_interval == 0 or ended:
                    line = self._evaluate()
                    journal.write(line)
                    self.callbacks.report(line)
                stop, late = noted_by_any(SINGLE, waiting, not ended and time.monotonic() >= self.deadline)
                if step % config.checkpoint_interval == 0 or ended or stop or late:
                    self._save()
                if ended or stop or late:
                    self._writer.wait()
                if stop:
                    raise stop_error(stop, f"at step {step:,} of {last:,}")
                if late:
                    raise OutOfTimeError(f"out of time at step {step:,} of {last:,}, with a checkpoint")

    def _step(self) -> None:
        try:
            with compile_errors("the step"):
                self.engine.step()
        except SupportError:  # CPU samplers reject NaN: report where it came from
            self._check()
            raise

    def _check(self) -> None:
        """Stop at a non-finite gradient or parameter."""
        update = self.engine.update
        finite = torch.isfinite(update.prior.bias).all(-1) & torch.isfinite(update.prior.weight).flatten(1).all(-1)
        each = zip(self.config.seeds, update.first_nonfinite.tolist(), finite.tolist(), strict=True)
        for seed, step, parameters_finite in each:
            if step >= 0 or not parameters_finite:
                raise self._broke(step + 1 if step >= 0 else self.engine.steps, "the gradient", seed)

    def _broke(self, step: int, what: str, seed: int) -> TrainingError:
        with contextlib.suppress(CheckpointError):
            self._writer.wait()
        where = last_checkpoint_text(self.folder)
        return TrainingError(
            f"training broke at step {step}: {what} of the replica with seed {seed} is not finite; {where}. A smaller "
            "learning_rate may help",
            seed,
        )

    # Likelihoods --------------------------------------------------------------------------------------

    def _evaluate(self) -> dict[str, Any]:
        """Log-likelihood of all splits, a line of the metrics log; keeps the best parameters of each replica."""
        self._check()
        now = {**self.engine.update.result}
        now["activity"] = mean_activity(self._boltzmann(now), self.data.pixels, self._splits["train"])
        log_z = log_z_of_replicas(
            self._boltzmann(now),
            temperatures=self.config.validation_temperatures,
            chains=self.config.validation_chains,
            seeds=self.config.seeds,
            guarded=False,
            exact_units=EXACT,
            base=activity_base(now["activity"]),
            progress=self._progress("validation"),
        )
        each = self._likelihoods(now, log_z)
        for replica, (seed, value) in enumerate(zip(self.config.seeds, each["valid"].value.tolist(), strict=True)):
            if not math.isfinite(value):
                raise self._broke(self.engine.steps, "the validation log-likelihood", seed)
            before = self.found[replica]
            if before is None or value > before["valid"]:
                self.best = self.best or {name: tensor.clone() for name, tensor in now.items()}
                self.found[replica] = {"step": self.engine.steps, "valid": value}
                for name, tensor in now.items():
                    self.best[name][replica].copy_(tensor[replica])
        return {
            "step": self.engine.steps,
            "kind": "valid",
            "seconds": round(self.seconds, 3),
            **{split: found.value.tolist() for split, found in each.items()},
            **{f"{split}_standard_error": found.standard_error.tolist() for split, found in each.items()},
            **{f"{split}_low": found.lower.tolist() for split, found in each.items()},
            **{f"{split}_high": found.upper.tolist() for split, found in each.items()},
            "log_z": log_z.value.tolist(),
            "log_z_low": log_z.lower.tolist(),
            "log_z_high": log_z.upper.tolist(),
            **self.engine.report(),
        }

    def _boltzmann(self, tensors: dict[str, Tensor]) -> Boltzmann:
        prior = empty_parameters(self.shape, len(self.config.seeds)).to(self.device).requires_grad_(False)
        prior.load_state_dict({name: tensors[name] for name in ("bias", "weight")})
        return prior(validate=False)

    def _likelihoods(self, tensors: dict[str, Tensor], log_z: Any) -> dict[str, LogLikelihood]:
        boltzmann = self._boltzmann(tensors)
        return {name: log_likelihood(boltzmann, self.data.pixels, table, log_z) for name, table in self._splits.items()}

    def _test(self) -> list[BoltzmannResult]:
        """Evaluate the best parameters with a long estimate of log Z, and write `result.json`."""
        config, boltzmann = self.config, self._boltzmann(self.best)
        rows = self._splits["train"][:STARTS].to(self.best["bias"])
        starts = joint_means(VisibleMarginal(boltzmann, self.data.pixels), rows.expand(len(config.seeds), *rows.shape))
        log_z = log_z_of_replicas(
            boltzmann,
            temperatures=config.test_temperatures,
            chains=config.test_chains,
            seeds=config.seeds,
            base=activity_base(self.best["activity"]),
            states=starts.round(),
            progress=self._progress("test"),
        )
        log_z = without_rounded(log_z, boltzmann, torch.float64)
        each, baseline = self._likelihoods(self.best, log_z), -float(bernoulli_nll(self.data.train, self.data.test).nll)
        test, results = each["test"], []
        for i, (seed, best) in enumerate(zip(config.seeds, self.found, strict=True)):
            if not math.isfinite(float(test.value[i])):
                raise self._broke(config.steps, "the test log-likelihood", seed)
            results.append(
                BoltzmannResult(
                    seed=seed,
                    steps=config.steps,
                    best_step=0 if best is None else best["step"],
                    train=float(each["train"].value[i]),
                    valid=float(each["valid"].value[i]),
                    test=float(test.value[i]),
                    test_standard_error=finite(test.standard_error[i]),
                    test_low=finite(test.lower[i]),
                    test_high=finite(test.upper[i]),
                    log_z=float(log_z.value[i]),
                    log_z_low=finite(log_z.lower[i]),
                    log_z_high=finite(log_z.upper[i]),
                    log_z_method=method_text(log_z, i),
                    baseline=baseline,
                    rows=len(self.data.test),
                    seconds=round(self.seconds, 3),
                    warning="annealing misses states that a search found; only bounds of log Z hold"
                    if log_z.is_flagged(i)
                    else None,
                )
            )
        write_json(self.folder / RESULT, sealed([one.to_json() for one in results]))
        return results

    def _progress(self, what: str) -> Progress | None:
        if not self.callbacks.listens("phase"):
            return None
        return lambda name, done, total: self.callbacks.phase(f"{what}: {name}", done, total)

    # Checkpoints --------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._check()  # non-finite parameters are never saved
        if not (self.folder / RUN).exists():
            raise RunError(f"the run directory {self.folder} was moved or deleted during training; resume it there")
        meta = {"step": self.engine.steps, "seconds": self.seconds, "found": self.found}
        best = {"best": self.best} if self.best else {}
        # `best` first: a run that is killed between the two resumes from the older `last`.
        self._writer.save({**best, "last": self.engine.state()}, meta)

    def _load(self) -> None:
        tensors, meta = checkpoint.load(self.folder, "last")
        self.engine.load(tensors)
        self.seconds, self.found = meta["seconds"], meta["found"]
        if any(one is not None for one in self.found):
            best, meta = checkpoint.load(self.folder, "best")
            self.best, self.found = {name: value.to(self.device) for name, value in best.items()}, meta["found"]


def first_bits(data: Dataset) -> Tensor:
    """The first training data as bits; gray levels are binarized once, with a fixed seed.

    Args:
        data: Data set.

    Returns:
        Bits, `(at most TRAIN_ROWS, n)`.
    """
    rows = data.train[:TRAIN_ROWS].cpu()
    if data.binarization == "static":
        return rows
    return (torch.rand(rows.shape, generator=torch.Generator().manual_seed(0)) < rows).to(torch.uint8)
