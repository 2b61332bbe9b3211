"""What a smoothing r(zeta|z) is, and the three numbers that stand for a soft bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_attribute, warn_renamed
from softspin.errors import SupportError


class SoftBits(NamedTuple):
    """Relaxed bits, and everything that anyone downstream needs to know of them.

    Posterior, relaxed prior and decoder are all functions of these three. They are computed together,
    at the draw, because in float32 `zeta` alone has lost the other two: at beta = 40 most draws of a
    power-function bit lie closer than 1e-7 to 0 or 1.
    """

    zeta: Tensor
    """The relaxed value, near 0 or 1."""
    log_r0: Tensor
    """log r(zeta|z=0)."""
    log_r1: Tensor
    """log r(zeta|z=1)."""

    @property
    def log_odds(self) -> Tensor:
        """b(zeta) = log r(zeta|1) - log r(zeta|0): the evidence that zeta gives for z = 1."""
        return self.log_r1 - self.log_r0

    @property
    def log_base(self) -> Tensor:
        """max(log r0, log r1): the part of a log density that prior and posterior have in common.

        It is hundreds of nats per bit at beta = 40, so log densities are compared relative to it.
        """
        return torch.maximum(self.log_r0, self.log_r1)


class Location(NamedTuple):
    """Where a draw lies, in the coordinate in which it is exact.

    `mode` says which mode (0 or 1, as a boolean) `coordinate` is measured from, the nearer one where there are
    two; its meaning belongs to the family (log distance on the unit interval, displacement on the line).
    """

    coordinate: Tensor
    mode: Tensor

    @property
    def near(self) -> Tensor:
        """Deprecated name of `coordinate`."""
        warn_renamed("near", "coordinate")
        return self.coordinate

    @property
    def side(self) -> Tensor:
        """Deprecated name of `mode`."""
        warn_renamed("side", "mode")
        return self.mode


class Smoothing(ABC):
    """r(zeta|z): how one bit becomes a continuous variable, with inverse temperature beta.

    `beta` may be a tensor that broadcasts against the bits (one value per replica, or per bit). Higher
    is sharper: as beta grows, zeta tends to z.

    Most families are mirror images, r(zeta|1) = r(1 - zeta|0), and need only the five short methods of
    :class:`softspin.smoothing.mirrored.Mirrored`.
    """

    name: str
    """Short name, as in method names such as `dvae#-power`."""
    lowest_beta: float = 0.0
    """beta must be larger than this."""
    settings: tuple[str, ...] = ()
    """What the family takes beside beta, by the names of a config's settings."""
    has_spike: bool = False
    """Whether r(zeta|0) has a point mass: then zeta says which z it came from."""

    beta: Tensor

    def __init__(self, beta: float | Tensor, *, validate: bool = True) -> None:
        # A zero-dimensional float64 tensor loses nothing, and does not change the type of tensors with dimensions.
        self.beta = beta if isinstance(beta, Tensor) else torch.tensor(beta, dtype=torch.float64)
        if validate:
            good = torch.isfinite(self.beta) & (self.beta > self.lowest_beta)
            if not bool(good.all()):
                bad = self.beta[~good].flatten()[0].item()
                raise SupportError(
                    f"beta = {bad:g} is not possible for the {self.name} smoothing; "
                    f"it must be finite and larger than {self.lowest_beta:g}"
                )

    def __repr__(self) -> str:
        beta = f"{self.beta.item():g}" if self.beta.numel() == 1 else f"tensor{tuple(self.beta.shape)}"
        return f"{type(self).__name__}(beta={beta})"

    @abstractmethod
    def draw_location(self, z: Tensor, rho: Tensor) -> Location:
        """A draw from r(.|z), made from uniforms `rho` in (0, 1). Shapes broadcast."""

    @abstractmethod
    def from_value(self, zeta: Tensor) -> Location:
        """The location of given values. Only as exact as `zeta` is; draws come from :meth:`draw_location`."""

    @abstractmethod
    def to_soft_bits(self, location: Location) -> SoftBits:
        """The soft bits at a location, differentiable in the coordinate and beta."""

    @abstractmethod
    def cdf(self, location: Location) -> tuple[Tensor, Tensor]:
        """R(zeta|0) and R(zeta|1)."""

    @abstractmethod
    def cdf_difference(self, location: Location) -> Tensor:
        """R(zeta|0) - R(zeta|1) >= 0, without cancellation: the numerator of d zeta/d q."""

    @abstractmethod
    def cdf_beta(self, location: Location) -> tuple[Tensor, Tensor]:
        """dR(zeta|0)/d beta and dR(zeta|1)/d beta, at fixed zeta."""

    @abstractmethod
    def log_rate(self, location: Location) -> Tensor:
        """log |d zeta / d coordinate|."""

    @abstractmethod
    def direction(self, location: Location) -> Tensor:
        """The sign of d zeta / d coordinate, as +1.0 or -1.0."""

    @abstractmethod
    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        """Where the CDF of the mixture (1-q) r(.|0) + q r(.|1), q = sigmoid(logits), reaches rho."""

    def check_support(self, zeta: Tensor) -> None:
        """Raise :class:`SupportError` if a value lies outside the support."""
        if bool(torch.isnan(zeta).any()):
            raise SupportError("zeta holds NaN; every relaxed bit must be a number")

    place = renamed_attribute("place", "draw_location")
    locate = renamed_attribute("locate", "from_value")
    soften = renamed_attribute("soften", "to_soft_bits")
    gap = renamed_attribute("gap", "cdf_difference")
