"""Resampling of a weighted population: effective sample size, step size, systematic resampling and family sizes."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_OCTAVES, _PER_OCTAVE = 15, 4
_MEMBERS_PER_CHUNK = 1 << 14
"""Members for which `max_tempering_step` evaluates its grid at a time: 8.5 MB a replica."""


def systematic(weights: Tensor, uniform: Tensor) -> Tensor:
    """Systematic resampling: choose N parents with probabilities proportional to their weights.

    A member of weight w has floor or ceil of N w / sum(w) children. With equal weights of 1 each member is its own
    parent, as long as N + uniform is exact in float64.

    >>> weights = torch.tensor([1.0, 1.0, 3.0, 1e-22], dtype=torch.float64)
    >>> systematic(weights, torch.tensor([0.5], dtype=torch.float64))
    tensor([0, 1, 2, 2])

    Args:
        weights: Weights up to a common factor, `(*replicas, N)`, float64.
        uniform: One uniform number per replica, `(*replicas, 1)`.

    Returns:
        Indices of the parents, `(*replicas, N)`.
    """
    count = weights.shape[-1]
    edges = weights.cumsum(-1)
    points = torch.arange(count, dtype=torch.float64, device=weights.device) + uniform
    parents = torch.searchsorted(edges, points * (edges[..., -1:] / count), right=True)
    return parents.clamp_(max=count - 1)  # with NaN weights every search ends past the last member


def max_tempering_step(gain: Tensor, min_ess: float, dtype: torch.dtype) -> Tensor:
    """The largest step size s, on a geometric grid, at which the weights e^(s gain) keep an ESS of `min_ess`.

    With S(s) the sum of the weights, their effective sample size is S(s)^2 / S(2 s). It falls as s grows, and 2 s is
    on the grid too, one octave up.

    Args:
        gain: Log weights of the whole step, `(*replicas, N)`, at most 0.
        min_ess: Smallest effective sample size that is accepted.
        dtype: The step size is exact in this type.

    Returns:
        s from 0 to 1, `(*replicas,)`: the smallest of the grid if none is accepted.
    """
    count = (1 + _OCTAVES) * _PER_OCTAVE + 1
    grid = torch.logspace(1, -_OCTAVES, count, base=2, dtype=dtype, device=gain.device).to(torch.float64)
    sums = functools.reduce(
        torch.add,
        [torch.exp(grid[:, None] * some[..., None, :]).sum(-1) for some in gain.split(_MEMBERS_PER_CHUNK, -1)],
    )
    ess = sums[..., _PER_OCTAVE:].square() / sums[..., :-_PER_OCTAVE]
    sizes = grid[_PER_OCTAVE:]
    return torch.where(ess >= min_ess, sizes, sizes[-1]).amax(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    """Effective sample size (sum w)^2 / sum w^2 of weights `(*replicas, N)`."""
    return weights.sum(-1).square() / weights.square().sum(-1)


def by_family(lineage: Tensor, amounts: Tensor) -> Tensor:
    """Sum of the amounts `(*replicas, N)` over each family, indexed by ancestor."""
    return torch.zeros_like(amounts).scatter_add(-1, lineage, amounts)


def family_sizes(lineage: Tensor) -> Tensor:
    """Number of descendants of each ancestor, float64."""
    return by_family(lineage, torch.ones_like(lineage, dtype=torch.float64))


def mean_square_family(lineage: Tensor) -> Tensor:
    """Sum of squared family sizes / members: 1 if all ancestors differ, `members` if all members share one."""
    return family_sizes(lineage).square().sum(-1) / lineage.shape[-1]
