"""The exponential smoothing of DVAE++."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softspin.numerics import LOG_HALF
from softspin.smoothing.base import Location
from softspin.smoothing.mirrored import UnitInterval


class Exponential(UnitInterval):
    """Exponential smoothing: two exponentials, truncated to the unit interval.

        r(zeta|0) = e^(-beta zeta) / Z,   r(zeta|1) = e^(-beta (1 - zeta)) / Z,   Z = (1 - e^-beta) / beta.

    References:
        Vahdat, Macready, Bian, Khoshaman and Andriyash (2018), "DVAE++: Discrete Variational Autoencoders with
        Overlapping Transformations", arXiv:1802.04920. Eq. 1 (right) of DVAE#, arXiv:1805.07445.

    Example:
        >>> Exponential(8.0).from_value(torch.tensor(0.25)).coordinate.exp()
        tensor(0.2500)
    """

    name = "exp"

    @property
    def log_normalizer(self) -> Tensor:
        """log Z = log[(1 - e^-beta) / beta]."""
        return torch.log(-torch.expm1(-self.beta)) - torch.log(self.beta)

    def kernel_family(self) -> tuple[str, float] | None:
        return ("exp", 0.0) if type(self) is Exponential else None

    def mean_distance(self) -> Tensor:
        return 1 / self.beta - 1 / torch.expm1(self.beta)

    def quantile(self, rho: Tensor) -> Tensor:
        distance = -torch.log1p(rho * torch.expm1(-self.beta)) / self.beta
        # The distance may round to 1, where the coordinate from the other mode would be log 0.
        return distance.log().clamp(max=-torch.finfo(distance.dtype).eps / 2)

    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        return -self.beta * own.exp() - self.log_normalizer

    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.expm1(-self.beta * own.exp()) / torch.expm1(-self.beta)

    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        decay = torch.exp(-self.beta * own.exp())
        return decay * torch.expm1(-self.beta * other.exp()) / torch.expm1(-self.beta)

    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        # d/dbeta of (1 - e^(-beta d)) / M with M = 1 - e^-beta, in two equivalent forms: the first has no
        # cancellation for d < 1/2, the second (in terms of 1 - d) none for d > 1/2.
        beta, total = self.beta, -torch.expm1(-self.beta)
        distance, rest = own.exp(), other.exp()
        decay, edge = torch.exp(-beta * distance), torch.exp(-beta)
        close = distance * decay - self.component_cdf(own, other) * edge
        far = decay * (-torch.expm1(-beta * rest) - rest) + edge * self.component_sf(own, other)
        return torch.where(own < LOG_HALF, close, far) / total

    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        """Invert the CDF of the mixture in closed form.

        With v = 1 - e^(-beta d), the tail mass beyond the solution is N v + F v / (1 - v). This is quadratic in v and
        in 1 - v. Both equations are solved without cancellation, and the smaller root is used.
        """
        logits, rho = torch.broadcast_tensors(logits, rho)
        with torch.no_grad():
            mode, tail = self._aim(logits, rho)
            toward = torch.where(mode, logits, -logits)
            near_weight = logsigmoid(toward).exp()
            far_weight = logsigmoid(-toward).exp() * torch.exp(-self.beta)
            goal = tail * -torch.expm1(-self.beta)
            mixed = near_weight * far_weight
            linear = near_weight + far_weight + goal
            root = ((near_weight - goal) ** 2 + far_weight * (2 * near_weight + 2 * goal + far_weight)).sqrt()
            v = 2 * goal / (linear + root)
            slack = near_weight - far_weight - goal
            root = (slack**2 + 4 * mixed).sqrt().clamp(min=torch.finfo(rho.dtype).tiny)
            rest = torch.where(slack > 0, (slack + root) / (2 * near_weight), 2 * far_weight / (root - slack))
            distance = -torch.where(v < 0.5, torch.log1p(-v), rest.log()) / self.beta
            # e^-beta may underflow. The solution is never beyond the middle.
            return Location(distance.log().clamp(max=LOG_HALF), mode)
