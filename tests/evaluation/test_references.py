"""Exact likelihood and baseline against explicit loops, log Z of a model, and the uniforms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from evaluation.models import PIXELS, custom_model, small_model, some_images
from torch import Tensor, nn

from softspin.errors import ShapeError, SupportError, TooLargeError
from softspin.evaluation import (
    bernoulli_nll,
    exact_log_likelihood,
    exact_nll,
    log_z_for,
    partition,
    pixel_probabilities,
)
from softspin.evaluation.draws import replica_keys, uniforms
from truth import ks_distance, ks_limit


def test_exact_likelihood_of_two_bits_and_three_pixels_matches_explicit_loops() -> None:
    decoder = nn.Linear(2, 3)
    pixel_mean = torch.tensor([0.5, 0.2, 0.7])
    model = custom_model([nn.Linear(3, 2)], decoder, 2, pixel_mean)
    a, w = (0.3, -0.8), 1.2
    kernel, offset = [[0.5, -1.0], [2.0, 0.1], [-0.4, 0.9]], [0.2, -0.3, 0.1]
    with torch.no_grad():
        model.prior_parameters.bias.copy_(torch.tensor([a]))
        model.prior_parameters.weight.fill_(w)
        decoder.weight.copy_(torch.tensor(kernel))
        decoder.bias.copy_(torch.tensor(offset))
    constant = [math.log(m / (1 - m)) for m in pixel_mean.tolist()]

    def likelihood(x: tuple[int, ...]) -> float:
        weights, joint = 0.0, 0.0
        for z in itertools.product((0, 1), repeat=2):
            weight = math.exp(a[0] * z[0] + a[1] * z[1] + w * z[0] * z[1])
            given = 1.0
            for pixel in range(3):
                logit = kernel[pixel][0] * z[0] + kernel[pixel][1] * z[1] + offset[pixel] + constant[pixel]
                on = 1 / (1 + math.exp(-logit))
                given *= on if x[pixel] else 1 - on
            weights += weight
            joint += weight * given
        return joint / weights

    everything = list(itertools.product((0, 1), repeat=3))
    expected = [math.log(likelihood(x)) for x in everything]
    assert sum(map(math.exp, expected)) == pytest.approx(1)
    got = exact_log_likelihood(model, torch.tensor(everything))
    torch.testing.assert_close(got, torch.tensor([expected], dtype=torch.float64), rtol=1e-6, atol=1e-6)
    mean = exact_nll(model, torch.tensor(everything))
    assert mean.nll.item() == pytest.approx(-np.mean(expected), rel=1e-6)
    assert mean.standard_error.item() == pytest.approx(np.std(expected, ddof=1) / math.sqrt(8), rel=1e-6)


def test_exact_likelihoods_of_all_images_sum_to_one_in_any_chunks() -> None:
    model = small_model(groups=1, bits=6)
    images = torch.tensor(list(itertools.product((0, 1), repeat=PIXELS)))
    whole = exact_log_likelihood(model, images)
    torch.testing.assert_close(whole.exp().sum(1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(exact_log_likelihood(model, images, image_batch=100, state_chunk=7), whole)
    alone = small_model(groups=1, bits=6, seeds=(1,))
    torch.testing.assert_close(exact_log_likelihood(alone, images), whole[1:])


def test_exact_likelihood_rejects_too_many_bits() -> None:
    with pytest.raises(TooLargeError, match=r"over 22 bits is too expensive \(at most 20\); use evaluate"):
        exact_nll(small_model(groups=1, bits=22), some_images(2))


def test_baseline_matches_its_formula() -> None:
    train, images = some_images(50), some_images(31, seed=1)
    train[:, 0], images[:, 0] = 0, 1
    values = []
    for image in images.tolist():
        total = 0.0
        for pixel, on in enumerate(image):
            p = (sum(row[pixel] for row in train.tolist()) + 1) / 52
            total -= math.log(p if on else 1 - p)
        values.append(total)
    got = bernoulli_nll(train, images)
    assert got.nll.item() == pytest.approx(np.mean(values), rel=1e-12)
    assert got.standard_error.item() == pytest.approx(np.std(values, ddof=1) / math.sqrt(31), rel=1e-12)
    assert got.nll.shape == got.standard_error.shape == ()
    assert pixel_probabilities(train)[0] == 1 / 52


def test_baseline_rejects_wrong_shapes_and_grey_images() -> None:
    with pytest.raises(ShapeError, match=r"images of shape \(3, 8\); this model takes \(at least 1, 9\)"):
        bernoulli_nll(some_images(5), some_images(3)[:, :8])
    with pytest.raises(ShapeError, match=r"training images of shape \(0, 9\)"):
        bernoulli_nll(some_images(5)[:0], some_images(3))
    with pytest.raises(SupportError, match="values other than 0 and 1"):
        bernoulli_nll(some_images(5), some_images(3) / 2)
    assert bernoulli_nll(some_images(5) / 2, some_images(3)).nll.isfinite()


def test_log_z_of_a_small_model_is_exact() -> None:
    model = small_model()
    log_z = log_z_for(model, temperatures=10, chains=10)
    assert (log_z.method, log_z.kind) == ("exact", "exact")
    torch.testing.assert_close(log_z.value, model.prior().exact_log_z())
    assert all(part.shape == (2,) for part in log_z[:5])


@pytest.mark.parametrize(
    ("sandwich", "kind"), [pytest.param(False, "lower bound", marks=pytest.mark.slow), (True, "estimate")]
)
def test_log_z_of_a_larger_model_is_annealed_for_each_replica_alone(
    sandwich: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "LARGEST", 20)
    options: dict[str, Any] = {"temperatures": 200, "chains": 300, "sandwich": sandwich}
    model = small_model(groups=1, bits=42, seeds=(4, 5)).float()
    with torch.no_grad():
        model.prior_parameters.weight.mul_(0.2)
    alone = small_model(groups=1, bits=42, seeds=(5,)).float()
    alone.prior_parameters.load_state_dict(
        {name: value[1:] for name, value in model.prior_parameters.state_dict().items()}
    )
    for seed, own in ((3, 3), ([8, 9], 9)):
        many, one = log_z_for(model, seed=seed, **options), log_z_for(alone, seed=own, **options)
        assert many.kind == kind
        for together, single in zip(many[:5], one[:5], strict=True):
            assert torch.equal(together[1:], single)
    assert many.upper.isfinite().all() == sandwich
    # Enumeration of 21 units: more than validations do.
    truth = model.prior().exact_log_z().to(torch.float64)
    # 1e-6 for two normal values.
    assert ((many.value - truth).abs() < 5.1 * many.standard_error).all()


def splitmix(key: int, position: int) -> int:
    word = (key + position * 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def test_uniforms_are_splitmix64_at_their_position() -> None:
    keys = replica_keys([5, 6], 2)
    images, samples = torch.tensor([0, 9999, (1 << 24) - 1]), torch.tensor([3, (1 << 24) - 1])
    got = uniforms(keys, images, samples, 5)
    assert got.shape == (2, 2, 3, 5)
    for r, s, i, unit in np.ndindex(*got.shape):
        position = (int(images[i]) << 40) + (int(samples[s]) << 16) + unit // 2
        half = splitmix(int(keys[r]) % 2**64, position) >> 32 * (unit % 2) & 0xFFFFFFFF
        # As int32: the half with the sign bit set is the lower one.
        assert got[r, s, i, unit].item() == (((half ^ 0x80000000) >> 9) + 0.5) / 2**23


def test_uniforms_are_uniform_and_neighbours_independent() -> None:
    got = uniforms(replica_keys([0, 1, 2], 3), torch.arange(40), torch.arange(50), 33)
    assert ks_distance(got) < ks_limit(got.numel())
    assert 0 < got.min() < 1e-4
    assert 1 - 1e-4 < got.max() < 1
    for dimension in range(4):
        before, after = (got.narrow(dimension, start, got.shape[dimension] - 1) - 0.5 for start in (0, 1))
        # A mean of n products, each of variance 1/144; 6 standard errors are exceeded with probability 2e-9.
        assert (before * after).mean().abs() < 6 / 12 / math.sqrt(before.numel()), dimension


def test_one_seed_and_a_list_of_equal_seeds_give_the_same_keys() -> None:
    def keys(seed: int | list[int]) -> Tensor:
        return replica_keys(seed, 3)

    assert torch.equal(keys(4), keys([4, 4, 4]))
    assert len(set(keys([1, 2, 3]).tolist())) == 3
