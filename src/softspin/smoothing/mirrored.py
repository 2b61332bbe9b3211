"""Families whose two components are mirror images: r(zeta|1) = r(1 - zeta|0).

Such a family implements one component, relative to its mode. A point has two coordinates: `own`, measured
from the mode of this component towards the other mode, and `other`, measured from the other mode. For the
component z = 0 they are (from 0, from 1); for z = 1, (from 1, from 0).

On the unit interval a coordinate is the *log distance* to the mode, so floating point resolves both ends: the
draw rho**40 is exact even where its distance to 1 rounds to 1. On the real line it is the displacement.
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
    """Smoothing with r(zeta|1) = r(1 - zeta|0), defined by one component in (own, other) coordinates.

    A family implements the first five abstract methods, a coordinate system the other three. All tensors
    broadcast. Arguments as in :class:`Smoothing`.
    """

    middle: float
    """The coordinate of the point halfway between the modes."""

    # Abstract methods of a family --------------------------------------------------------------------

    @abstractmethod
    def quantile(self, rho: Tensor) -> Tensor:
        """Map uniforms to draws of `own` from the component.

        It need not be the inverse CDF: any map from uniforms to draws with the right distribution will do.

        Args:
            rho: Uniforms in (0, 1).

        Returns:
            The coordinate `own` of each draw.
        """

    @abstractmethod
    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        """Compute the log density of the component, with respect to zeta.

        Args:
            own: Coordinate from the mode of the component.
            other: Coordinate of the same point from the other mode.

        Returns:
            log r.
        """

    @abstractmethod
    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        """Compute the CDF of the component in the coordinate `own`: R(zeta|0) for z = 0.

        Args:
            own: Coordinate from the mode of the component.
            other: Coordinate of the same point from the other mode.

        Returns:
            The mass of the component on its outer side of the point.
        """

    @abstractmethod
    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        """Compute the survival function, 1 - component_cdf, without cancellation: R(zeta|1) for z = 1.

        Args:
            own: Coordinate from the mode of the component.
            other: Coordinate of the same point from the other mode.

        Returns:
            The mass of the component on its inner side of the point.
        """

    @abstractmethod
    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        """Compute the derivative of :meth:`component_cdf` with respect to beta.

        Args:
            own: Coordinate from the mode of the component.
            other: Coordinate of the same point from the other mode.

        Returns:
            d component_cdf / d beta.
        """

    def mean_distance(self) -> Tensor:
        """Compute the mean distance of zeta from the mode of its component, E[zeta|0].

        Returns:
            The mean, in the shape of the parameters.

        Raises:
            NoClosedFormError: The family does not implement it.
        """
        return super().component_means()[0]

    def component_means(self) -> tuple[Tensor, Tensor]:
        distance = self.mean_distance()
        return distance, 1 - distance

    # Abstract methods of a coordinate system ---------------------------------------------------------

    @abstractmethod
    def opposite(self, near: Tensor) -> Tensor:
        """Convert the coordinate of a point in the near half to the coordinate from the other mode.

        Args:
            near: Coordinate from the nearer mode.

        Returns:
            Coordinate of the same point from the farther mode.
        """

    @abstractmethod
    def crossed(self, own: Tensor) -> Tensor:
        """Convert the coordinate of a point beyond the middle to the coordinate from the other mode.

        Args:
            own: Coordinate from the mode of the component. The result is used only where it exceeds `middle`.

        Returns:
            Coordinate of the same point from the other mode.
        """

    @abstractmethod
    def distance(self, near: Tensor) -> Tensor:
        """Convert a coordinate to the distance from its mode: zeta from mode 0, 1 - zeta from mode 1.

        Args:
            near: Coordinate from the mode.

        Returns:
            The distance.
        """

    # Derived methods ---------------------------------------------------------------------------------

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
            # Each bisection is exact. The loop ends when all brackets are adjacent floating-point numbers.
            while bool(((center := (low + high) / 2) != low).logical_and(center != high).any()):
                above = self._tail(logits, Location(center, mode)) > goal
                high = torch.where(above, center, high)
                low = torch.where(above, low, center)
            return Location(low, mode)

    def _aim(self, logits: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
        """Find the mode nearest to the solution of CDF = rho, and the tail mass beyond the solution on that side."""
        lower = torch.zeros_like(logits, dtype=torch.bool)
        mode = rho > self._tail(logits, Location(torch.full_like(logits, self.middle), lower))
        return mode, torch.where(mode, 1 - rho, rho)

    def _tail(self, logits: Tensor, location: Location) -> Tensor:
        """Compute the mass of the mixture beyond the point, on the side of its nearest mode."""
        toward = torch.where(location.mode, logits, -logits)
        far = self.opposite(location.coordinate)
        weight_near, weight_far = logsigmoid(toward).exp(), logsigmoid(-toward).exp()
        return weight_near * self.component_cdf(location.coordinate, far) + weight_far * self.component_sf(
            far, location.coordinate
        )


class UnitInterval(Mirrored):
    """Mirrored smoothing with support [0, 1]. A coordinate is the log distance to its mode."""

    middle = LOG_HALF

    # Both are log(1 - e^x), each in the form that is accurate in its half.
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
