"""ARM and DisARM: two samples from one set of uniforms, u and 1 - u. Unbiased; 1 + G decoder evaluations."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import BinaryMethod, logit_surrogate, run

ARM_PAPER = "M. Yin and M. Zhou, ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks, ICLR 2019"
DISARM_PAPER = (
    "Z. Dong, A. Mnih and G. Tucker, DisARM: An Antithetic Gradient Estimator for Binary Latent Variables, NeurIPS 2020"
)


class Antithetic(BinaryMethod):
    """Compares a sample with those in which the uniforms of one group are reflected; later groups keep their uniforms.

    Every one of the 1 + G samples has the distribution q(z|x), so all of them train the decoder and the prior.
    """

    @abstractmethod
    def logit_gradient(self, difference: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        """The gradient with respect to the logits of a group.

        Args:
            difference: f(z) - f(z~), `(R, K, batch, 1)`, with z = 1[u < q] and z~ = 1[1 - u < q].
            logits: Logits of the group, `(R, K, batch, bits)`.
            noise: Uniforms u of the group, `(R, K, batch, bits)`.

        Returns:
            The gradient, `(R, K, batch, bits)`.
        """

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        samples, bits = noise.shape[1], model.bits_per_group
        branches = [noise]
        parts = noise.split(bits, dim=-1)
        for group, own in enumerate(parts):
            branches.append(torch.cat([*parts[:group], 1 - own, *parts[group + 1 :]], dim=-1))
        found = run(model, x, torch.cat(branches, dim=1), prior)
        surrogate = torch.zeros_like(prior.log_z)
        for group, (logits, own) in enumerate(zip(found.logits, parts, strict=True)):
            first = logits[:, :samples]  # those of the first branch; in the first group all branches share them
            signal = found.signal(group, kl_weight).unflatten(1, (-1, samples))
            difference = (signal[:, 0] - signal[:, group + 1])[..., None]
            surrogate = surrogate + logit_surrogate(first, self.logit_gradient(difference, first.detach(), own))
        return self.terms(found, kl_weight, surrogate)


class ARM(Antithetic):
    """(f(z~) - f(z)) (u - 1/2).

    References:
        M. Yin and M. Zhou, 2018, ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks,
        arXiv:1807.11143.
    """

    name = "arm"
    citation = ARM_PAPER

    def logit_gradient(self, difference: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        return difference * (0.5 - noise)


class DisARM(Antithetic):
    """ARM averaged over the uniforms at given bits: (f(z) - f(z~)) / 2 (z - z~) sigmoid(abs(l)).

    References:
        Z. Dong, A. Mnih and G. Tucker, 2020, DisARM: An Antithetic Gradient Estimator for Binary Latent Variables,
        arXiv:2006.10680. M. Yin, N. Ho, B. Yan, X. Qian and M. Zhou, 2020, Probabilistic Best Subset Selection by
        Gradient-Based Optimization, arXiv:2006.06448 (U2G).
    """

    name = "disarm"
    citation = DISARM_PAPER

    def logit_gradient(self, difference: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        q = torch.sigmoid(logits)
        apart = (noise < q).to(q.dtype) - (1 - noise < q).to(q.dtype)
        return 0.5 * difference * apart * torch.sigmoid(logits.abs())
