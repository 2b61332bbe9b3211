"""The result type of all estimators of log Z, and the precision of a set of importance weights."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple

import torch
from torch import Tensor
from typing_extensions import TypeVar

from softspin.formatting import interval_text, with_error

Number = TypeVar("Number", default=Tensor)
"""Tensors `(*replicas,)`, or floats for a single model."""

NORMAL_95 = 1.959964
"""Half-width of the 95% interval of a normal distribution, in standard errors."""


class LogZ(NamedTuple, Generic[Number]):
    """The log partition function with its uncertainty. All tensors `(*replicas,)`, float64; or floats for one model.

    `kind` is "exact"; "lower bound" (forward annealing) or "upper bound" (reverse annealing), both in expectation and
    not in every run; or "estimate", which has limits on both sides. `lower` and `upper` are 95% limits. A limit is
    infinite in a direction about which the method gives no information: forward annealing may have missed a mode.
    """

    value: Number
    standard_error: Number
    """Standard error of `value`; infinite if two or fewer weights dominate. For a population it is conservative."""
    effective_sample_size: Number
    """Effective sample size of the importance weights."""
    lower: Number
    upper: Number
    method: str
    """exact, ais, reverse ais, sandwich, population"""
    kind: str
    """exact, lower bound, upper bound, estimate"""
    flagged: Tensor | bool | None = None
    """Whether annealing misses states that a search found, `(*replicas,)`; None if there was no search. Where so,
    `lower` and `upper` are bounds that hold with certainty, and `value` is an estimate between them without error."""

    def __repr__(self) -> str:
        each = list(zip(*(_floats(number) for number in self[:5]), strict=True))
        texts = [_log_z_text(value, error, lower, upper) for value, error, _, lower, upper in each]
        shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts[:4])}{', ...' if len(texts) > 4 else ''}]"
        how = self.kind if self.method == self.kind else f"{self.kind}, by {self.method}"
        return f"LogZ({shown}, {how})"

    def is_flagged(self, replica: int) -> bool:
        """Whether annealing misses states of a replica that a search found; see :attr:`flagged`.

        Args:
            replica: Number of the replica, counted from 0.

        Returns:
            True if it does; False also if there was no search.
        """
        return self.flagged is not None and bool(torch.as_tensor(self.flagged).flatten()[replica])

    def of_value(self, number: int) -> LogZ:
        """log Z(c) of one value of the condition, `(R,)`, from those of all values, `(R, V)`.

        Args:
            number: Number of the value.

        Returns:
            log Z of each replica.
        """
        return LogZ._make(each[:, number] if isinstance(each, Tensor) else each for each in self)


def _floats(number: object) -> list[float]:
    values: list[float] = torch.as_tensor(number, dtype=torch.float64).flatten().tolist()
    return values


def _log_z_text(value: float, error: float, lower: float, upper: float) -> str:
    if lower == upper:
        return f"{value:.6g}"
    return f"{with_error(value, error)} in {interval_text(lower, upper)}"


def log_mean_exp(log_weights: Tensor) -> Tensor:
    """Log of the mean weight, `(..., N)` to `(...,)`.

    >>> log_mean_exp(torch.tensor([1000.0, 1000.0])).item()
    1000.0
    """
    return torch.logsumexp(log_weights, -1) - math.log(log_weights.shape[-1])


def weight_ess(log_weights: Tensor) -> Tensor:
    """Effective sample size (sum w)^2 / sum w^2 of weights `(..., N)`: 1 if one dominates, N if all are equal.

    >>> weight_ess(torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -50.0, -50.0, -50.0]]))
    tensor([4., 1.])
    """
    # Relative to the largest: equal weights are all exactly 1, and their effective sample size is exactly N.
    weights = torch.exp(log_weights - log_weights.amax(-1, keepdim=True))
    return weights.sum(-1).square() / weights.square().sum(-1)


def log_mean_error(ess: Tensor, count: int, family_correlation: Tensor | float = 1.0) -> Tensor:
    """Standard error of the log of a mean of `count` weights whose effective sample size is `ess`.

    The delta method, variance(w) / (count mean(w)^2) = (count - ess) / (ess (count - 1)), cannot exceed 1 nat however
    bad the weights are, because the variance is estimated from the same few weights. With ess - 2 in place of ess (the
    variance of Student's t with ess degrees of freedom) the error is infinite if two or fewer weights dominate, and
    unchanged if many contribute.

    >>> log_mean_error(torch.tensor([1000.0, 500.0, 10.0, 1.5]), 1000)
    tensor([0.0000, 0.0317, 0.3520,    inf])
    >>> log_mean_error(torch.tensor([1000.0, 500.0, 10.0]), 1000, family_correlation=4.0)
    tensor([0.0000, 0.0638, 1.4078])

    Args:
        ess: Effective sample size, any shape.
        count: Number of weights.
        family_correlation: Mean square family size, if weights come in families of equal ones: `ess` is divided by it.

    Returns:
        Standard errors, in the shape of `ess`.
    """
    if count < 2:
        return torch.full_like(ess, torch.inf)
    # All weights equal can give an ess of count + rounding.
    spread = ((count - ess) / (count - 1)).clamp(min=0)
    error = torch.sqrt(spread / (ess / family_correlation - 2).clamp(min=0))
    return torch.where(spread == 0, torch.zeros_like(error), error)
