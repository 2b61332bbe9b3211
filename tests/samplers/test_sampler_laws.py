"""Every sampler hits the exact law of an enumerated machine, and would be caught with one bias off by 0.1.

Chi-square over the 32 states, false-alarm rate 1e-6 each. Draws are the final states of independent chains (or
ladders); a population's are kin, and the statistic is divided by its mean square family size, which makes the rate
smaller still.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from samplers.laws import MACHINES, chi_square, log_weights, off_by, probabilities, small_rbm, states
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.kernels import Implementation
from softspin.samplers import anneal_population, gibbs, population, tempering


def by_gibbs(boltzmann: Boltzmann) -> tuple[Tensor, float]:
    state, _ = gibbs.step(gibbs.init(boltzmann, 60_000, seed=0), boltzmann, sweeps=15)
    return state.z, 1.0


def by_population(boltzmann: Boltzmann) -> tuple[Tensor, float]:
    """A persistent population: annealed to another machine first, then to this one."""
    state = population.init(boltzmann, 200_000, seed=0)
    state, _ = population.step(state, off_by(boltzmann, 0.7, unit=3), sweeps=2)
    state, info = population.step(state, boltzmann, sweeps=2)
    return state.z, info.mean_square_family.item()


def by_annealing(boltzmann: Boltzmann) -> tuple[Tensor, float]:
    _, state, info = anneal_population(boltzmann, 200_000, seed=0, sweeps=1, base="uniform", smallest_ess=0.7)
    return state.z, info.mean_square_family.item()


def by_tempering(boltzmann: Boltzmann) -> tuple[Tensor, float]:
    state = tempering.init(boltzmann, 50_000, seed=0, temperatures=2)
    state, _ = tempering.step(state, boltzmann, sweeps=9)
    return state.samples, 1.0


SAMPLERS = {"gibbs": by_gibbs, "population": by_population, "annealing": by_annealing, "tempering": by_tempering}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
@pytest.mark.parametrize("sample", SAMPLERS.values(), ids=list(SAMPLERS))
def test_the_exact_law_is_hit_and_a_wrong_one_is_not(
    sample: Callable[[Boltzmann], tuple[Tensor, float]], boltzmann: Boltzmann
) -> None:
    truth = probabilities(boltzmann)
    result = chi_square(*_draws(sample(boltzmann), truth))
    assert result.passes, result
    wrong = chi_square(*_draws(sample(off_by(boltzmann)), truth))
    assert not wrong.passes, wrong


def _draws(sampled: tuple[Tensor, float], truth: Tensor) -> tuple[Tensor, Tensor, float]:
    return sampled[0], truth, sampled[1]


@pytest.mark.parametrize("implementation", ["plain", "auto"])
def test_gibbs_in_single_precision_whichever_kernel_runs(implementation: Implementation) -> None:
    boltzmann = small_rbm(torch.float32)
    for other, right in ((boltzmann, True), (off_by(boltzmann), False)):
        start = gibbs.init(other, 60_000, seed=1)
        state, info = gibbs.step(start, other, sweeps=15, implementation=implementation)
        result = chi_square(state.z, probabilities(boltzmann))
        assert result.passes is right, result
        assert info.flip_rate == (start.z != state.z).float().mean()


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_every_rung_of_a_ladder_has_its_own_law(boltzmann: Boltzmann) -> None:
    """The last move is an exchange; each rung's law is summed up from -E_t = (1 - t) base.z + t (-E(z))."""
    t = torch.tensor([0.0, 0.3, 0.6, 1.0], dtype=torch.float64)
    base = torch.linspace(-1, 1, 5, dtype=torch.float64)
    state = tempering.init(boltzmann, 50_000, seed=5, temperatures=t, base=base)
    state, _ = tempering.step(state, boltzmann, sweeps=9)
    for rung, heat in enumerate(t.tolist()):
        p = torch.softmax((1 - heat) * (states(5) @ base) + heat * log_weights(boltzmann), 0)
        result = chi_square(state.z[:, rung], p)
        assert result.passes, (rung, result)
        shifted = chi_square(state.z[:, rung], torch.softmax(p.log() + 0.1 * states(5)[:, 1], 0))
        assert not shifted.passes, (rung, shifted)
