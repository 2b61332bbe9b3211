"""The interface of a smoothing r(zeta|z), and the three tensors that represent soft bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_attribute, warn_renamed
from softspin.errors import NoClosedFormError, SupportError
from softspin.numerics import real_tensor


class SoftBits(NamedTuple):
    """Relaxed bits with the log densities of both smoothing components.

    Posterior, relaxed prior and decoder are functions of these three tensors, which have one shape. They are
    computed together when a bit is drawn, because float32 `zeta` does not determine the other two: at beta = 40
    most draws of a power-function bit lie closer than 1e-7 to 0 or 1.
    """

    zeta: Tensor
    """The relaxed value, near 0 or 1."""
    log_r0: Tensor
    """log r(zeta|z=0)."""
    log_r1: Tensor
    """log r(zeta|z=1)."""

    def __repr__(self) -> str:
        return f"SoftBits(zeta {tuple(self.zeta.shape)}, with log r(zeta|0) and log r(zeta|1))"

    @classmethod
    def from_log_odds(cls, zeta: Tensor, log_odds: Tensor) -> SoftBits:
        """Soft bits with log densities relative to log r0, which cancels wherever two log densities are compared.

        Args:
            zeta: Relaxed bits.
            log_odds: log r1 - log r0, of the same shape.

        Returns:
            Soft bits with log_r0 = 0.
        """
        return cls(zeta, torch.zeros_like(log_odds), log_odds)

    @property
    def log_odds(self) -> Tensor:
        """b(zeta) = log r(zeta|1) - log r(zeta|0), the log likelihood ratio of z = 1 against z = 0."""
        return self.log_r1 - self.log_r0

    @property
    def log_base(self) -> Tensor:
        """max(log r0, log r1), the part of a log density that prior and posterior have in common.

        It is hundreds of nats per bit at beta = 40. Log densities are therefore compared relative to it.
        """
        return torch.maximum(self.log_r0, self.log_r1)


class Location(NamedTuple):
    """The location of a draw, in a coordinate that floating point resolves near both modes."""

    coordinate: Tensor
    """Measured from `mode`: the log distance on the unit interval, the displacement on the real line."""
    mode: Tensor
    """Boolean: whether `coordinate` is measured from mode 1 instead of mode 0. If there are two, the nearer one."""

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


def as_parameter(name: str, value: Any) -> Tensor:
    """Convert a parameter of a smoothing to a tensor.

    A number becomes a zero-dimensional float64 tensor, which keeps full precision and does not promote the dtype of
    other tensors. Lists and arrays get torch's default type.

    Args:
        name: Name of the parameter in the error message.
        value: Tensor, array, list or number.

    Returns:
        The tensor.

    Raises:
        SupportError: It does not consist of real numbers.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Real):
        return torch.tensor(float(value), dtype=torch.float64)
    return real_tensor(name, value).to(torch.get_default_dtype())


RENAMED_METHODS = {
    "place": "draw_location",
    "locate": "from_value",
    "soften": "to_soft_bits",
    "gap": "cdf_difference",
    "mass_behind": "component_cdf",
    "mass_ahead": "component_sf",
    "mass_behind_beta": "component_cdf_beta",
}
"""Methods of a family, new names by old names."""


