"""Concrete (Gumbel-softmax) relaxations of the bits: GumBolt, Concrete, straight-through Gumbel.

A soft bit is zeta = sigmoid(beta (l + logistic noise)) with logit l and inverse temperature beta. zeta > 1/2 with
probability sigmoid(l).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.distributions import Boltzmann
from softspin.methods.base import LatentModel, Terms
from softspin.methods.binary import BinaryMethod, run
from softspin.numerics import carry_gradient
from softspin.objectives import importance_bound, log_weights

if TYPE_CHECKING:
    from softspin.config import Config

CONCRETE = (
    "C. J. Maddison, A. Mnih and Y. W. Teh, The Concrete Distribution: A Continuous Relaxation of Discrete Random "
    "Variables, ICLR 2017"
)
GUMBEL_SOFTMAX = "E. Jang, S. Gu and B. Poole, Categorical Reparameterization with Gumbel-Softmax, ICLR 2017"
GUMBOLT = "A. H. Khoshaman and M. H. Amin, GumBolt: Extending Gumbel Trick to Boltzmann Priors, NeurIPS 2018"


class Concrete(BinaryMethod):
    """Soft bits for decoder and encoder, with the KL of the bits: E[log p(x|zeta)] - KL(q(z|x) || p(z)).

    The KL of a group is exact given the soft bits of the groups before it.

    References:
        E. Jang, S. Gu and B. Poole, 2016, Categorical Reparameterization with Gumbel-Softmax, arXiv:1611.01144.
        C. J. Maddison, A. Mnih and Y. W. Teh, 2016, The Concrete Distribution, arXiv:1611.00712.
    """

    name = "concrete"
    citation = CONCRETE
    uses_beta = True
    default_beta = 1.5
    """Temperature 2/3, the value of Maddison et al. for binary variables."""
    beta: Tensor

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.register_buffer("beta", torch.tensor([replica.beta for replica in config.replicas]))

    def soft_bits(self, group: int, logits: Tensor, noise: Tensor) -> Tensor:
        """Draw soft bits.

        Args:
            group: Index of the group.
            logits: Logits, `(R, K, batch, bits)`.
            noise: Uniforms, `(R, K, batch, bits)`.

        Returns:
            Soft bits, `(R, K, batch, bits)`.
        """
        return torch.sigmoid(self.beta[:, None, None, None] * (logits - torch.logit(noise)))

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        return self.terms(run(model, x, noise, prior, self.soft_bits), kl_weight)


class StraightThroughGumbel(Concrete):
    """Bits 1[zeta > 1/2] in the forward pass, with the gradient of the soft bits.

    References:
        E. Jang, S. Gu and B. Poole, 2016, Categorical Reparameterization with Gumbel-Softmax, arXiv:1611.01144.
    """

    name = "st-gumbel"
    citation = GUMBEL_SOFTMAX
    default_beta = 1.0
    """Temperature 1, the value of Jang et al. without a schedule."""

    def soft_bits(self, group: int, logits: Tensor, noise: Tensor) -> Tensor:
        zeta = super().soft_bits(group, logits, noise)
        return carry_gradient((zeta > 0.5).to(zeta.dtype), zeta)


class GumBolt(Concrete):
    """Soft bits in all terms, also in the energy and in log q, with log Z of the discrete prior.

        L_K = E[log (1/K) sum_k p(x|zeta_k) e^(-E(zeta_k)) / (Z q(zeta_k|x))],
        log q(zeta|x) = sum_i zeta_i log q_i + (1 - zeta_i) log(1 - q_i).

    References:
        A. H. Khoshaman and M. H. Amin, 2018, GumBolt: Extending Gumbel Trick to Boltzmann Priors, arXiv:1805.07349.
    """

    name = "gumbolt"
    citation = GUMBOLT
    default_beta = 7.0
    """Temperature 1/7, the value of the paper."""
    importance_weighted = True

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        found: list[Tensor] = []
        log_posterior: list[Tensor] = []

        def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
            logits = out[..., : model.bits_per_group]
            found.append(self.soft_bits(group, logits, own))
            zeta = found[-1]
            log_posterior.append((zeta * logsigmoid(logits) + (1 - zeta) * logsigmoid(-logits)).sum(-1))
            return zeta

        model.encode_groups(x, noise, draw)
        zeta = torch.cat(found, dim=-1)
        likelihood = model.reconstruction(x, zeta)
        log_prior = -prior.energy(zeta) - prior.log_z_of(likelihood.ndim)
        log_q = torch.stack(log_posterior).sum(0)
        bound = importance_bound(log_weights(likelihood, log_prior, log_q, kl_weight)).mean(-1)
        kl = (log_q - log_prior).detach()
        return Terms(-bound, bound.detach(), likelihood.detach().mean((-2, -1)), kl.mean((-2, -1)))
