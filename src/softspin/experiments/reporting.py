"""Progress and warnings of runs: from the steps of one to the remaining time of a grid."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from softspin.config import Config
from softspin.errors import DeviceError, UnknownNameError
from softspin.experiments.launchers import Progress, Report
from softspin.experiments.runs import RunSpec
from softspin.provenance import find_device
from softspin.timing import Estimator

REPORT_SECONDS = 0.5
"""Seconds between two reports of one run: a GPU makes thousands of steps a second."""
UNKNOWN_STEP_SECONDS = 1e-3
"""Assumed time of a step if the time model does not cover a config; only ratios between runs matter."""


class Reporter:
    """Callback of a training that reports progress at regular times.

    Args:
        spec: The run.
        report: Called with its progress.
    """

    def __init__(self, spec: RunSpec, report: Report) -> None:
        self.progress = Progress(spec, spec.step)
        self._report = report
        self._reported = 0.0

    def report(self, line: Mapping[str, Any]) -> None:
        """Note bound and validation NLL, as means over replicas."""
        name = "bound" if line["kind"] == "train" else "nll"
        self.progress = self.progress._replace(**{name: sum(line[name]) / len(line[name]), "step": line["step"]})
        if line["kind"] == "valid":
            self._send()

    def step(self, step: int) -> None:
        """Report, unless the last report was moments ago."""
        self.progress = self.progress._replace(step=step)
        if time.monotonic() - self._reported > REPORT_SECONDS:
            self._send()

    def _send(self) -> None:
        self._report(self.progress)
        self._reported = time.monotonic()


class WorkerWarnings:
    """Repeats warnings of workers in this process, each text once: the runs of a grid give the same ones."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, text: str, spec: RunSpec | None) -> None:
        """Warn, unless the text was shown before.

        Args:
            text: Message of a worker.
            spec: Its run, which is named; None for a worker without one.
        """
        if text not in self._shown:
            self._shown.add(text)
            warnings.warn(text if spec is None else f"{spec.cell.id}: {text}", stacklevel=2)


def step_seconds(config: Config) -> float:
    """Estimated seconds of a step, including its share of start, validations and test.

    Args:
        config: Settings of a run.

    Returns:
        The estimate of :mod:`softspin.timing`, or a constant if its model does not cover the config or the device.
    """
    estimator = _estimator(config.device)
    try:
        estimate = None if estimator is None else estimator.run(config)
    except UnknownNameError:  # the run fails, and says so
        estimate = None
    return UNKNOWN_STEP_SECONDS if estimate is None else estimate.seconds / config.steps


@functools.cache
def _estimator(device: str) -> Estimator | None:
    try:
        return Estimator(find_device(device))
    except DeviceError:  # the runs train on another machine
        return None


class RemainingTime:
    """Remaining time of a grid, whose runs differ in cost.

    Steps are weighted by their estimated time, so that only the ratio of estimated and actual speed is measured.

    Args:
        specs: All runs, at the steps from which they start.
        weight: Estimated seconds of a step of a config.
        clock: Source of the time.
    """

    def __init__(
        self,
        specs: Iterable[RunSpec],
        weight: Callable[[Config], float] = step_seconds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._weight, self._clock = weight, clock
        self._left: dict[str, float] = {}
        self.done = 0.0
        """Work done so far, in estimated seconds of one run at a time."""
        self._start: tuple[float, float] | None = None
        for spec in specs:
            self.add(spec)

    def add(self, spec: RunSpec) -> None:
        """Add a run, or set it back to its last checkpoint."""
        self._left[str(spec.folder)] = (spec.config.steps - spec.step) * self._weight(spec.config)

    def see(self, progress: Progress) -> None:
        """Note the progress of a run."""
        config = progress.spec.config
        self._advance(progress.spec, (config.steps - progress.step) * self._weight(config))

    def end(self, spec: RunSpec) -> None:
        """Remove a run, which has ended by whatever cause."""
        self._advance(spec, 0.0)

    def _advance(self, spec: RunSpec, left: float) -> None:
        self.done += max(self._left.get(str(spec.folder), left) - left, 0.0)
        self._left[str(spec.folder)] = left
        if self._start is None:  # not before the first progress: the start of a worker is slow
            self._start = self._clock(), self.done

    def seconds(self) -> float | None:
        """Estimate the time that is left.

        Returns:
            Seconds; None before there is any progress.
        """
        if self._start is None or self.done == self._start[1]:
            return None
        rate = (self.done - self._start[1]) / max(self._clock() - self._start[0], 1e-9)
        return sum(self._left.values()) / rate
