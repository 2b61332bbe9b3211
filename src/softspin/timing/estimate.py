"""The estimated time of a run: start, steps, reports, validations and the final test, with an interval."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import torch

from softspin import data as datasets
from softspin.config import Config
from softspin.errors import SoftspinError, UnknownNameError
from softspin.evaluation.partition import EXACT
from softspin.formatting import duration
from softspin.timing.machine import known_machine, machine_name, measure_machine
from softspin.timing.model import load_model
from softspin.timing.work import DataSizes, anneal_work, evaluation_work, is_modelled, start_work, step_work
from softspin.training.results import MORE_SAMPLES_IMAGES
from softspin.training.trainer import AIS_REPORT_INTERVAL, REPORT_AIS

SCALED_SPREAD = 1.2
"""Factor on the spread of an estimate that is scaled to another machine."""
OUTPUT = 0.05
"""Seconds for the pictures, checkpoint and log line of a validation: 0.054 on one core, for 39 validations of a model
of 16 bits on digits8x8; 0.017 without pictures."""
PAPER_SIZES = {"mnist": DataSizes(784, 50_000, 10_000, 10_000), "omniglot": DataSizes(784, 23_000, 1_345, 8_070)}
"""Sizes of the data sets of the paper, which need not be loaded for an estimate."""


@dataclass(frozen=True)
class Estimate:
    """Seconds with an interval."""

    seconds: float
    low: float
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        """The sum. Its interval is the sum of the intervals, because the errors of similar runs are similar."""
        return Estimate(self.seconds + other.seconds, self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"about {duration(self.seconds)}, {self.interval}"

    @property
    def interval(self) -> str:
        """The interval as text."""
        return f"{duration(self.low)} to {duration(self.high)}"

    def to_json(self) -> dict[str, float]:
        """Rounded to seconds."""
        return {name: round(value) for name, value in dataclasses.asdict(self).items()}


class Estimator:
    """Estimates training times on one device.

    The times are those of the benchmark, scaled by a measurement of the device if there is one.

    Args:
        device: Device of training.
        measure: Whether to measure the device now, which takes seconds.
        benchmark: Whether the estimates are for the device of the benchmark, which need not be in this machine.
    """

    def __init__(self, device: torch.device, *, measure: bool = False, benchmark: bool = False) -> None:
        self._model = load_model(device.type)
        self._device_type = device.type
        probes = None if benchmark else measure_machine(device) if measure else known_machine(device)
        own = self._model.device if benchmark else machine_name(device)
        # The name of a CPU says little about its speed, so only a GPU is recognized as that of the benchmark.
        is_same = benchmark or (device.type == "cuda" and own == self._model.device)
        self.is_measured = probes is not None or is_same
        """Whether estimates are for this device; otherwise they are for that of the benchmark."""
        self.machine = own if self.is_measured else self._model.device
        """The machine that estimates are for."""
        self._spread = self._model.spread * (1.0 if is_same else SCALED_SPREAD)
        if probes is not None and not is_same:
            self._model = dataclasses.replace(self._model, probes=probes)

    def run(self, config: Config, data: DataSizes | None = None, step: int = 0) -> Estimate | None:
        """Estimate the time of a run.

        Args:
            config: Settings of the run.
            data: Sizes of the data; None for the data set that the config names.
            step: Number of steps made before.

        Returns:
            The estimate; None if the model does not cover a part of the config, or the data cannot be loaded.
        """
        data = data or data_sizes(config.data)
        if data is None or not is_modelled(config, self._device_type):
            return None
        if config.condition != "none" and (config.condition != "auto" or data.has_condition):
            return None  # the cost of conditions has not been measured
        left, every = config.steps - step, config.intervals
        reports = (left - 1) // every.report + 1 if every.report >= AIS_REPORT_INTERVAL else 0
        validations = (left - 1) // every.evaluate + 1 if left else 0
        validated = 2 if config.ema_decay else 1  # models in each validation: the parameters, and their average
        ends = [*(phase.start for phase in config.phases[1:]), config.steps]
        phases = [
            (config.in_phase(phase), end - max(step, phase.start))
            for phase, end in zip(config.phases, ends, strict=True)
            if end > step
        ]  # each is compiled and captured
        seconds = (
            sum(self._model.time(start_work(one)) for one, _ in phases or [(config, 0)])
            + sum(count * self._model.step(step_work(one, data)) for one, count in phases)
            + reports * self._log_z(config, **REPORT_AIS)
            + validated * validations * self._log_z(config, config.validation_temperatures, config.validation_chains)
            + validations * OUTPUT
            + validated * validations * self._likelihood(config, data, data.valid, config.validation_samples)
            + 2 * self._log_z(config, config.test_temperatures, config.test_chains)
            + self._likelihood(config, data, data.test, config.test_samples)
            + self._more_samples(config, data)
        )
        return Estimate(seconds, seconds / self._spread, seconds * self._spread)

    def _log_z(self, config: Config, temperatures: int, chains: int) -> float:
        exact = config.shape.units // 2 <= EXACT
        return 0.0 if exact else self._model.time(anneal_work(config, temperatures, chains))

    def _more_samples(self, config: Config, data: DataSizes) -> float:
        images, samples = min(data.test, MORE_SAMPLES_IMAGES), config.more_test_samples
        return 0.0 if samples is None else self._likelihood(config, data, images, config.test_samples + samples)

    def _likelihood(self, config: Config, data: DataSizes, images: int, samples: int) -> float:
        return self._model.time(evaluation_work(config, data, images, samples))


@functools.cache
def data_sizes(name: str) -> DataSizes | None:
    """Sizes of a data set.

    Args:
        name: Name or path, as in a config.

    Returns:
        The sizes; None if the data cannot be loaded. Nothing is downloaded.

    Raises:
        UnknownNameError: There is no such data set.
    """
    if name in PAPER_SIZES:
        return PAPER_SIZES[name]
    try:
        return sizes_of(datasets.load(name, download=False))
    except UnknownNameError:
        raise
    except SoftspinError:
        return None


def sizes_of(data: datasets.Dataset) -> DataSizes:
    """Sizes of a loaded data set."""
    return DataSizes(
        data.pixels, len(data.train), len(data.valid), len(data.test), has_condition=data.condition is not None
    )
