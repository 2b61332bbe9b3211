"""The NLL with more importance samples, on the same images: against enumeration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation.models import exact_log_z, small_model, some_images

import softspin
from softspin.errors import ConfigError, SupportError
from softspin.evaluation import evaluate, exact_log_likelihood, more_samples
from softspin.records import ResultRow


def test_the_difference_is_that_from_the_exact_nll() -> None:
    """With many samples the NLL is exact, but for its own error: 20,000 samples of 8 bits, 100 images, K = 2.

    The largest difference of 40 images x 2 replicas from enumeration is below 5 standard errors of an image, a false
    alarm in 1e-5 of the tests.
    """
    model, images = small_model(), some_images(40)
    log_z = exact_log_z(model)
    found = more_samples(model, images, log_z=log_z, few=2, many=20_000)
    few = evaluate(model, images, log_z=log_z, samples=2)
    exact = -exact_log_likelihood(model, images).mean(1)
    many = evaluate(model, images, log_z=log_z, samples=20_000)
    error = (1 / many.effective_sample_size).sqrt() / math.sqrt(len(images))  # delta method, averaged over images
    assert bool(((few.nll - found.difference - exact).abs() < 5 * error).all())
    assert bool((found.difference > 10 * error).all()), "two samples are too few, so that a difference of 0 would fail"
    assert (found.images, found.few, found.many) == (40, 2, 20_000)


def test_the_error_is_that_of_pairs() -> None:
    """Differences of single images have a smaller spread than their NLLs, and it is theirs that counts."""
    model, images = small_model(), some_images(60)
    log_z = exact_log_z(model)
    found = more_samples(model, images, log_z=log_z, few=50, many=5_000)
    each = [
        evaluate(model, images, log_z=log_z, samples=samples, per_image=True).log_likelihood for samples in (50, 5_000)
    ]
    assert each[0] is not None
    assert each[1] is not None
    pairs = (each[1] - each[0]).double()
    torch.testing.assert_close(found.difference, pairs.mean(1))
    torch.testing.assert_close(found.standard_error, pairs.std(1) / math.sqrt(60))
    assert bool((found.standard_error < each[0].std(1) / math.sqrt(60) / 2).all())


def test_few_samples_are_the_first_of_the_many() -> None:
    """One more sample changes little; other samples change ten times as much."""
    model, images = small_model(), some_images(30)
    log_z = exact_log_z(model)
    nested = more_samples(model, images, log_z=log_z, few=1_000, many=1_001).difference
    separate = [evaluate(model, images, log_z=log_z, samples=n, seed=n).nll for n in (1_000, 1_001)]
    assert bool((10 * nested.abs() < (separate[0] - separate[1]).abs()).all())


def test_the_larger_number_must_be_larger() -> None:
    model, images = small_model(), some_images(3)
    with pytest.raises(SupportError, match="many = 5 importance samples is not possible; it must be above few = 5"):
        more_samples(model, images, log_z=exact_log_z(model), few=5, many=5)
    with pytest.raises(
        ConfigError, match="more_test_samples = 4000 is not possible; it must be above test_samples = 4000"
    ):
        softspin.Config(more_test_samples=4000)


def test_a_run_stores_and_shows_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes: dict[str, Any] = {
        "width": 8,
        "bits_per_group": 6,
        "steps": 4,
        "chains": 20,
        "validation_samples": 5,
        "sweeps": 2,
    }
    config = softspin.Config(data="bars-and-stripes-3x3", structure="1-nonlinear", seeds=(0, 1), **sizes)
    config = config.replace(test_samples=20, more_test_samples=300, test_temperatures=20, test_chains=20, device="cpu")
    model = softspin.fit(config, folder=tmp_path / "run")
    data = softspin.data.load(config.data)
    assert model.result is not None
    assert capsys.readouterr().err.count("300 samples instead of 20: NLL of 14 images") == 2
    for number, row in enumerate(model.result):
        found = row.more_samples
        assert found is not None
        assert (found.test_samples, found.images) == (300, len(data.test))
        assert ResultRow.from_json(row.to_json()) == row
        exact = -exact_log_likelihood(model.only(number).net, data.test).mean().item()
        assert abs(row.test_nll - found.difference - exact) < abs(row.test_nll - exact) + 0.05
