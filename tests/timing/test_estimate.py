"""Estimated times of runs: their parts, their interval, and the measurement of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from softspin.config import Config
from softspin.data import load, with_condition
from softspin.errors import UnknownNameError
from softspin.formatting import duration
from softspin.timing import Estimate, Estimator, machine, probes, sizes_of
from softspin.timing.estimate import OUTPUT, PAPER_SIZES, SCALED_SPREAD, data_sizes
from softspin.timing.model import load_model
from softspin.timing.probes import Probes
from softspin.timing.work import DataSizes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def seconds(config: Config, step: int = 0, data: DataSizes | None = None) -> float:
    time = Estimator(CPU).run(config, data, step)
    assert time is not None
    return time.seconds


def test_the_time_of_a_run_is_the_sum_of_its_parts() -> None:
    config = Config(data="mnist", steps=1000, report_every=1000, evaluate_every=1000)
    all_steps, half = seconds(config), seconds(config, step=500)
    no_steps = 2 * half - all_steps
    assert 0 < no_steps < half < all_steps
    double = seconds(config.replace(steps=2000, report_every=2000, evaluate_every=2000))
    assert double - all_steps == pytest.approx(2 * (all_steps - half))
    assert seconds(config.replace(evaluate_every=500)) > all_steps
    assert seconds(config.replace(report_every=100)) > all_steps
    assert seconds(config.replace(report_every=99)) < all_steps  # without AIS
    assert seconds(config.replace(test_samples=8000)) > all_steps
    assert seconds(config, data=DataSizes(784, 50_000, 10_000, 100)) < all_steps


def test_frequent_validations_cost_their_pictures_and_checkpoints() -> None:
    """Of a tiny model, which has an exact log Z and little else to compute, these take most of the time."""
    config = Config(data="digits8x8", groups=1, bits_per_group=16, layers=1, width=20, steps=1000, report_every=1000)
    rare, frequent = (seconds(config.replace(evaluate_every=every)) for every in (1000, 5))
    assert frequent - rare > 199 * OUTPUT


def test_a_validation_with_averages_evaluates_two_models() -> None:
    config = Config(data="mnist", steps=1000, evaluate_every=250)
    averaged = config.replace(evaluate_every=500, ema_decay=0.999)
    assert seconds(config) - seconds(averaged) == pytest.approx(2 * OUTPUT)


def test_more_work_takes_longer() -> None:
    config = Config(data="mnist")
    for more in (
        {"importance_samples": 25},
        {"seeds": (0, 1)},
        {"sweeps": 80},
        {"width": 400},
        {"structure": "4-nonlinear"},
    ):
        assert seconds(config.replace(**more)) > seconds(config), more


def test_the_interval_contains_the_estimate_and_adds_up() -> None:
    time = Estimator(CPU).run(Config(data="mnist"))
    assert time is not None
    spread = load_model("cpu").spread * SCALED_SPREAD
    assert (time.low, time.high) == pytest.approx((time.seconds / spread, time.seconds * spread))
    total = Estimate(7800, 6600, 9600) + Estimate(60, 30, 120)
    assert total == Estimate(7860, 6630, 9720)
    assert str(total) == "about 2 h 11 min, 1 h 50 min to 2 h 42 min"
    assert total.to_json() == {"seconds": 7860, "low": 6630, "high": 9720}
    assert [duration(value) for value in (0.4, 59.6, 200, 601, 3599, 360_000)] == [
        "0 s", "1 min 0 s", "3 min 20 s", "10 min", "59 min", "100 h",
    ]  # fmt: skip


@pytest.mark.parametrize("setting", ["sampler=pt", "prior=graph", "compile=on", "condition=labels"])
def test_other_parts_are_unknown(setting: str) -> None:
    settings = ["structure=1-linear", "bits_per_group=3", "graph=0:1,1:2"] if setting == "prior=graph" else [setting]
    assert Estimator(CPU).run(Config(data="mnist").with_settings(settings)) is None


def test_conditions_that_data_come_with_are_unknown() -> None:
    sizes = sizes_of(with_condition(load("bars-and-stripes-3x3"), torch.arange(42) % 2))
    assert Estimator(CPU).run(Config(), sizes) is None
    assert Estimator(CPU).run(Config(condition="none"), sizes) is not None


def test_sizes_of_data() -> None:
    assert data_sizes("bars-and-stripes-3x3") == sizes_of(load("bars-and-stripes-3x3")) == DataSizes(9, 14, 14, 14)
    assert data_sizes("missing.npz") is None
    with pytest.raises(UnknownNameError, match="unknown data set 'missing'"):
        data_sizes("missing")
    assert Estimator(CPU).run(Config(data="missing.npz")) is None
    assert data_sizes("mnist") == PAPER_SIZES["mnist"]


@pytest.mark.data
@pytest.mark.parametrize("name", PAPER_SIZES)
def test_sizes_of_the_paper_s_data(name: str) -> None:
    assert sizes_of(load(name, download=False)) == PAPER_SIZES[name]


def test_a_measurement_scales_the_estimates_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(data="mnist")
    before = Estimator(CPU)
    assert not before.is_measured
    assert before.machine == load_model("cpu").device
    twice = Probes(*(2 * value for value in load_model("cpu").probes))
    monkeypatch.setattr(probes, "measure", lambda device: twice)
    now = Estimator(CPU, measure=True)
    assert now.is_measured
    assert now.machine == machine.machine_name(CPU)
    monkeypatch.setattr(probes, "measure", lambda device: pytest.fail("measured again"))
    for estimator in (now, Estimator(CPU)):
        time, old = estimator.run(config), before.run(config)
        assert time is not None
        assert old is not None
        assert time.seconds == pytest.approx(2 * old.seconds, rel=0.01)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(json.dumps({"seconds": [1]}))
    assert not Estimator(CPU).is_measured  # a damaged file is ignored


def test_without_a_cache_folder_the_machine_is_measured_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "softspin").write_text("a file where the folder should be")
    monkeypatch.setattr(probes, "measure", lambda device: Probes(1, 1, 1, 1))
    assert Estimator(CPU, measure=True).is_measured
    assert not Estimator(CPU).is_measured


def test_the_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "SECONDS", 0.0)
    found = probes.measure(CPU)
    assert all(value > 0 for value in found)
    assert found.latency > max(found.products, found.traffic, found.sampler)
    assert "thread" in machine.machine_name(CPU)


def test_estimates_for_the_gpu_of_the_benchmark_need_no_gpu() -> None:
    model, config = load_model("cuda"), Config(data="mnist", importance_samples=25)
    estimator = Estimator(torch.device("cuda"), benchmark=True)
    assert (estimator.machine, estimator.is_measured) == (model.device, True)
    found = estimator.run(config)
    assert found is not None
    assert found.high / found.seconds == pytest.approx(model.spread)
    steps = [estimator.run(config.replace(steps=steps)) for steps in (1_000_000, 2_000_000)]
    assert steps[0] is not None
    assert steps[1] is not None
    assert steps[0].seconds < steps[1].seconds < 2 * steps[0].seconds


def test_more_test_samples_take_time() -> None:
    """500 images with 4,000 and 64,000 samples: 34 million, beside the 40 million of a test of 10,000 images."""
    config = Config(data="mnist", structure="1-nonlinear", steps=1)
    base = seconds(config)
    test = seconds(config.replace(test_samples=8000)) - base
    assert seconds(config.replace(more_test_samples=64_000)) - base == pytest.approx(0.85 * test, rel=0.05)
