"""Bounds on log p(x), from log weights: ELBO and the K-sample importance-weighted bound."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError


def log_weights(
    log_likelihood: Tensor, log_prior: Tensor, log_posterior: Tensor, warmup: float | Tensor = 1.0
) -> Tensor:
    """log w = log p(x|zeta) + warmup * (log p(zeta) - log q(zeta|x)), all of one shape `(..., K, batch)`.

    `warmup` in [0, 1] is the coefficient of the KL term early in training; with 1, w is the importance weight. One per
    replica takes the form `(replicas, 1, 1)`.
    Prior and posterior may both be given relative to the same base (`log_ratio`): it cancels.
    """
    if not log_likelihood.shape == log_prior.shape == log_posterior.shape:
        raise ShapeError(
            f"log likelihood {tuple(log_likelihood.shape)}, log prior {tuple(log_prior.shape)} and "
            f"log posterior {tuple(log_posterior.shape)} must have one shape; sum over the bits first"
        )
    if isinstance(warmup, float) and not 0 <= warmup <= 1:
        raise SupportError(f"warmup = {warmup:g}; the coefficient of the KL term must lie in [0, 1]")
    return log_likelihood + warmup * (log_prior - log_posterior)


def elbo(log_weights: Tensor, dim: int = -2) -> Tensor:
    """Mean of the log weights `(..., K, batch)` over the sample dimension: the evidence lower bound."""
    _check_samples(log_weights, dim)
    return log_weights.mean(dim)


def importance_bound(log_weights: Tensor, dim: int = -2) -> Tensor:
    """L_K = log (1/K) sum_k w_k over the sample dimension of `(..., K, batch)`; with K = 1, the ELBO.

    Its gradient is the softmax of the log weights times each one's gradient.

    >>> importance_bound(torch.tensor([[0.0], [2.0]]))
    tensor([1.4338])
    """
    _check_samples(log_weights, dim)
    return torch.logsumexp(log_weights, dim) - math.log(log_weights.shape[dim])


def _check_samples(log_weights: Tensor, dim: int) -> None:
    if not -log_weights.ndim <= dim < log_weights.ndim or log_weights.shape[dim] == 0:
        raise ShapeError(f"log weights of shape {tuple(log_weights.shape)} have no samples in dimension {dim}")
