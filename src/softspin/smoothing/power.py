"""The power-function smoothing of DVAE#. It has heavy tails and the best results in the paper."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.errors import SupportError
from softspin.smoothing.base import Location
from softspin.smoothing.mirrored import UnitInterval


class Power(UnitInterval):
    """Power-function smoothing: the Beta distributions Beta(1/beta, 1) and Beta(1, 1/beta).

        r(zeta|0) = zeta^(1/beta - 1) / beta,   r(zeta|1) = (1 - zeta)^(1/beta - 1) / beta.

    In the coordinate own = log(distance) the density is exponential, log r = (1/beta - 1) own - log beta, and a draw
    is beta log(rho). No value needs to be clamped for numerical stability.

    Args:
        beta: Inverse temperature, larger than 1: a number, or a tensor that broadcasts against the bits.
        clamp: Constant added to the distance inside every log and power. 0 is exact. The authors' program used 1e-7,
            which changes the density: two thirds of the draws at beta = 40 lie below 1e-7. The option exists for
            comparison.
        validate: Whether to check the values of beta.

    Raises:
        SupportError: beta or clamp is out of range.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Eq. 10.
    """

    name = "power"
    lowest_beta = 1.0
    settings = ("clamp",)

    def __init__(self, beta: float | Tensor, clamp: float = 0.0, *, validate: bool = True) -> None:
        super().__init__(beta, validate=validate)
        if not 0 <= clamp < 0.5:
            raise SupportError(f"clamp = {clamp:g} is not possible; use 0 (exact) or 1e-7 (the authors' program)")
        self.clamp = clamp

    def kernel_family(self) -> tuple[str, float] | None:
        return ("power", 0.0) if type(self) is Power and not self.clamp else None

    def mean_distance(self) -> Tensor:
        return 1 / (1 + self.beta)

    def quantile(self, rho: Tensor) -> Tensor:
        own = self.beta * rho.log()
        # Below the clamp the densities are constant, and d own / d logits grows as 1/distance. This lower limit keeps
        # the gradient finite in float32 and lies twenty orders of magnitude below the clamp.
        return own.clamp(min=-60.0) if self.clamp else own

    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        if self.clamp:
            raise SupportError("the clamped power function has no inverse CDF (its CDF starts above 0); use clamp=0")
        return super().invert(logits, rho)

    def _clamped(self, own: Tensor) -> Tensor:
        if not self.clamp:
            return own
        return torch.logaddexp(own, torch.full_like(own, math.log(self.clamp)))

    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        return (1 / self.beta - 1) * self._clamped(own) - torch.log(self.beta)

    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.exp(self._clamped(own) / self.beta)

    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        return -torch.expm1(self._clamped(own) / self.beta)

    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        clamped = self._clamped(own)
        return -clamped / self.beta**2 * torch.exp(clamped / self.beta)
