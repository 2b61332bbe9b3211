"""Gaussian smoothings, whose support is the real line."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.special import erfc

from softspin.errors import SupportError
from softspin.numerics import normal_quantile
from softspin.smoothing.base import Location, SoftBits, as_parameter
from softspin.smoothing.mirrored import Mirrored

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Gaussian(Mirrored):
    """Gaussian smoothing: r(zeta|z) = N(zeta | z, 1/beta).

    A coordinate is the displacement from its mode, 0 or 1.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Sec. 3.3.
    """

    name = "gaussian"
    middle = 0.5

    def kernel_family(self) -> tuple[str, float] | None:
        return self.name, 0.0

    def mean_distance(self) -> Tensor:
        return torch.zeros_like(self.beta)

    def quantile(self, rho: Tensor) -> Tensor:
        return normal_quantile(rho) * self.beta.rsqrt()

    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        return -0.5 * self.beta * own**2 + 0.5 * torch.log(self.beta) - HALF_LOG_TAU

    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        return 0.5 * erfc(-own * (0.5 * self.beta).sqrt())

    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        return 0.5 * erfc(own * (0.5 * self.beta).sqrt())

    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        return self.log_density(own, other).exp() * own / (2 * self.beta)

    def opposite(self, near: Tensor) -> Tensor:
        return 1 - near

    def crossed(self, own: Tensor) -> Tensor:
        return 1 - own

    def distance(self, near: Tensor) -> Tensor:
        return near

    def log_rate(self, location: Location) -> Tensor:
        return torch.zeros_like(location.coordinate)

    def from_value(self, zeta: Tensor) -> Location:
        mode = zeta > 0.5
        return Location(torch.where(mode, 1 - zeta, zeta), mode)


class ShiftedGaussian(Gaussian):
    """Shifted Gaussian smoothing, r(zeta|z) = N(zeta | z + shift, width^2), with trainable parameters.

    It is the posterior of the Gaussian-integral model. Locations are measured from the shifted modes, where
    densities and CDFs do not depend on the shift. The gradient of the shift is therefore that of a translation, and
    the gradient of the width is taken about the shifted mean.

    Args:
        width: Standard deviation of each component: a number, or a tensor that broadcasts against the bits.
        shift: Displacement of both modes: a number, or a tensor that broadcasts against the bits.
        validate: Whether to check the values of width and shift.

    Raises:
        SupportError: A width is not finite and positive, or a shift is not finite.
    """

    name = "shifted_gaussian"

    def __init__(self, width: float | Tensor, shift: float | Tensor = 0.0, *, validate: bool = True) -> None:
        width = as_parameter("width", width)
        if validate and not bool((torch.isfinite(width) & (width > 0)).all()):
            raise SupportError("every width of a shifted Gaussian must be finite and larger than 0")
        super().__init__(width**-2, validate=False)
        self.shift = as_parameter("shift", shift)
        if validate and not bool(torch.isfinite(self.shift).all()):
            raise SupportError("every shift of a shifted Gaussian must be finite")

    def component_means(self) -> tuple[Tensor, Tensor]:
        return self.shift, 1 + self.shift

    def to_soft_bits(self, location: Location) -> SoftBits:
        bits = super().to_soft_bits(location)
        return bits._replace(zeta=bits.zeta + self.shift)

    def from_value(self, zeta: Tensor) -> Location:
        return super().from_value(zeta - self.shift)
