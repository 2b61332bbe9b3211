"""The spike-and-exponential smoothing of DVAE."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.numerics import log1mexp
from softspin.smoothing.base import Location, Smoothing, SoftBits
from softspin.smoothing.exponential import Exponential
from softspin.smoothing.mirrored import UnitInterval


class SpikeExponential(Smoothing):
    """Spike-and-exponential smoothing: a point mass at 0 for z = 0, a truncated exponential for z = 1.

        r(zeta|0) = delta(zeta),   r(zeta|1) = e^(-beta (1 - zeta)) / Z,   Z = (1 - e^-beta) / beta.

    Densities are with respect to a point mass at 0 plus Lebesgue measure on (0, 1]. The component that cannot
    produce a value has log density -inf there. The coordinate is the log distance to 1 for both modes, and 0 at the
    spike.

    Args:
        beta: Inverse temperature, positive: a number, or a tensor that broadcasts against the bits.
        validate: Whether to check the values of beta.

    References:
        Rolfe (2016), "Discrete Variational Autoencoders", arXiv:1609.02200. Eq. 1 (left) of DVAE#, arXiv:1805.07445.
    """

    name = "spike_exp"
    has_spike = True

    def __init__(self, beta: float | Tensor, *, validate: bool = True) -> None:
        super().__init__(beta, validate=validate)
        self.exponential = Exponential(self.beta, validate=False)

    def component_means(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.beta), 1 - self.exponential.mean_distance()

    def draw_location(self, z: Tensor, rho: Tensor) -> Location:
        own, mode = torch.broadcast_tensors(self.exponential.quantile(rho), z.to(torch.bool))
        return Location(torch.where(mode, own, torch.zeros_like(own)), mode)

    def from_value(self, zeta: Tensor) -> Location:
        return Location(torch.log1p(-zeta), zeta > 0)

    def to_soft_bits(self, location: Location) -> SoftBits:
        near, mode = location
        impossible = torch.full_like(near, -torch.inf)
        log_r1 = self.exponential.log_density(near, near)
        return SoftBits(
            torch.where(mode, -torch.expm1(near), torch.zeros_like(near)),
            torch.where(mode, impossible, torch.zeros_like(near)),
            torch.where(mode, log_r1, impossible),
        )

    # At the spike the coordinate is 0 and no mass of the exponential lies below zeta, so the formulas need no special
    # case. Nor does the gradient: to_soft_bits() does not use the coordinate there, so zeta stays 0 for every q.

    def cdf(self, location: Location) -> tuple[Tensor, Tensor]:
        return torch.ones_like(location.coordinate), self.exponential.component_sf(
            location.coordinate, log1mexp(location.coordinate)
        )

    def cdf_difference(self, location: Location) -> Tensor:
        return self.exponential.component_cdf(location.coordinate, log1mexp(location.coordinate))

    def cdf_beta(self, location: Location) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(location.coordinate), -self.exponential.component_cdf_beta(
            location.coordinate, log1mexp(location.coordinate)
        )

    def log_rate(self, location: Location) -> Tensor:
        return location.coordinate

    def direction(self, location: Location) -> Tensor:
        return -torch.ones_like(location.coordinate)

    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        """Invert the CDF of the mixture in closed form: rho up to 1 - q is the spike, the rest the exponential."""
        with torch.no_grad():
            q = torch.sigmoid(logits)
            mode = rho > torch.sigmoid(-logits)
            behind = torch.where(mode, (1 - rho) / q, torch.ones_like(rho))
            own = self.exponential.quantile(behind)
            return Location(torch.where(mode, own, torch.zeros_like(own)), mode)

    def check_support(self, zeta: Tensor) -> None:
        UnitInterval.check_support(self.exponential, zeta)
