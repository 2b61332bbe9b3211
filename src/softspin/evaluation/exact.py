"""The exact likelihood of a model with few bits, by a sum over all their states: a check on everything else."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.errors import TooLargeError
from softspin.evaluation.running import MeanNLL, Running, check_images, evaluating, image_batches
from softspin.model import DiscreteVAE
from softspin.numerics import all_states

LARGEST = 20
"""Bits that are enumerated at most. Each state is decoded once, so a further bit doubles the time."""


def exact_nll(model: DiscreteVAE, images: Tensor) -> MeanNLL:
    """-log p(x) averaged over binary images `(N, pixels)`, and its standard error over them, `(R,)` each."""
    seen = Running()
    seen.add(-exact_log_likelihood(model, images))
    return MeanNLL(seen.mean, seen.standard_error)


def exact_log_likelihood(
    model: DiscreteVAE, images: Tensor, *, image_batch: int = 1024, state_chunk: int = 1024
) -> Tensor:
    """log p(x) = log sum_z p(z) p(x|z) of binary images `(N, pixels)`, `(R, N)` float64.

    The decoder runs in the model's precision, the rest in double. The encoder has no part in it.
    """
    if model.units > LARGEST:
        raise TooLargeError(
            f"an exact likelihood over {model.units} bits is out of reach (at most {LARGEST}); use evaluate"
        )
    check_images(images, len(model.mean))
    total = torch.full((model.replicas, len(images)), -torch.inf, dtype=torch.float64, device=model.mean.device)
    with evaluating(model):
        boltzmann = model.prior(validate=False)
        prior = boltzmann.with_parameters(
            boltzmann.bias.to(torch.float64), boltzmann.couplings.detach().to(torch.float64)
        )
        for states in all_states(model.units, state_chunk, model.mean.device):
            z = states.expand(model.replicas, *states.shape)
            parameters = model.decode(z[:, None].to(model.mean.dtype))[:, 0].to(torch.float64)
            log_prior = prior.log_prob(z)
            for start, x in image_batches(images, image_batch, parameters, model.likelihood.check_data):
                log_joint = model.likelihood.log_prob_pairs(x, parameters) + log_prior[:, None]
                part = total[:, start : start + len(x)]
                torch.logaddexp(part, log_joint.logsumexp(-1), out=part)
    return total
