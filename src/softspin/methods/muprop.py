"""MuProp: REINFORCE with the first-order Taylor expansion at the mean field as control variate. Unbiased."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import logit_surrogate
from softspin.methods.branches import Branch, BranchedMethod

MUPROP_PAPER = (
    "S. Gu, S. Levine, I. Sutskever and A. Mnih, MuProp: Unbiased Backpropagation for Stochastic Neural Networks, "
    "ICLR 2016"
)


def mean_field(group: int, logits: Tensor, noise: Tensor) -> Tensor:
    """The probabilities in place of bits.

    Args:
        group: Index of the group, not used.
        logits: Logits, `(R, K, batch, bits)`.
        noise: Not used.

    Returns:
        Probabilities, `(R, K, batch, bits)`.
    """
    return torch.sigmoid(logits)


class MuProp(BranchedMethod):
    """(f(z) - f(q) - f'(q).(z - q)) (z - q) + f'(q) q (1 - q), for each group given the bits before it.

    f(q) is the signal at the probabilities of the group, with all later groups at their mean field. It takes one more
    decoder evaluation for each group. In the first group it is shared by the K samples.

    References:
        S. Gu, S. Levine, I. Sutskever and A. Mnih, 2015, MuProp: Unbiased Backpropagation for Stochastic Neural
        Networks, arXiv:1511.05176.
    """

    name = "muprop"
    citation = MUPROP_PAPER

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        found = self.run(model, x, noise, prior)
        surrogate = torch.zeros_like(prior.log_z)
        for group, (logits, z) in enumerate(zip(found.logits, found.bits, strict=True)):
            branch = Branch(model, x, prior, kl_weight, found, group, noise, mean_field)
            q = torch.sigmoid(logits.detach())
            value, slope = self.value_and_slope(branch, q)
            rest = found.signal(group, kl_weight) - value - (slope * (z - q)).sum(-1)
            surrogate = surrogate + logit_surrogate(logits, rest[..., None] * (z - q) + slope * q * (1 - q))
        return self.terms(found, kl_weight, surrogate)
