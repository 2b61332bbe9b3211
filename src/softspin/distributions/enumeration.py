"""Exact sums over all states of a Boltzmann machine, the ground truth for every estimator."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.errors import TooLargeError
from softspin.numerics import all_states, softplus

LARGEST = 24
"""Maximum number of enumerated units: 2**24 states take seconds, and each further unit doubles the time."""


class Moments(NamedTuple):
    """Exact expectations of a Boltzmann machine with D units, in float64."""

    log_z: Tensor
    """log Z, `(*replicas,)`."""
    mean: Tensor
    """E[z], `(*replicas, D)`; empty if not requested."""
    pair: Tensor
    """E[z z'], `(*replicas, D, D)`; empty if not requested."""


def exact_moments(bias: Tensor, coupling: Tensor, free: Tensor, want_moments: bool = True) -> Moments:
    """Sum over all states: the units in `free` in closed form, the others by enumeration.

    It takes one pass with a running maximum, a chunk of states at a time. Memory does not grow with 2**units.

    Args:
        bias: Biases, `(*replicas, D)`.
        coupling: Symmetric coupling matrix, `(*replicas, D, D)`.
        free: Indices of units that are not coupled with each other.
        want_moments: Whether to compute E[z] and E[z z'] as well.

    Returns:
        log Z and, if requested, the moments.

    Raises:
        TooLargeError: More than 24 units would have to be enumerated.
    """
    units = bias.shape[-1]
    order, split = _enumeration_order(units, free)
    bias = bias.to(torch.float64)[..., order]
    coupling = coupling.to(torch.float64)[..., order, :][..., order]

    replicas = bias.shape[:-1]
    chunk = max(1, (1 << 21) // (units * max(1, replicas.numel())))
    top = bias.new_full(replicas, -torch.inf)
    total, mean, pair = bias.new_zeros(replicas), torch.zeros_like(bias), torch.zeros_like(coupling)
    for states in all_states(split, chunk, bias.device):
        log_weight, field = _summed_out(states, bias, coupling)
        new_top = torch.maximum(top, log_weight.amax(-1))
        shrink, weight = torch.exp(top - new_top), torch.exp(log_weight - new_top[..., None])
        top, total = new_top, total * shrink + weight.sum(-1)
        if want_moments:
            unit_means = torch.cat([states.expand(*field.shape[:-1], split), torch.sigmoid(field)], dim=-1)
            weighted = unit_means * weight[..., None]
            mean = mean * shrink[..., None] + weighted.sum(-2)
            pair = pair * shrink[..., None, None] + weighted.mT @ unit_means
    log_z = top + total.log()
    if not want_moments:
        return Moments(log_z, bias.new_empty(0), bias.new_empty(0))
    mean, pair = mean / total[..., None], pair / total[..., None, None]
    # The product of conditional means holds for distinct units only. On the diagonal, E[z_i z_i] = E[z_i].
    pair = pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1)) + torch.diag_embed(mean)
    back = torch.argsort(order)
    return Moments(log_z, mean[..., back], pair[..., back, :][..., back])


def exact_draws(
    bias: Tensor, coupling: Tensor, free: Tensor, count: int, generator: torch.Generator | None = None
) -> Tensor:
    """Draw independent states: the enumerated units by their exact joint probabilities, the others given these.

    Args:
        bias: Biases, `(D,)`.
        coupling: Symmetric coupling matrix, `(D, D)`.
        free: Indices of units that are not coupled with each other.
        count: Number of draws.
        generator: Source of randomness, on the device of the biases. None is torch's default generator.

    Returns:
        Bits, `(count, D)`, float64.

    Raises:
        TooLargeError: More than 24 units would have to be enumerated.
    """
    order, split = _enumeration_order(len(bias), free)
    bias, coupling = bias.to(torch.float64)[order], coupling.to(torch.float64)[order][:, order]
    chunk = max(1, (1 << 21) // len(bias))
    weights = [_summed_out(states, bias, coupling)[0] for states in all_states(split, chunk, bias.device)]
    cdf = torch.softmax(torch.cat(weights), 0).cumsum(0)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, dtype=torch.float64, device=bias.device, generator=generator)

    index = torch.searchsorted(cdf, uniform(count) * cdf[-1], right=True).clamp(max=len(cdf) - 1)
    enumerated = ((index[:, None] >> torch.arange(split, device=bias.device)) & 1).to(torch.float64)
    field = bias[split:] + enumerated @ coupling[:split, split:]
    drawn = torch.cat([enumerated, (uniform(*field.shape) < torch.sigmoid(field)).to(torch.float64)], dim=-1)
    return drawn[:, torch.argsort(order)]


def _enumeration_order(units: int, free: Tensor) -> tuple[Tensor, int]:
    """The units with the enumerated ones first, and how many these are."""
    enumerated = torch.ones(units, dtype=torch.bool, device=free.device)
    enumerated[free] = False
    split = int(enumerated.sum())
    if split > LARGEST:
        raise TooLargeError(
            f"exact enumeration over {split} units is out of reach (at most {LARGEST}); "
            "estimate log Z by annealing and pass it as log_z"
        )
    return torch.cat([enumerated.nonzero().flatten(), free]), split


def _summed_out(states: Tensor, bias: Tensor, coupling: Tensor) -> tuple[Tensor, Tensor]:
    """Log weights of states of the first units, `(*replicas, states)`, and the fields on the others, summed out."""
    split = states.shape[-1]
    inside, across = coupling[..., :split, :split], coupling[..., :split, split:]
    field = bias[..., None, split:] + states @ across
    own = states @ bias[..., :split, None]
    return own[..., 0] + 0.5 * (states @ inside * states).sum(-1) + softplus(field).sum(-1), field
