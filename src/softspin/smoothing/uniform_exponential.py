"""The uniform+exp smoothing of DVAE#: its gradient stays finite as beta grows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.errors import SupportError
from softspin.smoothing.exponential import Exponential
from softspin.smoothing.mirrored import UnitInterval


class UniformExponential(UnitInterval):
    """Exponential smoothing r mixed with a uniform distribution: (1 - epsilon) r(zeta|z) + epsilon.

    As beta grows, zeta tends to z with probability 1 - epsilon only. So log r(zeta|1) - log r(zeta|0), and with it the
    gradient of the relaxed prior, stays bounded.

    Args:
        beta: Inverse temperature of the exponential, positive: a number, or a tensor that broadcasts against the bits.
        epsilon: Weight of the uniform component, between 0 and 1.
        validate: Whether to check the values of beta.

    Raises:
        SupportError: beta or epsilon is out of range.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Sec. 3.3.
    """

    name = "un_exp"
    settings = ("epsilon",)

    def __init__(self, beta: float | Tensor, epsilon: float = 0.05, *, validate: bool = True) -> None:
        super().__init__(beta, validate=validate)
        if not 0 < epsilon < 1:
            raise SupportError(
                f"epsilon = {epsilon:g} is not possible for the un_exp smoothing; "
                "it must lie strictly between 0 and 1 (the paper uses 0.05)"
            )
        self.epsilon = epsilon
        self.exponential = Exponential(self.beta, validate=False)

    def kernel_family(self) -> tuple[str, float] | None:
        return ("un_exp", self.epsilon) if type(self) is UniformExponential else None

    def mean_distance(self) -> Tensor:
        return (1 - self.epsilon) * self.exponential.mean_distance() + self.epsilon / 2

    def quantile(self, rho: Tensor) -> Tensor:
        # Not the inverse CDF, but a draw from the mixture: a uniform below `epsilon` selects the uniform component.
        eps = torch.finfo(rho.dtype).eps
        rest = ((rho - self.epsilon) / (1 - self.epsilon)).clamp(min=eps / 4, max=1 - eps / 2)
        return torch.where(rho < self.epsilon, (rho / self.epsilon).log(), self.exponential.quantile(rest))

    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        steep = math.log1p(-self.epsilon) + self.exponential.log_density(own, other)
        return torch.logaddexp(steep, torch.full_like(steep, math.log(self.epsilon)))

    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        return (1 - self.epsilon) * self.exponential.component_cdf(own, other) + self.epsilon * own.exp()

    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        return (1 - self.epsilon) * self.exponential.component_sf(own, other) + self.epsilon * other.exp()

    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        return (1 - self.epsilon) * self.exponential.component_cdf_beta(own, other)
