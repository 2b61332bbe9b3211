"""r(zeta|0) = delta(zeta), r(zeta|1) = e^(-beta (1-zeta)) / Z: the smoothing of the first DVAE."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.numerics import log1mexp
from softspin.smoothing.base import Place, Smoothing, SoftBits
from softspin.smoothing.exponential import Exponential
from softspin.smoothing.mirrored import UnitInterval


class SpikeExponential(Smoothing):
    """A point mass at 0 for z = 0, an exponential that rises towards 1 for z = 1.

    Densities are with respect to a point mass at 0 plus length on (0, 1], so the component that cannot have
    made a value has log density -inf there. `near` is the log distance to 1 on both sides: 0 at the spike.
    """

    name = "spike_exp"
    has_spike = True

    def __init__(self, beta: float | Tensor, *, validate: bool = True) -> None:
        super().__init__(beta, validate=validate)
        self.exponential = Exponential(self.beta, validate=False)

    def place(self, z: Tensor, rho: Tensor) -> Place:
        own, side = torch.broadcast_tensors(self.exponential.quantile(rho), z.to(torch.bool))
        return Place(torch.where(side, own, torch.zeros_like(own)), side)

    def locate(self, zeta: Tensor) -> Place:
        return Place(torch.log1p(-zeta), zeta > 0)

    def soften(self, place: Place) -> SoftBits:
        near, side = place
        impossible = torch.full_like(near, -torch.inf)
        log_r1 = self.exponential.log_density(near, near)
        return SoftBits(
            torch.where(side, -torch.expm1(near), torch.zeros_like(near)),
            torch.where(side, impossible, torch.zeros_like(near)),
            torch.where(side, log_r1, impossible),
        )

    # At the spike `near` is 0, so nothing of the exponential lies below zeta: the formulas need no case of their own.
    # Nor does the gradient: soften() does not read `near` there, so zeta stays 0 whatever q does.

    def cdf(self, place: Place) -> tuple[Tensor, Tensor]:
        return torch.ones_like(place.near), self.exponential.mass_ahead(place.near, log1mexp(place.near))

    def gap(self, place: Place) -> Tensor:
        return self.exponential.mass_behind(place.near, log1mexp(place.near))

    def cdf_beta(self, place: Place) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(place.near), -self.exponential.mass_behind_beta(place.near, log1mexp(place.near))

    def log_rate(self, place: Place) -> Tensor:
        return place.near

    def direction(self, place: Place) -> Tensor:
        return -torch.ones_like(place.near)

    def invert(self, logits: Tensor, rho: Tensor) -> Place:
        """Closed form: rho up to 1 - q is the spike, the rest is the exponential's own quantile."""
        with torch.no_grad():
            q = torch.sigmoid(logits)
            side = rho > torch.sigmoid(-logits)
            behind = torch.where(side, (1 - rho) / q, torch.ones_like(rho))
            own = self.exponential.quantile(behind)
            return Place(torch.where(side, own, torch.zeros_like(own)), side)

    def check_support(self, zeta: Tensor) -> None:
        UnitInterval.check_support(self.exponential, zeta)
