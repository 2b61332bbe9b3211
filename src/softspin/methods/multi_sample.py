"""VIMCO and OVIS: score-function estimators of the importance-weighted bound of K samples. Unbiased; K evaluations."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ConfigError
from softspin.methods.base import LatentModel, Method, Terms
from softspin.objectives import importance_bound, log_weights

if TYPE_CHECKING:
    from softspin.config import Config

VIMCO_PAPER = "A. Mnih and D. J. Rezende, Variational Inference for Monte Carlo Objectives, ICML 2016"
OVIS_PAPER = (
    "V. Lievin, A. Dittadi, A. Christensen and O. Winther, Optimal Variance Control of the Score-Function Gradient "
    "Estimator for Importance-Weighted Bounds, NeurIPS 2020"
)


class ImportanceWeighted(Method):
    """The gradient of E[L_K]: autograd through L_K, plus sum_k (L_K - c_k) d log q(z_k|x).

    L_K = log (1/K) sum_k w_k. The baseline c_k does not depend on sample k, so the estimator is unbiased.
    """

    importance_weighted = True

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.importance_samples < 2:
            raise ConfigError(
                f"importance_samples = 1 is not possible for '{cls.name}', whose baseline of a sample is made of the "
                "others; use 2 or more"
            )

    @abstractmethod
    def baselines(self, log_w: Tensor) -> Tensor:
        """Baseline of each sample.

        Args:
            log_w: Log weights without a gradient, `(R, K, batch)`.

        Returns:
            Baselines c_k, `(R, K, batch)`.
        """

    def objective(self, model: LatentModel, x: Tensor, noise: Tensor, prior: Boltzmann, kl_weight: Tensor) -> Terms:
        z, log_q = model.sample_posterior(x, noise)
        likelihood, log_prior = model.reconstruction(x, z), prior.log_prob(z)
        log_w = log_weights(likelihood, log_prior, log_q, kl_weight)
        bound = importance_bound(log_w)
        signal = bound.detach()[:, None] - self.baselines(log_w.detach())
        surrogate = (signal * log_q).sum(-2).mean(-1)
        value = bound.mean(-1)
        kl = (log_q - log_prior).detach()
        return Terms(-value - surrogate, value.detach(), likelihood.detach().mean((-2, -1)), kl.mean((-2, -1)))


class VIMCO(ImportanceWeighted):
    """c_k is L_K with w_k replaced by the geometric mean of the other weights.

    References:
        A. Mnih and D. J. Rezende, 2016, Variational Inference for Monte Carlo Objectives, arXiv:1602.06725.
    """

    name = "vimco"
    citation = VIMCO_PAPER

    def baselines(self, log_w: Tensor) -> Tensor:
        samples = log_w.shape[-2]
        replacement = (log_w.sum(-2, keepdim=True) - log_w) / (samples - 1)
        return torch.logaddexp(_log_sum_of_others(log_w), replacement) - math.log(samples)


class OVIS(ImportanceWeighted):
    """c_k = log (1/K) sum_(l != k) w_l, the form gamma = 0 of the paper, which is the unbiased one.

    References:
        V. Lievin, A. Dittadi, A. Christensen and O. Winther, 2020, Optimal Variance Control of the Score-Function
        Gradient Estimator for Importance-Weighted Bounds, arXiv:2008.01998.
    """

    name = "ovis"
    citation = OVIS_PAPER

    def baselines(self, log_w: Tensor) -> Tensor:
        return _log_sum_of_others(log_w) - math.log(log_w.shape[-2])


def _log_sum_of_others(log_w: Tensor) -> Tensor:
    """log sum_(l != k) w_l, `(R, K, batch)`, by a sum that leaves out k: subtracting w_k would cancel."""
    samples = log_w.shape[-2]
    own = torch.eye(samples, dtype=torch.bool, device=log_w.device)[:, :, None]
    return torch.logsumexp(log_w.unsqueeze(-3).masked_fill(own, -torch.inf), dim=-2)