class Smoothing(ABC):
    """Smoothing distribution r(zeta|z) of one bit, with inverse temperature beta.

    zeta concentrates at z as beta grows, except for the share epsilon of the un_exp smoothing, which stays uniform on
    [0, 1]. Most families are mirror images, r(zeta|1) = r(1 - zeta|0). They derive from
    :class:`softspin.smoothing.mirrored.Mirrored` and need only five short methods.

    Args:
        beta: Inverse temperature: a number, or a tensor that broadcasts against the bits (one value per replica, or
            per bit).
        validate: Whether to check the values of beta.

    Raises:
        SupportError: beta is not finite, or not larger than `lowest_beta`.
    """

    name: str
    """Short name, as in method names such as `dvae#-power`."""
    lowest_beta: float = 0.0
    """beta must be larger than this."""
    settings: tuple[str, ...] = ()
    """Parameters of the family other than beta, by the names of a config's settings."""
    has_spike: bool = False
    """Whether r(zeta|0) is a point mass. Then zeta determines z."""

    beta: Tensor

    def __init__(self, beta: float | Tensor, *, validate: bool = True) -> None:
        self.beta = as_parameter("beta", beta)
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
        """Draw from r(.|z).

        Args:
            z: Bits, 0 or 1.
            rho: Uniforms in (0, 1), in a shape that broadcasts against `z`.

        Returns:
            The location of the draw, in the broadcast shape. It has no gradient.
        """

    @abstractmethod
    def from_value(self, zeta: Tensor) -> Location:
        """Find the location of given values.

        Args:
            zeta: Relaxed bits.

        Returns:
            Their location, as precise as `zeta` is. Locations of draws come from :meth:`draw_location`.
        """

    @abstractmethod
    def to_soft_bits(self, location: Location) -> SoftBits:
        """Compute zeta and both log densities at a location.

        Args:
            location: Location of the bits.

        Returns:
            Soft bits of the same shape, differentiable in the coordinate and in beta.
        """

    @abstractmethod
    def cdf(self, location: Location) -> tuple[Tensor, Tensor]:
        """Compute the CDFs of both components.

        Args:
            location: Location of zeta.

        Returns:
            R(zeta|0) and R(zeta|1).
        """

    @abstractmethod
    def cdf_difference(self, location: Location) -> Tensor:
        """Compute R(zeta|0) - R(zeta|1) >= 0 without cancellation.

        It is the numerator of d zeta / d q.

        Args:
            location: Location of zeta.

        Returns:
            The difference of the two CDFs.

        References:
            Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
            Priors", arXiv:1805.07445, Eq. 9.
        """

    @abstractmethod
    def cdf_beta(self, location: Location) -> tuple[Tensor, Tensor]:
        """Compute the derivatives of both CDFs with respect to beta, at fixed zeta.

        Args:
            location: Location of zeta.

        Returns:
            dR(zeta|0) / d beta and dR(zeta|1) / d beta.
        """

    @abstractmethod
    def log_rate(self, location: Location) -> Tensor:
        """Compute log abs(d zeta / d coordinate).

        Args:
            location: Location of zeta.

        Returns:
            The log derivative.
        """

    @abstractmethod
    def direction(self, location: Location) -> Tensor:
        """Compute the sign of d zeta / d coordinate.

        Args:
            location: Location of zeta.

        Returns:
            +1.0 or -1.0.
        """

    @abstractmethod
    def invert(self, logits: Tensor, rho: Tensor) -> Location:
        """Invert the CDF of the mixture (1-q) r(.|0) + q r(.|1) with q = sigmoid(logits).

        Args:
            logits: Log odds of z = 1.
            rho: Values of the CDF, in (0, 1), in a shape that broadcasts against `logits`.

        Returns:
            The location at which the CDF equals rho. It has no gradient.
        """

    def component_means(self) -> tuple[Tensor, Tensor]:
        """Compute the means of both components, E[zeta|0] and E[zeta|1].

        Returns:
            The means, in the shape of the parameters.

        Raises:
            NoClosedFormError: The family does not implement it.
        """
        raise NoClosedFormError(
            f"the {self.name} smoothing does not implement its mean; average draws, such as posterior.rsample((1000,))"
        )

    def kernel_family(self) -> tuple[str, float] | None:
        """Name and parameter of the family in :mod:`softspin.kernels.draw`, if a GPU kernel implements its draws.

        Returns:
            Arguments `family` and `epsilon` of the kernel, or None.
        """
        return None

    def check_support(self, zeta: Tensor) -> None:
        """Check that all values lie in the support.

        Args:
            zeta: Relaxed bits.

        Raises:
            SupportError: A value is NaN or lies outside the support.
        """
        if bool(torch.isnan(zeta).any()):
            raise SupportError("zeta holds NaN; every relaxed bit must be a number")

    def __init_subclass__(cls) -> None:
        """Accept a family that implements the methods under their old names, with a warning."""
        super().__init_subclass__()
        for old, new in RENAMED_METHODS.items():
            if old in vars(cls) and new not in vars(cls):
                warn_renamed(f"{cls.__name__}.{old}", new)
                setattr(cls, new, vars(cls)[old])

    place = renamed_attribute("place", "draw_location")
    locate = renamed_attribute("locate", "from_value")
    soften = renamed_attribute("soften", "to_soft_bits")
    gap = renamed_attribute("gap", "cdf_difference")
