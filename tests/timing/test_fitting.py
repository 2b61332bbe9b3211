"""The time model: amounts of work, the fit, and the committed coefficients with their check."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from softspin.config import Config
from softspin.data import Dataset
from softspin.model import build
from softspin.paper import METHODS
from softspin.structures import STRUCTURES
from softspin.timing.fitting import check_model, fit_amounts, fit_model, fit_steps, nnls
from softspin.timing.model import TimeModel, load_model
from softspin.timing.probes import Probes
from softspin.timing.work import (
    PARAMETER_PASSES,
    PROBES,
    DataSizes,
    StepWork,
    anneal_work,
    evaluation_work,
    start_work,
    step_work,
)
from softspin.training.engine import Engine

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MNIST = DataSizes(784, 50_000, 10_000, 10_000)


# Amounts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_parameters_are_those_of_the_model(structure: str) -> None:
    config = Config(structure=structure, seeds=(0, 1))
    bits = torch.zeros(2, 784, dtype=torch.uint8)
    data = Dataset("d", bits, bits, bits, (28, 28), "static", "")
    model = build(config, data.spec)
    weights = sum(value.numel() for name, value in model.named_parameters() if name.endswith("weight"))
    assert step_work(config, MNIST).shared["parameters"] == PARAMETER_PASSES * weights


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_products_are_those_that_torch_counts(structure: str, k: int) -> None:
    """Forward and backward. The few of the prior come on top."""
    sizes = {"bits_per_group": 12, "width": 10, "chains": 2, "sweeps": 1, "batch_size": 4}
    config = Config(structure=structure, importance_samples=k, method="dvae++-exp", seeds=(0, 1), **sizes)  # type: ignore[arg-type]
    bits = torch.randint(0, 2, (4, 784), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Dataset("d", bits, bits, bits, (28, 28), "static", "")
    engine = Engine(config, build(config, data.spec), data, torch.device("cpu"))
    with FlopCounterMode(display=False) as counter:
        engine.step()
    work = step_work(config, DataSizes(784, 4, 4, 4)).shared
    assert counter.get_total_flops() == pytest.approx(work["products"] + work["pixel_products"], rel=0.1)


def test_amounts_grow_with_the_settings() -> None:
    one, other = (step_work(Config(data="mnist", seeds=seeds), MNIST) for seeds in ((0,), (0, 1, 2)))
    assert other.main == one.main
    assert other.sampler == one.sampler
    assert all(other.shared[name] == pytest.approx(3 * value) for name, value in one.shared.items())
    fast = step_work(Config(data="mnist", tf32=True), MNIST).shared
    assert fast["tf32_products"] == one.shared["products"] + one.shared["pixel_products"]
    assert not {"products", "pixel_products"} & fast.keys()
    assert step_work(Config(data="mnist", sweeps=80), MNIST).sampler["sweeps"] == 2 * one.sampler["sweeps"]
    # 40 sweeps of 1,000 chains with 3 units on each side take 11.5 ms of one thread; those with 100 take 18.9 ms.
    tiny = step_work(Config(data="mnist", structure="1-nonlinear", bits_per_group=6, chains=1000, sweeps=40), MNIST)
    cpu = load_model("cpu")
    assert 0.005 < cpu.time({"chain_sweeps": tiny.shared["chain_sweeps"]}) < 0.025
    small = step_work(Config(data="mnist", batch_size=100), DataSizes(784, 10, 10, 10))
    assert small.shared["soft_bits_by_kernel"] == one.shared["soft_bits_by_kernel"] / 10


def test_every_amount_has_a_probe() -> None:
    for method, tf32 in itertools.product(METHODS, (False, True)):
        config = Config(method=method, tf32=tf32)
        amounts = [*step_work(config, MNIST), anneal_work(config, 10, 10), evaluation_work(config, MNIST, 10, 10)]
        assert {name for part in [*amounts, start_work(config)] for name in part} <= PROBES.keys()
    assert set(PROBES.values()) == {*Probes._fields, "host"}


# The fit ------------------------------------------------------------------------------------------


def test_non_negative_least_squares_is_the_best_over_all_supports() -> None:
    generator = np.random.default_rng(0)
    for _ in range(100):
        matrix = generator.normal(size=(8, 1)) + 0.5 * generator.normal(size=(8, 5))  # amounts grow together
        wanted = generator.normal(size=8)
        best = np.inf
        for size in range(6):
            for support in itertools.combinations(range(5), size):
                x = np.zeros(5)
                if support:
                    x[list(support)] = np.linalg.lstsq(matrix[:, support], wanted, rcond=None)[0]
                if (x >= 0).all():
                    best = min(best, float(np.linalg.norm(matrix @ x - wanted)))
        found = nnls(matrix, wanted)
        assert (found >= 0).all()
        assert np.linalg.norm(matrix @ found - wanted) == pytest.approx(best, abs=1e-9)


def model(side_stream: bool, **factors: float) -> TimeModel:
    probes = Probes(latency=1e-6, products=1e-13, traffic=1e-12, sampler=1e-14)
    return TimeModel(device="d", source="s", probes=probes, side_stream=side_stream, factors=factors, spread=1.1)


@pytest.mark.parametrize("side_stream", [False, True])
def test_the_fit_finds_the_factors(side_stream: bool) -> None:
    generator = np.random.default_rng(1)
    works = [
        StepWork(
            {"step": 40, "layers": 12.0 * generator.integers(2, 15)},
            {"sweeps": 10 ** generator.uniform(9, 11.5), "population": 40.0 * generator.integers(2)},
            {"products": 10 ** generator.uniform(8, 10), "soft_bits": 10 ** generator.uniform(6, 9)},
        )
        for _ in range(100)
    ]
    factors = {"step": 2.0, "layers": 1.5, "sweeps": 0.7, "population": 2.5, "products": 0.8, "soft_bits": 0.4}
    true = model(side_stream, **factors)
    times = [true.step(work) for work in works]
    found = fit_steps(works, times, true.probes, side_stream=side_stream)
    assert found == pytest.approx(factors, rel=0.03)  # the pull towards 1 has a weight of 1e-3 among 100 cases
    assert all(model(side_stream, **found).step(work) == pytest.approx(true.step(work), rel=0.01) for work in works)


def test_amounts_that_cannot_be_separated_share_the_time() -> None:
    works = [{"products": 1e9 * n, "tf32_products": 2e9 * n} for n in (1, 2, 3)]
    found = fit_amounts(works, [3e-4, 6e-4, 9e-4], model(False).probes)
    assert found == pytest.approx({"products": 1, "tf32_products": 1})
    found = fit_amounts(works, [3e-5, 6e-5, 9e-5], model(False).probes)
    assert found["products"] + 2 * found["tf32_products"] == pytest.approx(0.3, rel=0.02)


def test_a_step_hides_the_shorter_sequence_on_a_gpu() -> None:
    work = StepWork({"step": 40}, {"sweeps": 1e10}, {"products": 1e9})
    for factor, longer in ((1.0, 100), (5.0, 200)):
        assert model(True, step=factor).step(work) == pytest.approx((longer + 100) * 1e-6)
        assert model(False, step=factor).step(work) == pytest.approx((factor * 40 + 100 + 100) * 1e-6)


# The committed benchmark --------------------------------------------------------------------------


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / name).read_text())
    return found


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_coefficients_are_those_of_the_committed_benchmark(kind: str) -> None:
    """After new measurements: python benchmarks/step_times.py --fit."""
    own = [row for row in rows("step_times.json") if row["kind"] == kind]
    fitted, stored = fit_model(own), load_model(kind)
    assert stored.factors == pytest.approx(dict(fitted.factors), rel=1e-2, abs=1e-3)
    assert (stored.device, stored.source, stored.probes) == (fitted.device, fitted.source, fitted.probes)
    assert stored.spread == pytest.approx(fitted.spread, rel=1e-2)
    checks = [check for row in own if (check := check_model(stored, row))]
    assert checks == [one for one in rows("step_times_check.json") if one["device"] == stored.device]


def test_estimates_are_within_25_percent_on_cases_that_were_not_fitted() -> None:
    fitted = {(row["device"], row["case"]) for row in rows("step_times.json") if row.get("role") == "fit"}
    checks = rows("step_times_check.json")
    assert not fitted & {(one["device"], one["case"]) for one in checks}
    assert {"cuda", "cpu"} == {
        kind for kind in ("cuda", "cpu") for one in checks if one["device"] == load_model(kind).device
    }
    for one in checks:
        assert 1 / 1.25 <= one["ratio"] <= 1.25, one
