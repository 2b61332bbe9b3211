"""Diagnostics against closed forms and naive loops."""

from __future__ import annotations

import math

import pytest
import torch
from samplers.laws import exact_draws, probabilities, small_rbm, states
from torch import Tensor

from softspin.errors import ShapeError
from softspin.samplers.diagnostics import (
    autocorrelation,
    autocorrelation_time,
    effective_sample_size,
    energy_series,
    flip_rate,
    marginal_error,
    mean_series,
    split_r_hat,
)


def autoregressive(memory: float, chains: int, steps: int, seed: int = 0) -> Tensor:
    """x' = memory x + noise, in equilibrium: tau = (1 + memory) / (1 - memory)."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, chains, generator=g, dtype=torch.float64)
    x = [noise[0] / (1 - memory**2) ** 0.5]
    for k in range(1, steps):
        x.append(memory * x[-1] + noise[k])
    return torch.stack(x, -1)


@pytest.mark.parametrize("memory", [-0.9, -0.7, 0.0, 0.5, 0.9, 0.97])
def test_the_autocorrelation_time_of_an_autoregression(memory: float) -> None:
    """64 x 4,000 steps. Standard error of a sum over M lags: tau sqrt(2 (2 M + 1) / N), M = 10 times the lag at which
    the correlations have fallen to 1/e; 5 of them. Where they alternate, the lags beyond M may add 2e-3.
    """
    series = autoregressive(memory, 64, 4000)
    truth = (1 + memory) / (1 - memory)
    lags = -10 / math.log(abs(memory)) if memory else 1
    noise = truth * (2 * (2 * lags + 1) / series.numel()) ** 0.5
    assert noise < 0.08 * truth
    assert autocorrelation_time(series).item() == pytest.approx(truth, abs=5 * noise + 2e-3 * (memory < 0))
    assert effective_sample_size(series) == series.numel() / autocorrelation_time(series)


def test_the_autocorrelation_is_the_sum_over_all_pairs() -> None:
    series = autoregressive(0.7, 3, 12)
    mean = series.mean()
    naive = []
    for lag in range(12):
        products = [(series[c, k] - mean) * (series[c, k + lag] - mean) for c in range(3) for k in range(12 - lag)]
        naive.append(sum(products) / len(products))
    truth = torch.stack([torch.as_tensor(v) for v in naive])
    torch.testing.assert_close(autocorrelation(series), truth / truth[0], atol=1e-12, rtol=0)


def test_chains_that_never_move_have_the_longest_time() -> None:
    """Both ways of being stuck: all chains at one value, and each at its own."""
    still = torch.ones(4, 100)
    apart = torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None].expand(4, 100)
    for series in (still, apart):
        assert autocorrelation_time(series) > 100
        assert effective_sample_size(series) < 4.1
    assert split_r_hat(still) == 1
    assert split_r_hat(apart).isinf()


def test_a_series_that_turns_at_every_step_has_the_shortest_time() -> None:
    """The mean of 1, -1, 1, ..., 1 over 101 steps is 1 / 101, so its square is that of 101^2 draws: tau = 1 / 101."""
    turning = torch.tensor([1.0, -1.0]).repeat(51)[:101].expand(3, 101)
    assert autocorrelation_time(turning).item() == pytest.approx(1 / 101)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9 + 0.7, -1e-100])
def test_rounding_does_not_make_equal_constants_differ(value: float) -> None:
    """The mean of equal numbers is not always that number."""
    for steps in (7, 10, 1000):
        still = torch.full((3, steps), value, dtype=torch.float64)
        assert split_r_hat(still) == 1
        assert autocorrelation_time(still) > steps
        apart = torch.stack([still[0], 3 * still[0]])
        assert split_r_hat(apart).isinf()


def test_r_hat_tells_agreement_from_disagreement() -> None:
    good = autoregressive(0.5, 8, 2000)
    assert split_r_hat(good) < 1.01
    shifted = good.clone()
    shifted[:4] += 2
    assert split_r_hat(shifted) > 1.2
    drifting = good + torch.linspace(0, 5, 2000)
    assert split_r_hat(drifting) > 1.2, "the halves of a chain disagree, though the chains do not"


def test_r_hat_is_the_printed_formula() -> None:
    series = autoregressive(0.5, 3, 10)
    halves = [series[c, s : s + 5] for s in (0, 5) for c in range(3)]
    within = sum(h.var().item() for h in halves) / 6
    means = torch.stack([h.mean() for h in halves])
    between = 5 * means.var().item()
    assert split_r_hat(series).item() == pytest.approx((((4 / 5) * within + between / 5) / within) ** 0.5, rel=1e-12)


def test_diagnostics_keep_leading_dimensions() -> None:
    series = torch.stack([autoregressive(m, 4, 300) for m in (0.0, 0.9)])
    for function in (autocorrelation_time, effective_sample_size, split_r_hat):
        both = function(series)
        assert both.shape == (2,)
        for r in range(2):
            assert both[r].item() == pytest.approx(function(series[r]).item(), rel=1e-12)


def test_flip_rate_counts_bits() -> None:
    before = torch.zeros(2, 3, 4)
    after = before.clone()
    after[0, 1, :2] = 1
    assert flip_rate(before, after).tolist() == pytest.approx([2 / 12, 0])


def test_marginal_errors_of_exact_draws_are_noise_and_of_others_are_not() -> None:
    boltzmann = small_rbm()
    z = exact_draws(boltzmann, (20_000,), seed=0)
    p = probabilities(boltzmann) @ states(5)
    error = marginal_error(boltzmann, z)
    assert error.largest.item() == pytest.approx((z.mean(0) - p).abs().max().item(), abs=1e-12)
    assert error.rms.item() == pytest.approx((z.mean(0) - p).square().mean().sqrt().item(), abs=1e-12)
    assert error.noise.item() == pytest.approx((p * (1 - p) / 20_000).mean().sqrt().item(), abs=1e-12)
    assert error.rms < 4 * error.noise
    wrong = marginal_error(boltzmann, torch.zeros(20_000, 5, dtype=torch.float64))
    assert wrong.largest.item() == pytest.approx(p.max().item())
    assert wrong.rms > 20 * wrong.noise


def test_series_are_made_of_states() -> None:
    boltzmann = small_rbm(replicas=(2,))
    seen = [(torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(k)) < 0.5).double() for k in range(4)]
    energies = energy_series(boltzmann, seen)
    assert energies.shape == (2, 3, 4)
    assert energies[1, 2, 3] == boltzmann.energy(seen[3])[1, 2]
    assert mean_series(seen)[1, 2, 3] == seen[3][1, 2].mean()
    direction = torch.arange(10.0).reshape(2, 5).double()
    assert mean_series(seen, direction)[1, 2, 3] == (seen[3][1, 2] * direction[1]).sum()


def test_samples_of_other_replicas_are_not_mixed_into_a_marginal_error() -> None:
    """4 x 3 samples would also divide by 2 replicas."""
    boltzmann = small_rbm(replicas=(2,))
    with pytest.raises(ShapeError, match=r"the samples have shape \(4, 3, 5\); this machine takes \(2, ..., 5\)"):
        marginal_error(boltzmann, torch.zeros(4, 3, 5, dtype=torch.float64))
    with pytest.raises(ShapeError, match=r"the samples have shape \(2, 0, 5\)"):
        marginal_error(boltzmann, torch.zeros(2, 0, 5, dtype=torch.float64))
    assert marginal_error(boltzmann, torch.zeros(2, 4, 3, 5, dtype=torch.float64)).rms.shape == (2,)


def test_bad_series_are_named() -> None:
    with pytest.raises(
        ShapeError, match=r"a series has shape \(..., chains, steps\) with at least 2 steps, not \(5,\)"
    ):
        autocorrelation_time(torch.zeros(5))
    with pytest.raises(ShapeError, match="R-hat needs at least 4 steps a chain, not 3"):
        split_r_hat(torch.zeros(2, 3))
