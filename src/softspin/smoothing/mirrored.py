"""Families whose two components are mirror images: r(zeta|1) = r(1 - zeta|0).

Such a family is written down once, seen from its own mode. A point has two coordinates: `own`,
measured from the mode of the component in question towards the other mode, and `other`, measured
from the other mode. For the component z = 0 they are (from 0, from 1); for z = 1, (from 1, from 0).

On the unit interval a coordinate is the *log distance* to the mode, so both ends are resolved: the
draw rho**40 is exact where its distance to 1 has long rounded to 1. On the line it is the displacement.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.errors import SupportError
from softspin.numerics import LOG_HALF
from softspin.smoothing.base import Place, Smoothing, SoftBits


class Mirrored(Smoothing):
    """A smoothing given by one component, as functions of (own, other) coordinates."""

    middle: float
    """The coordinate of the point halfway between the modes."""

    # What a family says about itself -----------------------------------------------------------------

    @abstractmethod
    def quantile(self, rho: Tensor) -> Tensor:
        """A draw of `own` from a uniform: any map that turns a uniform into the component's law."""

    @abstractmethod
    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        """log r of the component, as a density in zeta."""

    @abstractmethod
    def mass_behind(self, own: Tensor, other: Tensor) -> Tensor:
        """The component's mass on its own outer side of the point: R(zeta|0) for z = 0."""

    @abstractmethod
    def mass_ahead(self, own: Tensor, other: Tensor) -> Tensor:
        """1 - mass_behind, without cancellation: R(zeta|1) for z = 1."""

    @abstractmethod
    def mass_behind_beta(self, own: Tensor, other: Tensor) -> Tensor:
        """d mass_behind / d beta."""

    # What a coordinate system says -------------------------------------------------------------------

    @abstractmethod
    def opposite(self, near: Tensor) -> Tensor:
        """A point of the near half, measured from the other mode."""

    @abstractmethod
    def crossed(self, own: Tensor) -> Tensor:
        """A point beyond the middle, measured from the other mode; elsewhere the value does not matter."""

    @abstractmethod
    def distance(self, near: Tensor) -> Tensor:
        """zeta if measured from 0, 1 - zeta if measured from 1."""

    # Everything else follows -------------------------------------------------------------------------

    def place(self, z: Tensor, rho: Tensor) -> Place:
        own = self.quantile(rho)
        own, side = torch.broadcast_tensors(own, z.to(torch.bool))
        beyond = own > self.middle
        return Place(torch.where(beyond, self.crossed(own), own), side ^ beyond)

    def soften(self, place: Place) -> SoftBits:
        near, side = place
        far = self.opposite(near)
        log_near = self.log_density(near, far)
        log_far = self.log_density(far, near)
        distance = self.distance(near)
        return SoftBits(
            torch.where(side, 1 - distance, distance),
            torch.where(side, log_far, log_near),
            torch.where(side, log_near, log_far),
        )

    def cdf(self, place: Place) -> tuple[Tensor, Tensor]:
        near, side = place
        far = self.opposite(near)
        behind, ahead = self.mass_behind(near, far), self.mass_ahead(far, near)
        return torch.where(side, 1 - ahead, behind), torch.where(side, 1 - behind, ahead)

    def gap(self, place: Place) -> Tensor:
        far = self.opposite(place.near)
        return self.mass_behind(place.near, far) - self.mass_ahead(far, place.near)

    def cdf_beta(self, place: Place) -> tuple[Tensor, Tensor]:
        near, side = place
        far = self.opposite(near)
        own, across = self.mass_behind_beta(near, far), -self.mass_behind_beta(far, near)
        return torch.where(side, -across, own), torch.where(side, -own, across)

    def direction(self, place: Place) -> Tensor:
        return 1.0 - 2.0 * place.side.to(place.near.dtype)

    def invert(self, logits: Tensor, rho: Tensor) -> Place:
        logits, rho = torch.broadcast_tensors(logits, rho)
        with torch.no_grad():
            middle = torch.full_like(logits, self.middle)
            side, goal = self._aim(logits, rho)
            step = torch.ones_like(logits)
            low = middle - step
            while bool((outside := self._tail(logits, Place(low, side)) > goal).any()):
                step = torch.where(outside, 2 * step, step)
                low = torch.where(outside, middle - step, low)
            high = middle
            # Each halving is exact; the loop ends when neighbouring numbers are reached everywhere.
            while bool(((centre := (low + high) / 2) != low).logical_and(centre != high).any()):
                above = self._tail(logits, Place(centre, side)) > goal
                high = torch.where(above, centre, high)
                low = torch.where(above, low, centre)
            return Place(low, side)

    def _aim(self, logits: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
        """On which side the mixture's CDF reaches rho, and the tail mass on that side at that point."""
        lower = torch.zeros_like(logits, dtype=torch.bool)
        side = rho > self._tail(logits, Place(torch.full_like(logits, self.middle), lower))
        return side, torch.where(side, 1 - rho, rho)

    def _tail(self, logits: Tensor, place: Place) -> Tensor:
        """Mass of the mixture between the point and the outer end of the side it lies on."""
        toward = torch.where(place.side, logits, -logits)
        far = self.opposite(place.near)
        weight_near, weight_far = logsigmoid(toward).exp(), logsigmoid(-toward).exp()
        return weight_near * self.mass_behind(place.near, far) + weight_far * self.mass_ahead(far, place.near)


class UnitInterval(Mirrored):
    """Support [0, 1]; a coordinate is the log distance to its mode."""

    middle = LOG_HALF

    # Both are log(1 - e^x): either half has the form that is exact there.
    def opposite(self, near: Tensor) -> Tensor:
        return torch.log1p(-near.exp())

    def crossed(self, own: Tensor) -> Tensor:
        return torch.log(-torch.expm1(own))

    def distance(self, near: Tensor) -> Tensor:
        return near.exp()

    def log_rate(self, place: Place) -> Tensor:
        return place.near

    def locate(self, zeta: Tensor) -> Place:
        side = zeta > 0.5
        return Place(torch.where(side, torch.log1p(-zeta), torch.log(zeta)), side)

    def check_support(self, zeta: Tensor) -> None:
        super().check_support(zeta)
        if bool(((zeta < 0) | (zeta > 1)).any()):
            worst = zeta[(zeta < 0) | (zeta > 1)].flatten()[0].item()
            raise SupportError(f"zeta = {worst:g} lies outside [0, 1], the support of the {self.name} smoothing")
