"""Local expectation gradients: every bit is flipped in turn. Unbiased, with D + 1 decoder evaluations: an oracle."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import BinaryMethod, binary, logit_surrogate, run
from softspin.methods.branches import Branch

LEG_PAPER = (
    "M. Titsias and M. Lazaro-Gredilla, Local Expectation Gradients for Black Box Variational Inference, NeurIPS 2015"
)


class LocalExpectation(BinaryMethod):
    """q (1 - q) (f(z_i = 1) - f(z_i = 0)) for each bit i, with the other bits of its group as drawn.

    The bits of later groups are drawn again with the same uniforms (reparameterization and marginalization, RAM).

    References:
        M. Titsias and M. Lazaro-Gredilla, 2015, Local Expectation Gradients for Black Box Variational Inference,
        arXiv:1503.01494. S. Tokui and I. Sato, 2017, Evaluating the Variance of Likelihood-Ratio Gradient Estimators,
        ICML (RAM).
    """

    name = "leg"
    citation = LEG_PAPER
    compilable = False  # not worth the compilation of its large batches

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        found = run(model, x, noise, prior)
        surrogate = torch.zeros_like(prior.log_z)
        samples, bits = noise.shape[1], model.bits_per_group
        one = torch.eye(bits, dtype=noise.dtype, device=noise.device)[:, None, None]
        for group, (logits, z) in enumerate(zip(found.logits, found.bits, strict=True)):
            flipped = (z[:, None] - one).abs().flatten(1, 2)  # (R, bits K, batch, bits)
            branch = Branch(model, x, prior, kl_weight, found, group, noise, binary)
            with torch.no_grad():
                other = branch.signal(flipped).unflatten(1, (bits, samples)).movedim(1, -1)
            q = torch.sigmoid(logits.detach())
            difference = (found.signal(group, kl_weight)[..., None] - other) * (2 * z - 1)
            surrogate = surrogate + logit_surrogate(logits, q * (1 - q) * difference)
        return self.terms(found, kl_weight, surrogate)
