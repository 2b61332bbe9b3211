"""DVAE#: the prior is relaxed as well, by a mean field, so the importance-weighted bound can be used."""

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
    """log (1/K) sum_k p(x|zeta_k) p(zeta_k) / q(zeta_k|x) with a relaxed prior p(zeta)."""

    citation = DVAE_SHARP

    @abstractmethod
    def relax(self, prior: Boltzmann) -> Relaxation:
        """p(zeta) from p(z)."""

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        inferred = self.infer(model, x, noise)
        soft_bits = inferred.joined
        likelihood = model.log_likelihood(x, model.decode(soft_bits.zeta))
        log_prior = self.relax(prior).log_ratio(soft_bits)
        log_posterior = inferred.log_ratio
        bound = importance_bound(log_weights(likelihood, log_prior, log_posterior, kl_weight)).mean(-1)
        kl = log_posterior - log_prior
        return Terms(-bound, bound, likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))


class Overlap(Relaxed):
    """The mean-field relaxation for overlapping smoothings, Sec. 3.1 of the paper."""

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        return ("mean_field_steps", *super().used_settings())

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.mean_field_steps = config.mean_field_steps

    def relax(self, prior: Boltzmann) -> Relaxation:
        return OverlapRelaxation(prior, self.mean_field_steps)


class GaussianRelaxed(Overlap):
    """Gaussian smoothing."""

    name = "dvae#-gaussian"
    smoothing = Gaussian


class ExponentialRelaxed(Overlap):
    """Overlapping exponentials."""

    name = "dvae#-exp"
    smoothing = Exponential


class UniformExponentialRelaxed(Overlap):
    """Exponentials with a uniform share."""

    name = "dvae#-un_exp"
    smoothing = UniformExponential


class PowerRelaxed(Overlap):
    """The power-function smoothing, the paper's best."""

    name = "dvae#-power"
    smoothing = Power
