"""Lower bounds on log p(x) from log weights: the ELBO and the K-sample importance-weighted bound."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError
from softspin.numerics import real_tensor


def log_weights(
    log_likelihood: Tensor, log_prior: Tensor, log_posterior: Tensor, warmup: float | Tensor = 1.0
) -> Tensor:
    """Compute the log weights log w = log p(x|zeta) + warmup (log p(zeta) - log q(zeta|x)).

    Prior and posterior may both be relative to the same base (`log_ratio`), which cancels.

    Args:
        log_likelihood: log p(x|zeta), `(..., K, batch)`.
        log_prior: log p(zeta), summed over the bits, of the same shape.
        log_posterior: log q(zeta|x), summed over the bits, of the same shape.
        warmup: Coefficient of the KL term, in [0, 1]: a number, or a tensor `(replicas, 1, 1)`. With 1, w is the
            importance weight.

    Returns:
        Log weights of the same shape.

    Raises:
        ShapeError: The three shapes differ.
        SupportError: warmup does not lie in [0, 1].

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Eq. 3.
    """
    log_likelihood = real_tensor("log_likelihood", log_likelihood)
    log_prior, log_posterior = real_tensor("log_prior", log_prior), real_tensor("log_posterior", log_posterior)
    if not log_likelihood.shape == log_prior.shape == log_posterior.shape:
        raise ShapeError(
            f"log likelihood {tuple(log_likelihood.shape)}, log prior {tuple(log_prior.shape)} and "
            f"log posterior {tuple(log_posterior.shape)} must have one shape; sum over the bits first"
        )
    if isinstance(warmup, int | float) and not 0 <= warmup <= 1:
        raise SupportError(f"warmup = {warmup:g}; the coefficient of the KL term must lie in [0, 1]")
    return log_likelihood + warmup * (log_prior - log_posterior)


def elbo(log_weights: Tensor, dim: int = -2) -> Tensor:
    """Compute the evidence lower bound, the mean of the log weights over the samples.

    Args:
        log_weights: Log weights, `(..., K, batch)`.
        dim: The sample dimension.

    Returns:
        The ELBO in nats, without the sample dimension.
    """
    log_weights = real_tensor("log_weights", log_weights)
    _check_samples(log_weights, dim)
    return log_weights.mean(dim)


def importance_bound(log_weights: Tensor, dim: int = -2) -> Tensor:
    """Compute the importance-weighted bound L_K = log (1/K) sum_k w_k.

    With K = 1 it is the ELBO. Its gradient is the sum of the gradients of the log weights, weighted by their softmax.

    Args:
        log_weights: Log weights, `(..., K, batch)`.
        dim: The sample dimension.

    Returns:
        The bound in nats, without the sample dimension.

    References:
        Burda, Grosse and Salakhutdinov (2015), "Importance Weighted Autoencoders", arXiv:1509.00519. Eq. 3 of DVAE#,
        arXiv:1805.07445.

    Example:
        >>> importance_bound(torch.tensor([[0.0], [2.0]]))
        tensor([1.4338])
    """
    log_weights = real_tensor("log_weights", log_weights)
    _check_samples(log_weights, dim)
    return torch.logsumexp(log_weights, dim) - math.log(log_weights.shape[dim])


def _check_samples(log_weights: Tensor, dim: int) -> None:
    if not -log_weights.ndim <= dim < log_weights.ndim or log_weights.shape[dim] == 0:
        raise ShapeError(f"log weights of shape {tuple(log_weights.shape)} have no samples in dimension {dim}")
