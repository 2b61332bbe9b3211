"""Times of training steps that were measured alone on a device, for comparisons of methods by time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softspin.config import Count
from softspin.experiments.curves import TrainingCurve
from softspin.experiments.stored import read_records
from softspin.records import Provenance
from softspin.schema import Record

COMMAND = "benchmarks/step_times.py --table"


@dataclass(frozen=True, kw_only=True)
class StepTime(Record):
    """Time of a training step of a cell, with nothing else on the device."""

    cell: str
    """Cell of a table: data/structure/kK/method/sampler."""
    variant: Mapping[str, Any]
    """Settings that differ from those of the cell."""
    seeds: Count
    """Number of seeds that are trained at a time."""
    milliseconds: float
    provenance: Provenance

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)  # there were none; a line without a version is not a time

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes it from other times."""
        return _key(self.cell, self.variant, self.seeds)


def read_step_times(path: Path) -> list[StepTime]:
    """Read stored times.

    Args:
        path: A file of `benchmarks/step_times.py`; if it does not exist, there are no times.

    Returns:
        The times.

    Raises:
        RowsError: The file cannot be read, or a line is not a time.
    """
    return read_records(path, StepTime, COMMAND) if path.exists() else []


def timed(curves: Iterable[TrainingCurve], times: Sequence[StepTime]) -> list[TrainingCurve]:
    """Curves with times that follow from the time of a step.

    Args:
        curves: The curves.
        times: Times of steps. If there are none, curves keep the wall times of their runs, else those without one have
            no times, so that methods are compared by times of one kind.

    Returns:
        The curves.
    """
    if not times:
        return list(curves)
    by_key = {one.key: one.milliseconds / 1000 for one in times}
    found = []
    for curve in curves:
        seconds = by_key.get(_key(curve.cell, curve.variant, len(curve.seeds)))
        at = () if seconds is None else tuple(round(step * seconds, 3) for step in curve.at)
        found.append(dataclasses.replace(curve, seconds=at))
    return found


def _key(cell: str, variant: Mapping[str, Any], seeds: int) -> tuple[object, ...]:
    return cell, json.dumps(dict(variant), sort_keys=True), seeds
