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
    """The time of work on a device: amounts, times the seconds per unit by a probe, times a fitted factor.

        seconds of a step = max(main, sampler) + shared,

    because on a GPU the sampler runs on a side stream: its sequence of operations is hidden behind the main one (or
    the reverse), but work that fills the GPU takes its time on either stream. On a CPU the three parts are added.
    """

    device: str
    """Device of the measurements."""
    source: str
    """Number of cases, commit and date of the measurements."""
    probes: Probes
    """Seconds per unit. Those of another machine give the model of that machine."""
    side_stream: bool
    """Whether the sampler runs beside the rest."""
    factors: Mapping[str, float]
    """Fitted factor of each amount: about 1 if the probe is typical of it, 0 if other amounts represent it, and 1 if no
    case depended on it."""
    spread: float
    """Factor within which 90% of the cases lie, each left out of the fit in turn."""

    def time(self, amounts: Amounts) -> float:
        """Seconds of amounts of work in sequence."""
        unit = self.probes._asdict()
        return sum(self.factors.get(name, 1.0) * unit.get(PROBES[name], 1.0) * amounts[name] for name in amounts)

    def step(self, work: StepWork) -> float:
        """Seconds of a training step."""
        main, sampler, shared = (self.time(part) for part in work)
        return (max(main, sampler) if self.side_stream else main + sampler) + shared

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
