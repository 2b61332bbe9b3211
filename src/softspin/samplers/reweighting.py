"""Reweighting of a population along the line between old and new parameters, and the reverse estimator of log Z.

These functions run eagerly or through torch.compile. They read nothing on the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.random import DrawDomain, one_uniform
from softspin.samplers.population_state import PopulationState
from softspin.samplers.resampling import effective_sample_size, max_tempering_step, systematic


class TemperingStep(NamedTuple):
    """A tempering step before its sweeps."""

    z: Tensor
    """Resampled members, `(*replicas, members, D)`."""
    bias: Tensor
    """Biases at the end of the step."""
    coupling: Tensor
    """Couplings at the end of the step."""
    fraction: Tensor
    """Fraction of the remaining line, `(*replicas,)`; 1 if the new parameters are reached."""
    increment: Tensor
    """Forward estimate of the change of log Z, `(*replicas,)`, float64."""
    parents: Tensor
    """Index of each member's parent, `(*replicas, members)`."""
    weights: Tensor
    """Weights relative to the largest, `(*replicas, members)`, float64."""
    effective_sample_size: Tensor
    largest_weight: Tensor
    """Largest fraction of the weight of one member, `(*replicas,)`."""


def tempering_step(
    kind: type[Boltzmann],
    state: PopulationState,
    bias: Tensor,
    coupling: Tensor,
    min_ess: float,
    single_step: bool = False,
) -> TemperingStep:
    """Move towards new parameters as far as the effective sample size stays at `min_ess`, and resample there.

    With `single_step` only the parents come from that fraction; everything else is for the whole line.
    """
    gain = -kind.from_parameters(bias - state.bias, coupling - state.coupling).energy(state.z).to(torch.float64)
    # Relative to the largest: equal weights are all exactly 1, and the largest fraction of the weight is 1 / sum.
    largest = gain.amax(-1, keepdim=True)
    gain = gain - largest
    fraction = max_tempering_step(gain, min_ess, state.z.dtype)
    weights = torch.exp(fraction[..., None] * gain)
    parents = systematic(weights, one_uniform(state.rng_state, DrawDomain.RESAMPLE)[..., None])
    if single_step:
        fraction, weights = torch.ones_like(fraction), gain.exp()
    total = weights.sum(-1)
    increment = fraction * largest[..., 0] + torch.log(total / weights.shape[-1])
    return TemperingStep(
        z=state.z.gather(-2, parents[..., None].expand(state.z.shape)),
        bias=_interpolate(state.bias, bias, fraction),
        coupling=_interpolate(state.coupling, coupling, fraction),
        fraction=fraction,
        increment=increment,
        parents=parents,
        weights=weights,
        effective_sample_size=effective_sample_size(weights),
        largest_weight=1 / total,
    )


@functools.cache
def compiled_tempering_step() -> Callable[..., TemperingStep]:
    """:func:`tempering_step` by torch.compile."""
    return torch.compile(tempering_step)


def reverse_increment(
    kind: type[Boltzmann],
    z: Tensor,
    bias_change: Tensor,
    coupling_change: Tensor,
    forward: Tensor,
    weights: Tensor,
    min_ess: float,
) -> Tensor:
    """log Z_new - log Z_old by the reverse estimator, or `forward` if its effective sample size is too low.

    exp(-increment) = mean of exp(E_new(z) - E_old(z)) over the new members z. States made improbable by the step are
    absent from the new population. The old members still have them, so the effective sample size of the reverse
    weights 1 / w is estimated with the old members: N / (mean w mean 1/w).
    """
    loss = kind.from_parameters(bias_change, coupling_change).energy(z).to(torch.float64)
    reverse = math.log(z.shape[-2]) - torch.logsumexp(loss, dim=-1)
    enough = min_ess * weights.mean(-1) * weights.reciprocal().mean(-1) <= z.shape[-2]
    return torch.where(enough, reverse, forward)


@functools.cache
def compiled_reverse_increment() -> Callable[..., Tensor]:
    """:func:`reverse_increment` by torch.compile."""
    return torch.compile(reverse_increment)


def _interpolate(old: Tensor, new: Tensor, fraction: Tensor) -> Tensor:
    """old + fraction (new - old), and exactly `new` at 1."""
    return torch.lerp(old, new, fraction.to(old.dtype).reshape(*fraction.shape, *[1] * (old.ndim - fraction.ndim)))
