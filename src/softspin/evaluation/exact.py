"""The exact likelihood of a model with few bits, by a sum over all their states: a reference for the estimators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softspin.data.mapped import Table
from softspin.errors import TooLargeError
from softspin.evaluation.importance import log_joint_given
from softspin.evaluation.running import MeanNLL, Running, check_condition, check_images, evaluating, image_batches
from softspin.model import DiscreteVAE
from softspin.numerics import all_states
from softspin.samplers.bounds import precise

LARGEST = 20
"""Largest number of bits. Each state is decoded once, so every further bit doubles the time."""


def exact_nll(
    model: DiscreteVAE,
    images: Table,
    *,
    condition: Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MeanNLL:
    """Exact -log p(x), averaged over binary images.

    Args:
        model: Model with at most 20 latent bits.
        images: Binary images, `(N, pixels)`.
        condition: Encoded conditions, `(N, C)`, of a conditional model.
        progress: Called with the number of latent states that are done, and their total number.

    Returns:
        Mean NLL and its standard error over images, `(R,)` each.

    Raises:
        TooLargeError: The model has more latent bits.
    """
    seen = Running()
    seen.add(-exact_log_likelihood(model, images, condition=condition, progress=progress))
    return MeanNLL(seen.mean, seen.standard_error)


def exact_log_likelihood(
    model: DiscreteVAE,
    images: Table,
    *,
    condition: Tensor | None = None,
    image_batch: int = 1024,
    state_chunk: int = 1024,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Exact log p(x) = log sum_z p(z) p(x|z) of binary images.

    The decoder runs in the precision of the model, everything else in float64. The encoder is not used.

    Args:
        model: Model with at most 20 latent bits.
        images: Binary images, `(N, pixels)`.
        condition: Encoded conditions, `(N, C)`, of a conditional model.
        image_batch: Number of images at a time.
        state_chunk: Number of latent states at a time.
        progress: Called with the number of latent states that are done, and their total number.

    Returns:
        log p(x), `(R, N)`, float64.

    Raises:
        TooLargeError: The model has more latent bits.
    """
    if model.units > LARGEST:
        raise TooLargeError(
            f"an exact likelihood over {model.units} bits is too expensive (at most {LARGEST}); use evaluate"
        )
    check_images(images, len(model.mean))
    if model.condition is not None:
        return _given(model, images, check_condition(model, condition, len(images)), progress)
    total = torch.full((model.replicas, len(images)), -torch.inf, dtype=torch.float64, device=model.mean.device)
    done = 0
    with evaluating(model):
        prior = precise(model.prior(validate=False))
        for states in all_states(model.units, state_chunk, model.mean.device):
            z = states.expand(model.replicas, *states.shape)
            parameters = model.decode(z[:, None].to(model.mean.dtype))[:, 0].to(torch.float64)
            log_prior = prior.log_prob(z)
            for start, x in image_batches(images, image_batch, parameters, model.likelihood.check_data):
                log_joint = model.likelihood.log_prob_pairs(x, parameters) + log_prior[:, None]
                part = total[:, start : start + len(x)]
                torch.logaddexp(part, log_joint.logsumexp(-1), out=part)
            done += len(states)
            if progress is not None:
                progress(done, 2**model.units)
    return total


def _given(model: DiscreteVAE, images: Table, condition: Tensor, progress: Callable[[int, int], None] | None) -> Tensor:
    """Exact log p(x | c) of a conditional model, whose decoder is run for every pair of an image and a state."""
    states = torch.cat(list(all_states(model.units, 1024, model.mean.device))).expand(model.replicas, -1, -1)
    parts = []
    with evaluating(model):
        assert model.condition is not None
        every = precise(model.condition.spread(model.prior(validate=False)))
        log_z = every.exact_log_z().reshape(model.replicas, -1)
        for start, x in image_batches(images, 64, model.mean, model.likelihood.check_data):
            given = condition[start : start + len(x)]
            parts.append(log_joint_given(model, x, given, states) - log_z[:, model.condition.nearest(given)])
            if progress is not None:
                progress(2**model.units * (start + len(x)) // len(images), 2**model.units)
    return torch.cat(parts, dim=1)
