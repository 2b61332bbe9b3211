"""DVAE#: the prior is relaxed too, by a mean field or an integral, so the importance-weighted bound can be used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softspin.distributions import Boltzmann, OverlapRelaxation, SmoothedBernoulli
from softspin.distributions.relaxation import Relaxation
from softspin.methods.base import LatentModel, Terms
from softspin.methods.pathwise import draw_paths, join_paths, pathwise_loss
from softspin.methods.smoothed import SmoothedMethod
from softspin.objectives import importance_bound, log_weights
from softspin.smoothing import Exponential, Gaussian, Power, SoftBits, UniformExponential

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

    @classmethod
    def used_settings(cls) -> tuple[str, ...]:
        return ("gradient", *super().used_settings())

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.gradient = config.gradient

    @property
    def repeats_encoder(self) -> bool:
        return self.gradient == "dreg"

    @abstractmethod
    def relax(self, prior: Boltzmann) -> Relaxation:
        """The relaxed prior p(zeta) of p(z)."""

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        if self.gradient == "dreg":
            return self._pathwise_objective(model, x, noise, prior, kl_weight)
        inferred = self.infer(model, x, noise)
        soft_bits = inferred.joined
        log_prior, likelihood = self.relax(prior).log_ratio_beside(
            soft_bits, lambda: model.reconstruction(x, soft_bits.zeta), inferred.log_base
        )
        log_posterior = inferred.log_ratio
        bound = importance_bound(log_weights(likelihood, log_prior, log_posterior, kl_weight)).mean(-1)
        kl = log_posterior - log_prior
        return Terms(-bound, bound, likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))

    def _pathwise_objective(
        self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor
    ) -> Terms:
        """The same bound, with the loss of :mod:`softspin.methods.pathwise`."""
        total, *own = draw_paths(self, model, x, noise)
        features, layer = model.decoder_features(total.zeta)
        all_features = [features, *(model.decoder_features(path.zeta, own_path=True)[0] for path in own)]
        tensors = [
            (part, path.log_odds if self.trained_width() is None else path.zeta, *path.outputs[1:])
            for part, path in zip(all_features, (total, *own), strict=True)
        ]
        (features, bits, *outputs), zeros = join_paths(tensors)
        soft_bits, log_posterior = self._density(model.bits_per_group, bits, [total.outputs[0], *outputs])
        log_prior, likelihood = self.relax(prior).log_ratio_beside(
            soft_bits, lambda: model.reconstruction_from(x, features, layer)
        )
        logs = log_weights(likelihood, log_prior, log_posterior, kl_weight)
        bound, kl = importance_bound(logs.detach()).mean(-1), log_posterior - log_prior
        loss = pathwise_loss(logs, kl_weight, zeros)
        return Terms(loss, bound, likelihood.detach().mean((-2, -1)), kl.detach().mean((-2, -1)))

    def _density(self, size: int, values: Tensor, outputs: list[Tensor]) -> tuple[SoftBits, Tensor]:
        """Soft bits and log q(zeta|x) relative to their base, `(R, K, batch)`, for given outputs of the nets.

        The values are log odds, or zeta if the smoothing is trained: then the densities are functions of zeta, but not
        of the parameters of the smoothing.
        """
        groups: list[SoftBits] = []
        log_ratios: list[Tensor] = []
        for group, (own, out) in enumerate(zip(values.split(size, dim=-1), outputs, strict=True)):
            smoothing = self.detached_smoothing_of(group, out)
            trained = self.trained_width() is not None
            groups.append(
                smoothing.to_soft_bits(smoothing.from_value(own)) if trained else SoftBits.from_log_odds(own, own)
            )
            posterior = SmoothedBernoulli(out[..., :size].expand(own.shape), smoothing, validate_args=False)
            log_ratios.append(posterior.log_ratio(groups[-1]).sum(-1))
        joined = SoftBits(*(torch.cat(parts, dim=-1) for parts in zip(*groups, strict=True)))
        return joined, torch.stack(log_ratios).sum(0)


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
