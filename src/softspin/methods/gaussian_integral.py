"""DVAE# by the Gaussian integral trick, Sec. 3.2 of the paper: each bit has a Gaussian of learned width and shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from softspin.distributions import Boltzmann, GaussianIntegralRelaxation, safe_beta
from softspin.distributions.relaxation import Relaxation
from softspin.methods.relaxed import Relaxed
from softspin.numerics import align
from softspin.smoothing import ShiftedGaussian, Smoothing

if TYPE_CHECKING:
    from softspin.config import Config

REFRESH_EVERY = 100
"""Steps between computations of the lowest eigenvalue of W, which bounds the prior's beta."""


class GaussianIntegral(Relaxed):
    """DVAE# with the Gaussian integral relaxation. The prior's beta is raised if W + beta I is not positive definite.

    References:
        A. Vahdat, E. Andriyash and W. G. Macready, 2018, DVAE#: Discrete Variational Autoencoders with Relaxed
        Boltzmann Priors, arXiv:1805.07445, Sec. 3.2.
    """

    name = "dvae#-gauss_int"
    smoothing = ShiftedGaussian
    outputs_per_bit = 2
    """The logit and the shift."""
    prior_beta: Tensor

    def __init__(self, config: Config, generators: Sequence[torch.Generator] = ()) -> None:
        super().__init__(config, generators)
        self.width = nn.Parameter(torch.ones(len(config.replicas), config.shape.units))
        self.bits_per_group = config.shape.bits_per_group

    def trained_width(self) -> Tensor:
        return _width(self.width)

    def smoothing_of(self, group: int, out: Tensor) -> Smoothing:
        return self._smoothing(self.width, group, out)

    def detached_smoothing_of(self, group: int, out: Tensor) -> Smoothing:
        return self._smoothing(self.width.detach(), group, out)

    def _smoothing(self, widths: Tensor, group: int, out: Tensor) -> Smoothing:
        width = _width(widths[:, group * self.bits_per_group : (group + 1) * self.bits_per_group])
        shift = 0.5 * (torch.sigmoid(out[..., self.bits_per_group :]) - 0.5)
        return ShiftedGaussian(align(width, out.ndim), shift, validate=False)

    def relax(self, prior: Boltzmann) -> Relaxation:
        return GaussianIntegralRelaxation(prior, self.prior_beta, validate=False)

    def begin_training(self) -> None:
        self.prior_beta = self.beta.clone()

    def before_step(self, step: int, prior: Callable[[], Boltzmann]) -> None:
        if step % REFRESH_EVERY == 0:
            with torch.no_grad():
                self.prior_beta.copy_(safe_beta(prior(), self.beta))

    def training_state(self) -> dict[str, Tensor]:
        return {"prior_beta": self.prior_beta}


def _width(parameter: Tensor) -> Tensor:
    return 0.05 + (0.2 * parameter).abs()
