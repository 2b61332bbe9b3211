"""How long a run will take, from what others took: rows of the same structure, or the benchmark of the GPU step."""

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
"""In a checkout."""


class Work(NamedTuple):
    """What the time of a run depends on."""

    data: str
    structure: str
    method: str
    sampler: str
    samples: int
    replicas: int
    steps: int
    variant: Mapping[str, Any]


class Timing(NamedTuple):
    """A measured run, or update."""

    work: Work
    seconds: float
    device: str


class Estimate(NamedTuple):
    """Seconds of training, without the evaluation at its end."""

    seconds: float
    exact_match: bool
    """Whether runs of exactly this work were measured; otherwise it is scaled from others."""


def work_of(config: Config, variant: Mapping[str, Any]) -> Work:
    """The work of a config."""
    return Work(
        config.data, config.structure, config.method, config.sampler, config.importance_samples,
        len(config.replicas), config.steps, variant,
    )  # fmt: skip


def measured(rows: Iterable[ResultRow], benchmark: Path | None = None) -> list[Timing]:
    """All measurements: of the rows that are results and, if that file is there, of the benchmark."""
    found = []
    for row in rows:
        device = row.provenance.device
        if row.ok and row.config is not None and row.training_seconds is not None and device is not None:
            with contextlib.suppress(SoftspinError):  # a config of another version says nothing of this one's times
                work = work_of(Config.from_dict(row.config), row.variant)
                found.append(Timing(work, row.training_seconds, device))
    return found + (_benchmark(benchmark) if benchmark is not None and benchmark.is_file() else [])


def _benchmark(path: Path) -> list[Timing]:
    """Its cases are one update each, of the recipe's nets; those without compilation do not count."""
    found = []
    try:
        for case in json.loads(path.read_text(encoding="utf-8")):
            what = dict(case["what"])
            if "compile" not in what:
                sampler, variant = what.get("sampler", "pcd"), {"tf32": True} if what.get("tf32") else {}
                work = Work("", "2-nonlinear", "", sampler, what["samples"], what["replicas"], 1, variant)
                found.append(Timing(work, case["ms"]["median"] / 1000, f"cuda {case['device']}"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RowsError(f"{path} is not what the benchmark writes: {error!r}") from None
    return found


def device_of(found: list[Timing], here: str) -> str | None:
    """The device whose measurements count: this one, or else that of the latest; None if there are none."""
    devices = [timing.device for timing in found]
    return here if here in devices else devices[-1] if devices else None


def estimate(work: Work, found: Iterable[Timing]) -> Estimate | None:
    """The time of a work, or None where nothing of its structure and variant was measured.

    Time grows with steps in proportion, with samples and replicas at most so: each measurement of the method gives an
    upper bound, and the least of them is taken. Other methods, and the benchmark, which has updates alone, only guide.
    """
    found = [one for one in found if (one.work.structure, one.work.variant) == (work.structure, work.variant)]
    if same := [one.seconds for one in found if one.work == work]:
        return Estimate(median(same), True)
    found = [one for one in found if one.work.method == work.method] or found
    return Estimate(min(_upper_bound(work, one) for one in found), False) if found else None


def _upper_bound(work: Work, timing: Timing) -> float:
    ratios = (getattr(work, name) / getattr(timing.work, name) for name in ("samples", "replicas"))
    return timing.seconds * work.steps / timing.work.steps * math.prod(max(1.0, ratio) for ratio in ratios)
