"""The cost table of the documentation: packing of runs onto GPUs."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import pytest

HOOK = Path(__file__).parents[2] / "docs/hooks/costs.py"


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("costs", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_longest_job_goes_first(costs: ModuleType) -> None:
    """Graham's worst case for three machines ends at 11, where 9 is possible."""
    assert costs.longest_first([3, 5, 4, 3, 5, 3, 4], 3) == 11
    assert costs.longest_first([3, 5, 4], 1) == 12
    assert costs.longest_first([3, 5, 4], 9) == 5


def test_the_packing_is_within_the_bound_of_graham(costs: ModuleType) -> None:
    jobs = [7.0, 6.5, 5.0, 4.5, 4.0, 2.0, 1.5]
    for machines in (2, 3):
        best = min(
            max(
                sum(job for job, own in zip(jobs, places, strict=True) if own == machine) for machine in range(machines)
            )
            for places in itertools.product(range(machines), repeat=len(jobs))
        )
        assert best <= costs.longest_first(jobs, machines) <= (4 / 3 - 1 / (3 * machines)) * best


def test_the_table_has_a_row_for_each_number_of_gpus(costs: ModuleType) -> None:
    lines = costs.cost_table().splitlines()[2:]
    assert [int(line.split("|")[1]) for line in lines] == [1, 8, 64]
    hours = [float(line.split("|")[2].removesuffix("h ").replace(",", "")) for line in lines]
    assert hours[0] > hours[1] > hours[2] >= float(costs._hours(max(costs._times()["seconds"])))
    assert hours[0] / 8 == pytest.approx(hours[1], rel=0.05)
