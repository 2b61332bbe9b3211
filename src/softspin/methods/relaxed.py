"""DVAE#: the prior is relaxed too, by a mean field or an integral, so the importance-weighted bound can be used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softspin.distributions import Boltzmann, OverlapRelaxation
from softspin.distributions.relaxation import Relaxation
from softspin.methods.base import LatentModel, Terms
from softspin.methods.smoothed import SmoothedMethod
from softspin.objectives import importance_bound, log_weights
from softspin.smoothing import Exponential, Gaussian, Power, UniformExponential

if TYPE_CHECKING:
    from softspin.config import Config

DVAE_SHARP = (
    "A. Vahdat, E. Andriyash and W. G. Macready, DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann "
    "Priors, NeurIPS 2018"
)


class Relaxed(SmoothedMethod):
    """The bound log (1/K) sum_k p(x|zeta_k) p(zeta_k) / q(zeta_k|x), with a relaxed prior p(zeta).

    References:
        A. Vahdat, E. Andriyash and W. G. Macready, 2018, DVAE#: Discrete Variational Autoencoders with Relaxed
        Boltzmann Priors, arXiv:1805.07445.
        Y. Burda, R. Grosse and R. Salakhutdinov, 2015, Importance Weighted Autoencoders, arXiv:1509.00519.
    """

    citation = DVAE_SHARP
    importance_weighted = True

    @abstractmethod
    def relax(self, prior: Boltzmann) -> Relaxation:
        """The relaxed prior p(zeta) of p(z)."""

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        inferred = self.infer(model, x, noise)
        soft_bits = inferred.joined
        log_prior, likelihood = self.relax(prior).log_ratio_beside(
            soft_bits, lambda: model.reconstruction(x, soft_bits.zeta)
        )
        log_posterior = inferred.log_ratio
        bound = importance_bound(log_weights(likelihood, log_prior, log_posterior, kl_weight)).mean(-1)
        kl = log_posterior - log_prior
        return Terms(-bound, bound, likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))


class Overlap(Relaxed):
    """The mean-field relaxation for overlapping smoothings.

    References:
        A. Vahdat, E. Andriyash and W. G. Macready, 2018, DVAE#: Discrete Variational Autoencoders with Relaxed
        Boltzmann Priors, arXiv:1805.07445, Sec. 3.1.
    """

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        return ("mean_field_steps", *super().used_settings())

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.mean_field_steps = config.mean_field_steps

    def relax(self, prior: Boltzmann) -> Relaxation:
        return OverlapRelaxation(prior, self.mean_field_steps)


class GaussianRelaxed(Overlap):
    """DVAE# with Gaussian smoothing."""

    name = "dvae#-gaussian"
    smoothing = Gaussian


class ExponentialRelaxed(Overlap):
    """DVAE# with overlapping exponentials."""

    name = "dvae#-exp"
    smoothing = Exponential


class UniformExponentialRelaxed(Overlap):
    """DVAE# with a mixture of exponentials and a uniform distribution."""

    name = "dvae#-un_exp"
    smoothing = UniformExponential


class PowerRelaxed(Overlap):
    """DVAE# with power-function smoothing, the best in the paper."""

    name = "dvae#-power"
    smoothing = Power
