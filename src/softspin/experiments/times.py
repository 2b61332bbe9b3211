"""Estimates of training time, from result rows of the same structure, or from the benchmark of the GPU step."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from softspin.config import Config
from softspin.errors import RowsError, SoftspinError
from softspin.records import ResultRow

BENCHMARK = Path("benchmarks", "results", "gpu_step.json")
"""File of the benchmark in a clone of the repository."""


class Work(NamedTuple):
    """Settings on which the training time depends."""

    data: str
    structure: str
    method: str
    sampler: str
    samples: int
    replicas: int
    steps: int
    variant: Mapping[str, Any]


class Timing(NamedTuple):
    """Measured time of a run, or of an update."""

    work: Work
    seconds: float
    device: str


class Estimate(NamedTuple):
    """Estimated seconds of training, without the evaluation at the end."""

    seconds: float
    exact_match: bool
    """Whether runs with the same settings were measured; otherwise the estimate is scaled from others."""


def work_of(config: Config, variant: Mapping[str, Any]) -> Work:
    """Settings of a config on which the training time depends."""
    return Work(
        config.data, config.structure, config.method, config.sampler, config.importance_samples,
        len(config.replicas), config.steps, variant,
    )  # fmt: skip


def measured(rows: Iterable[ResultRow], benchmark: Path | None = None) -> list[Timing]:
    """Collect measurements.

    Args:
        rows: Result rows; failed ones are ignored.
        benchmark: Results of the benchmark of the GPU step; ignored if the file does not exist.

    Returns:
        All timings.

    Raises:
        RowsError: The file of the benchmark is invalid.
    """
    found = []
    for row in rows:
        device = row.provenance.device
        if row.ok and row.config is not None and row.training_seconds is not None and device is not None:
            with contextlib.suppress(SoftspinError):  # times of an incompatible version are not comparable
                work = work_of(Config.from_dict(row.config), row.variant)
                found.append(Timing(work, row.training_seconds, device))
    return found + (_benchmark(benchmark) if benchmark is not None and benchmark.is_file() else [])


def _benchmark(path: Path) -> list[Timing]:
    """Timings of the benchmark: one update of the recipe's networks each; uncompiled ones are ignored."""
    found = []
    try:
        for case in json.loads(path.read_text(encoding="utf-8")):
            what = dict(case["what"])
            if "compile" not in what:
                sampler, variant = what.get("sampler", "pcd"), {"tf32": True} if what.get("tf32") else {}
                work = Work("", "2-nonlinear", "", sampler, what["samples"], what["replicas"], 1, variant)
                found.append(Timing(work, case["ms"]["median"] / 1000, f"cuda {case['device']}"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RowsError(f"{path} is not a result of the benchmark: {error!r}") from None
    return found


def device_of(found: list[Timing], here: str) -> str | None:
    """The device whose timings are used: this one, or else that of the latest timing; None if there are none."""
    devices = [timing.device for timing in found]
    return here if here in devices else devices[-1] if devices else None


def estimate(work: Work, found: Iterable[Timing]) -> Estimate | None:
    """Estimate the training time.

    Time is proportional to steps, and grows at most proportionally with samples and replicas. Each timing of the same
    method therefore gives an upper bound, and the lowest one is used. Other methods and the benchmark are used only if
    there is no timing of the method.

    Args:
        work: Settings of the run.
        found: Timings, see :func:`measured`.

    Returns:
        The estimate, or None if no run of the same structure and variant was measured.
    """
    found = [one for one in found if (one.work.structure, one.work.variant) == (work.structure, work.variant)]
    if same := [one.seconds for one in found if one.work == work]:
        return Estimate(median(same), True)
    found = [one for one in found if one.work.method == work.method] or found
    return Estimate(min(_upper_bound(work, one) for one in found), False) if found else None


def _upper_bound(work: Work, timing: Timing) -> float:
    ratios = (getattr(work, name) / getattr(timing.work, name) for name in ("samples", "replicas"))
    return timing.seconds * work.steps / timing.work.steps * math.prod(max(1.0, ratio) for ratio in ratios)
