"""Pictures of a run, drawn into its directory during training without touching its random state."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.evaluation import pictures
from softspin.evaluation.conditional import encoded_conditions
from softspin.files import write_bytes
from softspin.formatting import replica_name
from softspin.training import journal
from softspin.training.run_files import RUN
from softspin.training.trainer import Trainer

CURVES = ("step", "kind", "bound", "nll", "reconstruction", "kl", "log_z", "sampler")
SHARE = 0.05
"""Largest share of the time spent on pictures before the end of training."""
SAMPLES, IMAGES = 64, 20


class PlotCallback:
    """A callback that draws the first replica after each validation, and one replica at the end; curves are of all.

    Args:
        trainer: Trainer of the run.
        warn: Called with the reason why a picture cannot be drawn.
    """

    def __init__(self, trainer: Trainer, warn: Callable[[str], None]) -> None:
        self.trainer = trainer
        self.paths: list[Path] = []
        """The pictures that were drawn last."""
        self._warn = warn
        self._warned: set[str] = set()
        self._rested, self._cost = time.monotonic(), 0.0

    def report(self, line: Mapping[str, Any]) -> None:
        rest = time.monotonic() - self._rested
        if line["kind"] == "valid" and self._cost <= SHARE * rest:
            update = self.trainer.engine.update
            z = update.sampler.samples(update.sampler_state)
            condition = self.trainer.engine.model.condition
            if condition is None:
                self._draw(z[:, :: max(1, z.shape[1] // SAMPLES)][:, :SAMPLES])
            else:  # some chains of each value
                each = z.unflatten(0, (-1, condition.count))[:, :, : max(1, SAMPLES // condition.count)]
                self._draw(each.flatten(1, 2), condition=condition.values.repeat_interleave(each.shape[2], 0))

    def draw_best(self, sample_bits: Callable[[int, Any], Tensor], replica: int) -> None:
        """Draw the best parameters of one replica.

        Args:
            sample_bits: Draws so many samples `(n, D)` of its prior, given a condition for each or None.
            replica: Its number.
        """
        condition, given, raw = self.trainer.engine.model.condition, None, None
        if condition is not None:
            some = torch.arange(condition.count).repeat_interleave(max(1, SAMPLES // condition.count))[:SAMPLES]
            given, raw = condition.values[some], condition.table.as_given(condition.table.raw_values()[some])
        try:
            z = sample_bits(SAMPLES if given is None else len(given), raw)
        except Exception as error:
            self._complain(error)
        else:
            self._draw(z.expand(self.trainer.engine.model.replicas, *z.shape), replica, given)

    def _draw(self, z: Tensor, replica: int = 0, condition: Tensor | None = None) -> None:
        started = time.monotonic()
        trainer, model = self.trainer, self.trainer.engine.model
        folder, shape = trainer.folder, trainer.data.shape
        shown = encoded_conditions(model, trainer.data)
        labels = [replica_name(replica) for replica in trainer.config.replicas]
        images, sampler = trainer.data.test[:IMAGES], trainer.config.sampler
        drawings: dict[str, Callable[[Path], Path]] = {
            "samples.png": lambda path: pictures.samples(model, z, shape, path, replica=replica, condition=condition),
            "reconstructions.png": lambda path: pictures.reconstructions(
                model, images, shape, path, replica=replica, condition=None if shown is None else shown[2][:IMAGES]
            ),
            "curves.png": lambda path: pictures.curves(
                _curves(folder), path, labels=labels, sampler=sampler, unit=model.likelihood.unit
            ),
            "couplings.png": lambda path: pictures.couplings(model, path, replica=replica),
        }
        self.paths = []
        for name, draw in drawings.items():
            if not (folder / RUN).exists():
                break  # moved or deleted, which the trainer will report
            try:
                self.paths.append(_draw_into(folder / name, draw))
            except Exception as error:  # a failed picture must never end a run
                self._complain(error)
        self._rested = time.monotonic()
        self._cost = self._rested - started

    def _complain(self, error: Exception) -> None:
        """Warn of each error once: the next validation would repeat it."""
        text = " ".join(str(error).split()) or type(error).__name__
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"no picture: {text}")


def _draw_into(path: Path, draw: Callable[[Path], Path]) -> Path:
    """Draw a picture elsewhere and write it, so that a directory that was moved meanwhile is not made again."""
    with tempfile.TemporaryDirectory() as elsewhere:
        write_bytes(path, draw(Path(elsewhere) / path.name).read_bytes())
    return path


def _curves(folder: Path) -> list[dict[str, Any]]:
    """The lines of the metrics log, and of those what has a curve."""
    return [{name: row[name] for name in CURVES if name in row} for row in journal.read(folder)]
