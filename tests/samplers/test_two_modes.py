"""A strongly coupled RBM with two modes: PCD stays in one and the diagnostics show it; the other samplers find both.

8 x 8 units, all off or all on; the second mode has e^0.4 times the weight of the first. To cross, a chain would
have to flip half of a side against fields of 6.
"""

from __future__ import annotations

import math

import pytest
import torch
from samplers.laws import exact_draws, two_modes
from torch import Tensor

from softspin.samplers import anneal_population, diagnostics, gibbs, log_z, population, tempering

TWO_MODES = two_modes()


def upper(z: Tensor) -> Tensor:
    """Fraction of the states with more than half of their units on."""
    return (z.mean(-1) > 0.5).double().mean()


FRACTION = upper(exact_draws(TWO_MODES, (1_000_000,), seed=0)).item()


def traced(start: Tensor, steps: int = 100) -> tuple[list[Tensor], Tensor]:
    state = gibbs.init(TWO_MODES, len(start), seed=0, start=start)
    seen = []
    for _ in range(steps):
        state, info = gibbs.step(state, TWO_MODES, sweeps=5)
        seen.append(state.z)
    return seen, info.flip_rate


def test_the_modes_have_the_stated_weights() -> None:
    assert pytest.approx(math.exp(0.4) / (1 + math.exp(0.4)), abs=0.01) == FRACTION
    assert TWO_MODES.marginals()[0].item() == pytest.approx(FRACTION, abs=0.01)


def test_gibbs_stays_in_its_mode_and_the_exact_marginals_show_it() -> None:
    """Chains from one mode agree with each other. Only the exact marginals show the missing mode."""
    seen, flips = traced(torch.zeros(40, 16, dtype=torch.float64))
    assert upper(seen[-1]) < 0.2
    assert flips < 0.05
    error = diagnostics.marginal_error(TWO_MODES, torch.stack(seen, 1))
    assert error.largest > 0.4
    assert error.rms > 20 * error.noise


def test_gibbs_from_both_modes_has_a_large_r_hat_and_autocorrelation_time() -> None:
    start = torch.zeros(40, 16, dtype=torch.float64)
    start[20:] = 1
    seen, _ = traced(start)
    series = diagnostics.mean_series(seen)
    assert diagnostics.split_r_hat(series) > 2
    assert diagnostics.autocorrelation_time(series) > 50, "in steps of 5 sweeps"
    assert diagnostics.effective_sample_size(series) < 0.01 * series.numel()
    # The same diagnostics on independent exact draws raise no alarm.
    fair = diagnostics.mean_series(list(exact_draws(TWO_MODES, (100, 40), seed=1)))
    assert diagnostics.split_r_hat(fair) < 1.01
    assert diagnostics.autocorrelation_time(fair) < 1.2


def test_population_annealing_finds_both_modes() -> None:
    """Mode fraction within 5 standard errors, counting a family as one draw; log Z within 5 of its own."""
    result, state, info = anneal_population(TWO_MODES, 10_000, seed=0, sweeps=2)
    noise = math.sqrt(FRACTION * (1 - FRACTION) * info.mean_square_family.item() / 10_000)
    assert noise < 0.015
    assert abs(upper(state.z).item() - FRACTION) < 5 * noise
    assert (result.value - log_z.exact(TWO_MODES).value).abs() < 5 * result.standard_error
    assert result.standard_error < 0.05
    assert diagnostics.marginal_error(TWO_MODES, state.z).largest < 5 * noise + 0.01


def test_a_persistent_population_keeps_both_modes_as_their_weights_change() -> None:
    """The tilt goes from 0.05 to -0.05 in 20 steps, the second mode from 60% to 40% by weights: few chains cross."""
    _, state, _ = anneal_population(TWO_MODES, 20_000, seed=1, sweeps=2)
    for tilt in torch.linspace(0.05, -0.05, 21).tolist()[1:]:
        state, info = population.step(state, two_modes(tilt=tilt), sweeps=1)
    noise = math.sqrt(FRACTION * (1 - FRACTION) * info.mean_square_family.item() / 20_000)
    assert noise < 0.012
    assert abs(upper(state.z).item() - (1 - FRACTION)) < 5 * noise
    assert info.standard_error < 0.03
    assert (state.log_z - log_z.exact(two_modes(tilt=-0.05)).value).abs() < 5 * info.standard_error


def test_parallel_tempering_leaves_the_initial_mode_of_its_chains() -> None:
    """1,000 ladders, all rungs in the first mode: after 150 rounds the fraction is exact within 5 standard errors."""
    state = tempering.init(TWO_MODES, 1000, seed=0, temperatures=10)
    state = state._replace(z=torch.zeros_like(state.z))
    state, info = tempering.step(state, TWO_MODES, sweeps=150)
    assert abs(upper(state.samples).item() - FRACTION) < 5 * math.sqrt(FRACTION * (1 - FRACTION) / 1000)
    assert info.exchange_rate.min() > 0.3
    assert info.round_trips > 1000


def test_annealing_finds_log_z_of_both_modes_and_reverse_annealing_agrees() -> None:
    truth = log_z.exact(TWO_MODES).value
    samples = exact_draws(TWO_MODES, (500,), seed=2)
    result = log_z.sandwich(TWO_MODES, samples, seed=0, temperatures=300, chains=500)
    assert result.lower < truth < result.upper
    assert result.upper - result.lower < 0.25
