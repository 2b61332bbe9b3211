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
from softspin.experiments.rows import Row

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


class Took(NamedTuple):
    """A measurement."""

    work: Work
    seconds: float
    device: str


class Estimate(NamedTuple):
    """Seconds of training, without the evaluation at its end."""

    seconds: float
    alike: bool
    """Whether runs of just this work took that long; otherwise it is scaled from others."""


def work_of(config: Config, variant: Mapping[str, Any]) -> Work:
    """The work of a config."""
    return Work(
        config.data, config.structure, config.method, config.sampler, config.samples,
        len(config.replicas), config.steps, variant,
    )  # fmt: skip


def measured(rows: Iterable[Row], benchmark: Path | None = None) -> list[Took]:
    """All measurements: of the rows that are results and, if that file is there, of the benchmark."""
    found = []
    for row in rows:
        if row["status"] == "ok" and {"config", "training_seconds", "device"} <= row.keys():
            with contextlib.suppress(SoftspinError):  # a config of another version says nothing of this one's times
                work = work_of(Config.from_dict(row["config"]), row["variant"])
                found.append(Took(work, row["training_seconds"], row["device"]))
    return found + (_benchmark(benchmark) if benchmark is not None and benchmark.is_file() else [])


def _benchmark(path: Path) -> list[Took]:
    """Its cases are one update each, of the recipe's nets; those without compilation do not count."""
    found = []
    try:
        for case in json.loads(path.read_text(encoding="utf-8")):
            what = dict(case["what"])
            if "compile" not in what:
                sampler, variant = what.get("sampler", "pcd"), {"tf32": True} if what.get("tf32") else {}
                work = Work("", "2-nonlinear", "", sampler, what["samples"], what["replicas"], 1, variant)
                found.append(Took(work, case["ms"]["median"] / 1000, f"cuda {case['device']}"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RowsError(f"{path} is not what the benchmark writes: {error!r}") from None
    return found


def device_of(found: list[Took], here: str) -> str | None:
    """The device whose measurements count: this one, or else that of the latest; None if there are none."""
    devices = [took.device for took in found]
    return here if here in devices else devices[-1] if devices else None


def estimate(work: Work, found: Iterable[Took]) -> Estimate | None:
    """The time of a work, or None where nothing of its structure and variant was measured.

    Time grows with steps in proportion, with samples and replicas at most so: each measurement of the method gives an
    upper bound, and the least of them is taken. Other methods, and the benchmark, which has updates alone, only guide.
    """
    found = [took for took in found if (took.work.structure, took.work.variant) == (work.structure, work.variant)]
    if same := [took.seconds for took in found if took.work == work]:
        return Estimate(median(same), True)
    found = [took for took in found if took.work.method == work.method] or found
    return Estimate(min(_most(work, took) for took in found), False) if found else None


def _most(work: Work, took: Took) -> float:
    ratios = (getattr(work, name) / getattr(took.work, name) for name in ("samples", "replicas"))
    return took.seconds * work.steps / took.work.steps * math.prod(max(1.0, ratio) for ratio in ratios)
