"""The parameters of a Boltzmann machine before training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.boltzmann_machine.config import Shape
from softspin.priors import RBM, GraphPrior
from softspin.priors.base import Prior


def empty_parameters(shape: Shape, replicas: int) -> Prior:
    """Parameters that are all 0.

    Args:
        shape: Units and couplings.
        replicas: Number of replicas R.

    Returns:
        The module: bias `(R, n + m)`, visible units first, and a weight.
    """
    if shape.edges is None:
        return RBM(shape.visible, shape.hidden, replicas)
    return GraphPrior(shape.edges, shape.visible + shape.hidden, replicas)


@torch.no_grad()
def initial_parameters(shape: Shape, frequencies: Tensor, seeds: Sequence[int], scale: float) -> Prior:
    """Parameters at which training starts: independent visible units with the frequencies of the data.

    Couplings with hidden units are normal, because hidden units that start equal would stay equal; others are 0.

    Args:
        shape: Units and couplings.
        frequencies: Frequency of 1 of each visible unit, above 0 and below 1, `(n,)`.
        seeds: One seed per replica.
        scale: Standard deviation of the couplings with hidden units, times the root of n.

    Returns:
        The module.
    """
    prior = empty_parameters(shape, len(seeds))
    prior.bias[:, : shape.visible] = torch.logit(frequencies.to(torch.float64)).to(prior.bias)
    with_hidden = torch.ones(prior.weight.shape[1:])
    if shape.edges is not None:
        with_hidden = torch.tensor([float(second >= shape.visible) for _, second in shape.edges])
    for own, seed in zip(prior.weight, seeds, strict=True):
        draws = torch.randn(own.shape, generator=torch.Generator().manual_seed(seed))
        own.copy_(scale / math.sqrt(shape.visible) * with_hidden * draws)
    return prior
