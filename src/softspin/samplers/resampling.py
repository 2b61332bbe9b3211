"""Weights of a population: what they are worth, how far they carry, who has children, and who is kin."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_OCTAVES, _PER_OCTAVE = 15, 4
_AT_ONCE = 1 << 14
"""Members that see the grid of `max_tempering_step` at a time, 8.5 MB a replica."""


def systematic(weights: Tensor, uniform: Tensor) -> Tensor:
    """Systematic resampling: N parents by weights `(*replicas, N)`, from one uniform per replica `(*replicas, 1)`.

    Weights are float64, up to a common factor. A member of weight w has floor or ceil of N w / sum(w) children. Equal
    weights of 1: everyone is their own parent, as long as N + uniform is exact.

    >>> weights = torch.tensor([1.0, 1.0, 3.0, 1e-22], dtype=torch.float64)
    >>> systematic(weights, torch.tensor([0.5], dtype=torch.float64))
    tensor([0, 1, 2, 2])
    """
    count = weights.shape[-1]
    edges = weights.cumsum(-1)
    points = torch.arange(count, dtype=torch.float64, device=weights.device) + uniform
    parents = torch.searchsorted(edges, points * (edges[..., -1:] / count), right=True)
    return parents.clamp_(max=count - 1)  # among weights that are NaN every search ends outside


def max_tempering_step(gain: Tensor, least: float, dtype: torch.dtype) -> Tensor:
    """The largest share s of the way, on a geometric grid, at which the weights e^(s gain) are worth `least` of them.

    gain `(*replicas, N)`, at most 0; s `(*replicas,)`, exact in `dtype`: the smallest on the grid if none will do. With
    S(s) the sum of the weights, their effective number is S(s)^2 / S(2 s), which falls as s grows, and 2 s is on the
    grid too, one octave up.
    """
    count = (1 + _OCTAVES) * _PER_OCTAVE + 1
    grid = torch.logspace(1, -_OCTAVES, count, base=2, dtype=dtype, device=gain.device).to(torch.float64)
    sums = functools.reduce(
        torch.add, [torch.exp(grid[:, None] * some[..., None, :]).sum(-1) for some in gain.split(_AT_ONCE, -1)]
    )
    number = sums[..., _PER_OCTAVE:].square() / sums[..., :-_PER_OCTAVE]
    shares = grid[_PER_OCTAVE:]
    return torch.where(number >= least, shares, shares[-1]).amax(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    """How many equal weights the weights `(*replicas, N)` are worth."""
    return weights.sum(-1).square() / weights.square().sum(-1)


def by_family(lineage: Tensor, amounts: Tensor) -> Tensor:
    """Sum of the amounts `(*replicas, N)` of the members of each family, by founder."""
    return torch.zeros_like(amounts).scatter_add(-1, lineage, amounts)


def family_sizes(lineage: Tensor) -> Tensor:
    """How many members each founder has, float64."""
    return by_family(lineage, torch.ones_like(lineage, dtype=torch.float64))


def mean_square_family(lineage: Tensor) -> Tensor:
    """Sum of squared family sizes / members: 1 if nobody is kin, as many as there are members if all are."""
    return family_sizes(lineage).square().sum(-1) / lineage.shape[-1]
