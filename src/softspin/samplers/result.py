"""One result type for every way to log Z, and what a set of importance weights is worth."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

NORMAL_95 = 1.959964
"""Standard errors to either side of a normal's 95% interval."""


class LogZ(NamedTuple):
    """The log partition function: a number, how sure it is, and what it is. All tensors `(*replicas,)`, float64.

    `kind` is "exact"; "lower bound" or "upper bound" (in expectation, not in every run: annealing forward, and from
    samples in reverse); or "estimate", which has both. `lower` and `upper` are 95% limits in the directions that the
    method knows something about, and infinite in the others: annealing that missed a mode does not know.
    """

    value: Tensor
    standard_error: Tensor
    """Of `value`; infinite where a handful of weights decides. A population's is on the safe side."""
    effective_sample_size: Tensor
    """How many equal weights the weights are worth."""
    lower: Tensor
    upper: Tensor
    method: str
    """exact, ais, reverse ais, sandwich, population"""
    kind: str
    """exact, lower bound, upper bound, estimate"""


def log_mean_exp(log_weights: Tensor) -> Tensor:
    """log of the mean weight, `(..., N)` to `(...,)`.

    >>> log_mean_exp(torch.tensor([1000.0, 1000.0])).item()
    1000.0
    """
    return torch.logsumexp(log_weights, -1) - math.log(log_weights.shape[-1])


def weight_ess(log_weights: Tensor) -> Tensor:
    """Effective sample size (sum w)^2 / sum w^2 of weights `(..., N)`: from 1, one carries all, to N, all equal.

    >>> weight_ess(torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -50.0, -50.0, -50.0]]))
    tensor([4., 1.])
    """
    # Relative to the largest: equal weights are all exactly 1, and their effective number exactly N.
    weights = torch.exp(log_weights - log_weights.amax(-1, keepdim=True))
    return weights.sum(-1).square() / weights.square().sum(-1)


def log_mean_error(ess: Tensor, count: int, family_correlation: Tensor | float = 1.0) -> Tensor:
    """Standard error of the log of a mean of `count` weights whose effective sample size is `ess`.

    The delta method, variance(w) / (count mean(w)^2) = (count - ess) / (ess (count - 1)), cannot exceed 1 nat however
    bad the weights are, because the variance is estimated from the same few weights. With ess - 2 in the place of ess
    (the variance of Student's t with ess degrees of freedom) it says infinity where two or fewer weights decide, and
    is the same where many do. Weights that come in families of equal ones are worth fewer draws: `family_correlation`,
    the mean square family size, says by how much.

    >>> log_mean_error(torch.tensor([1000.0, 500.0, 10.0, 1.5]), 1000)
    tensor([0.0000, 0.0317, 0.3520,    inf])
    >>> log_mean_error(torch.tensor([1000.0, 500.0, 10.0]), 1000, family_correlation=4.0)
    tensor([0.0000, 0.0638, 1.4078])
    """
    if count < 2:
        return torch.full_like(ess, torch.inf)
    # All weights equal can give an ess of count + rounding.
    spread = ((count - ess) / (count - 1)).clamp(min=0)
    error = torch.sqrt(spread / (ess / family_correlation - 2).clamp(min=0))
    return torch.where(spread == 0, torch.zeros_like(error), error)
