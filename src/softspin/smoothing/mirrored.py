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
from softspin.smoothing.base import Location, Smoothing, SoftBits


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
    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        """The component's mass on its own outer side of the point: R(zeta|0) for z = 0."""

    @abstractmethod
    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        """1 - mass_behind, without cancellation: R(zeta|1) for z = 1."""

    @abstractmethod
    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
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

    def draw_location(self, z: Tensor, rho: Tensor) -> Location:
        own = self.quantile(rho)
        own, mode = torch.broadcast_tensors(own, z.to(torch.bool))
        beyond = own > self.middle
        return Location(torch.where(beyond, self.crossed(own), own), mode ^ beyond)

    def to_soft_bits(self, location: Location) -> SoftBits:
        near, mode = location
        far = self.opposite(near)
        log_near = self.log_density(near, far)
        log_far = self.log_density(far, near)
        distance = self.distance(near)
        return SoftBits(
            torch.where(mode, 1 - distance, distance),
            torch.where(mode, log_far, log_near),
            torch.where(mode, log_near, log_far),
        )

    def cdf(self, location: Location) -> tuple[Tensor, Tensor]:
        near, mode = location
        far = self.opposite(near)
        behind, ahead = self.component_cdf(near, far), self.component_sf(far, near)
        return torch.where(mode, 1 - ahead, behind), torch.where(mode, 1 - behind, ahead)

    def cdf_difference(self, location: Location) -> Tensor:
        far = self.opposite(location.coordinate)
        return self.component_cdf(location.coordinate, far) - self.component_sf(far, location.coordinate)

    def cdf_beta(self, location: Location) -> tuple[Tensor, Tensor]:
        near, mode = location
        far = self.opposite(near)
        own, across = self.component_cdf_beta(near, far), -self.component_cdf_beta(far, near)
        return torch.where(mode, -across, own), torch.where(mode, -own, across)

    def direction(self, location: Location) -> Tensor:
        return 1.0 - 2.0 * location.mode.to(location.coordinate.dtype)

    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        logits, rho = torch.broadcast_tensors(logits, rho)
        with torch.no_grad():
            middle = torch.full_like(logits, self.middle)
            mode, goal = self._aim(logits, rho)
            step = torch.ones_like(logits)
            low = middle - step
            while bool((outside := self._tail(logits, Location(low, mode)) > goal).any()):
                step = torch.where(outside, 2 * step, step)
                low = torch.where(outside, middle - step, low)
            high = middle
            # Each halving is exact; the loop ends when neighbouring numbers are reached everywhere.
            while bool(((centre := (low + high) / 2) != low).logical_and(centre != high).any()):
                above = self._tail(logits, Location(centre, mode)) > goal
                high = torch.where(above, centre, high)
                low = torch.where(above, low, centre)
            return Location(low, mode)

    def _aim(self, logits: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
        """On which side the mixture's CDF reaches rho, and the tail mass on that side at that point."""
        lower = torch.zeros_like(logits, dtype=torch.bool)
        mode = rho > self._tail(logits, Location(torch.full_like(logits, self.middle), lower))
        return mode, torch.where(mode, 1 - rho, rho)

    def _tail(self, logits: Tensor, location: Location) -> Tensor:
        """Mass of the mixture between the point and the outer end of the side it lies on."""
        toward = torch.where(location.mode, logits, -logits)
        far = self.opposite(location.coordinate)
        weight_near, weight_far = logsigmoid(toward).exp(), logsigmoid(-toward).exp()
        return weight_near * self.component_cdf(location.coordinate, far) + weight_far * self.component_sf(
            far, location.coordinate
        )


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

    def log_rate(self, location: Location) -> Tensor:
        return location.coordinate

    def from_value(self, zeta: Tensor) -> Location:
        mode = zeta > 0.5
        return Location(torch.where(mode, torch.log1p(-zeta), torch.log(zeta)), mode)

    def check_support(self, zeta: Tensor) -> None:
        super().check_support(zeta)
        if bool(((zeta < 0) | (zeta > 1)).any()):
            worst = zeta[(zeta < 0) | (zeta > 1)].flatten()[0].item()
            raise SupportError(f"zeta = {worst:g} lies outside [0, 1], the support of the {self.name} smoothing")
