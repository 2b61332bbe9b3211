"""The time model of a device: seconds per unit of each amount of work, and how the parts of a step add up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from softspin.timing.probes import Probes
from softspin.timing.work import PROBES, Amounts, StepWork

COEFFICIENTS = "coefficients.json"
"""File of the fitted models in this package; `python benchmarks/step_times.py --fit` writes it."""


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """Seconds per unit of work on a device.

        seconds of a step = max(main, sampler) + shared,

    because on a GPU the sampler runs on a side stream: its sequence of operations is hidden behind the main one (or
    the reverse), but work that fills the GPU takes its time on either stream. On a CPU the three parts are added.
    """

    device: str
    """Device of the measurements."""
    source: str
    """Number of cases, commit and date of the measurements."""
    probes: Probes
    """Times of this device in :func:`softspin.timing.probes.measure`."""
    side_stream: bool
    """Whether the sampler runs beside the rest."""
    seconds: Mapping[str, float]
    """Seconds per unit of each amount."""
    spread: float
    """Factor by which a measured time is above or below the estimate in at most 10% of the cases, each left out of the
    fit in turn."""

    def time(self, amounts: Amounts) -> float:
        """Seconds of amounts of work in sequence."""
        return sum(self.seconds.get(name, 0.0) * amount for name, amount in amounts.items())

    def step(self, work: StepWork) -> float:
        """Seconds of a training step."""
        main, sampler, shared = (self.time(part) for part in work)
        return (max(main, sampler) if self.side_stream else main + sampler) + shared

    def scaled(self, probes: Probes) -> TimeModel:
        """The model of another machine.

        Args:
            probes: Its measurement.

        Returns:
            The model, each time multiplied by the ratio of the probe that stands for it.
        """
        ratios = {name: value / getattr(self.probes, name) for name, value in probes._asdict().items()}
        seconds = {name: value * ratios.get(PROBES[name], 1.0) for name, value in self.seconds.items()}
        return dataclasses.replace(self, probes=probes, seconds=seconds)

    def to_json(self) -> dict[str, Any]:
        """The model as JSON."""
        return dataclasses.asdict(self) | {"probes": self.probes._asdict()}


def load_model(kind: str) -> TimeModel:
    """Load the fitted model.

    Args:
        kind: `"cuda"` or `"cpu"`.

    Returns:
        The model of the device of the benchmark.
    """
    values = json.loads(files("softspin.timing").joinpath(COEFFICIENTS).read_text(encoding="utf-8"))[kind]
    return TimeModel(**values | {"probes": Probes(**values["probes"])})
