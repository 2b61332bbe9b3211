"""Samples of a prior, with or without clamped bits."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.distributions.conditional import Clamp, read_clamp
from softspin.evaluation.partition import EXACT
from softspin.samplers import GibbsState, anneal_population, gibbs


def prior_bits(prior: Boltzmann, n: int, seed: int, clamp: Clamp | None = None) -> Tensor:
    """Draw bits from a prior, or from the prior given the values of some of them.

    Args:
        prior: Boltzmann machine over D bits.
        n: Number of draws.
        seed: Seed of the random numbers.
        clamp: Values of clamped bits, by index.

    Returns:
        Bits, `(n, D)`.
    """
    if not clamp:
        return _annealed(prior, n, seed)
    values = read_clamp(clamp, prior.units)
    if len(values) == prior.units:  # nothing is left to draw
        return torch.tensor(list(values.values())).to(prior.bias).expand(n, -1).clone()
    given = prior.condition(values)  # type: ignore[arg-type]
    if given.boltzmann.enumerated_units <= EXACT:
        generator = torch.Generator(prior.bias.device).manual_seed(seed)
        return given.join(given.boltzmann.sample(n, generator=generator))
    return given.join(_annealed(given.boltzmann, n, seed))


def _annealed(boltzmann: Boltzmann, n: int, seed: int) -> Tensor:
    """Population annealing, and Gibbs sweeps that decorrelate particles which descend from the same ancestor."""
    _, members, _ = anneal_population(boltzmann, max(n, 100), seed, sweeps=2)
    state, _ = gibbs.step(GibbsState(members.z, members.rng_state), boltzmann, sweeps=100)
    order = torch.randperm(len(state.z), generator=torch.Generator().manual_seed(seed))[:n]
    return state.z[order.to(state.z.device)]
