"""Estimates of training time: measured, bounded by other measurements, or unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_rows import made_row

from softspin.config import Config
from softspin.errors import RowsError
from softspin.experiments.times import Estimate, Timing, device_of, estimate, measured, work_of


def timing(seconds: float, variant: dict[str, Any] | None = None, device: str = "gpu", **changes: Any) -> Timing:
    return Timing(work_of(Config(**({"data": "mnist"} | changes)), variant or {}), seconds, device)


def test_the_same_work_has_the_median_time() -> None:
    found = [timing(10), timing(14), timing(15), timing(1, importance_samples=25), timing(2, method="dvae#-exp")]
    assert estimate(timing(0).work, found) == Estimate(14, True)


def test_other_work_is_bounded_proportionally() -> None:
    found = [timing(10, importance_samples=5, seeds=(0, 1), steps=1000)]
    for changes, most in (
        ({"importance_samples": 25}, 50),
        ({"importance_samples": 1}, 10),
        ({"seeds": (0, 1, 2, 3, 4)}, 25),
        ({"seeds": (0,)}, 10),
        ({"steps": 4000}, 40),
        ({"steps": 20}, 0.2),
        ({"data": "omniglot"}, 10),
        ({"importance_samples": 10, "steps": 2000, "seeds": (7, 8, 9)}, 60),
    ):
        had: dict[str, Any] = {"importance_samples": 5, "seeds": (0, 1), "steps": 1000}
        assert estimate(timing(0, **had | changes).work, found) == Estimate(most, False)
    found = [timing(10, importance_samples=5), timing(90, importance_samples=20)]
    assert estimate(timing(0, importance_samples=10).work, found) == Estimate(20, False)


def test_the_same_method_is_preferred() -> None:
    found = [timing(1, method="dvae#-exp"), timing(5, importance_samples=5)]
    assert estimate(timing(0).work, found) == Estimate(5, False)
    assert estimate(timing(0, method="dvae++-exp").work, found) == Estimate(1, False)


def test_other_structures_and_variants_are_not_used() -> None:
    found = [timing(1, structure="1-linear"), timing(2, {"tf32": True})]
    assert estimate(timing(0).work, found) is None
    assert estimate(timing(0, {"tf32": True}).work, found) == Estimate(2, True)
    assert estimate(timing(0).work, []) is None


def test_timings_of_this_device_are_preferred() -> None:
    found = [timing(1, device="a"), timing(1, device="b"), timing(1, device="c")]
    assert [device_of(found, here) for here in ("b", "x")] == ["b", "c"]
    assert device_of([], "b") is None


def test_timings_come_from_rows_and_from_the_benchmark(tmp_path: Path) -> None:
    config = Config(data="mnist", seeds=(0, 1)).to_dict()
    row = made_row(config=config, training_seconds=7.0, device="cuda H")
    failed = made_row("failed", config=config)
    path = tmp_path / "gpu_step.json"
    older = made_row(config={**config, "a_setting_of_old": 1}, training_seconds=7.0, device="cuda H")
    assert measured([older, row, failed], path) == [timing(7, device="cuda H", seeds=(0, 1))]
    cases = [
        {"what": {"replicas": 1, "samples": 1, "seeds": 1}, "ms": {"median": 0.5}, "device": "H"},
        {"what": {"replicas": 20, "samples": 1, "tf32": True, "seeds": 20}, "ms": {"median": 2}, "device": "H"},
        {"what": {"replicas": 1, "samples": 1, "compile": "off", "seeds": 1}, "ms": {"median": 0.1}, "device": "H"},
    ]
    path.write_text(json.dumps(cases))
    found = measured([], path)
    assert {one.device for one in found} == {"cuda H"}
    assert estimate(timing(0).work, found) == pytest.approx((500, False))
    assert estimate(timing(0, importance_samples=25).work, found) == pytest.approx((12500, False))
    assert estimate(timing(0, {"tf32": True}).work, found) == pytest.approx((2000, False))
    path.write_text("[1]")
    with pytest.raises(RowsError, match=r"gpu_step.json is not a result of the benchmark"):
        measured([], path)
