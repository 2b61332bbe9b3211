"""Pictures of a run, drawn into its folder as training goes. They only look: no random stream of the run moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from softspin.api import Model
from softspin.cli.console import warn
from softspin.cli.runs import picture_shape
from softspin.errors import SoftspinError
from softspin.evaluation import pictures
from softspin.training import journal
from softspin.training.trainer import Trainer

CURVES = ("step", "bound", "nll", "reconstruction", "kl", "log_z", "sampler")
SHARE = 0.05
"""Of the time, at most, goes into pictures before the end."""
SAMPLES, IMAGES = 64, 20


class Gallery:
    """A watcher that draws the first replica after validations, and all that there is at the end."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.paths: list[Path] = []
        self.on = True
        self._rested, self._cost = time.monotonic(), 0.0

    def report(self, line: Mapping[str, Any]) -> None:
        rest = time.monotonic() - self._rested
        if line["kind"] == "valid" and self._cost <= SHARE * rest:
            z = self.trainer.engine.sampler.z
            self._draw(z[:, :: max(1, z.shape[1] // SAMPLES)][:, :SAMPLES])

    def step(self, step: int) -> None:
        pass

    def finish(self, model: Model) -> None:
        """The best model, with samples that are annealed anew."""
        if self.on:
            z = model.sample_bits(SAMPLES)
            self._draw(z.expand(model.net.replicas, *z.shape))

    def _draw(self, z: Tensor) -> None:
        if not self.on:
            return
        began = time.monotonic()
        trainer, model = self.trainer, self.trainer.engine.model
        folder, shape = trainer.folder, picture_shape(trainer.data.shape)
        rows = [{name: row[name] for name in CURVES if name in row} for row in journal.read(folder)]
        drawings: list[Callable[[], Path]] = [
            lambda: pictures.samples(model, z, shape, folder / "samples.png"),
            lambda: pictures.reconstructions(model, trainer.data.test[:IMAGES], shape, folder / "reconstructions.png"),
            lambda: pictures.curves(rows, folder / "curves.png"),
            lambda: pictures.couplings(model, folder / "couplings.png"),
        ]
        try:
            self.paths = [draw() for draw in drawings]
        except (SoftspinError, OSError) as error:
            self.on = False
            warn(f"no pictures: {error}")
        self._rested = time.monotonic()
        self._cost = self._rested - began
