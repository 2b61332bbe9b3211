"""The approximate posterior of a relaxed bit, with reparameterized draws."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution, constraints
from torch.nn.functional import logsigmoid

from softspin.distributions.checks import check_soft_bits, sample_size
from softspin.errors import NoClosedFormError, ShapeError, SupportError
from softspin.numerics import binary_entropy, broadcast_shape, mixture_log_prob, open_uniform, real_tensor
from softspin.smoothing import Location, Smoothing, SoftBits


class _ImplicitDraw(torch.autograd.Function):
    """Give a draw its implicit reparameterization gradient.

    F(near; logits, beta) = rho stays fixed, so d near = -(dF/d parameter) / (dF/d near). In the coordinate `near`
    both derivatives are finite even where zeta rounds to 0 or 1. All families share this function and differ only in
    their densities and CDFs.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, beta: Tensor, near: Tensor, mode: Tensor, smoothing: Smoothing) -> Tensor:
        ctx.save_for_backward(logits, beta, near, mode)
        ctx.smoothing = smoothing
        return near.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        logits, beta, near, mode = ctx.saved_tensors
        smoothing: Smoothing = ctx.smoothing
        location = Location(near, mode)
        bits = smoothing.to_soft_bits(location)
        log_off, log_on = logsigmoid(-logits), logsigmoid(logits)
        log_slope = torch.logaddexp(log_off + bits.log_r0, log_on + bits.log_r1) + smoothing.log_rate(location)
        flow = grad * smoothing.direction(location)
        to_logits = to_beta = None
        if ctx.needs_input_grad[0]:
            log_weight = log_on + log_off + smoothing.cdf_difference(location).log()
            to_logits = (flow * torch.exp(log_weight - log_slope)).sum_to_size(logits.shape)
        if ctx.needs_input_grad[1]:
            change0, change1 = smoothing.cdf_beta(location)
            change = torch.sigmoid(-logits) * change0 + torch.sigmoid(logits) * change1
            to_beta = (-flow * change * torch.exp(-log_slope)).sum_to_size(beta.shape)
        return to_logits, to_beta, None, None, None


class SmoothedBernoulli(Distribution):
    """Posterior of relaxed bits: the mixture (1-q) r(zeta|0) + q r(zeta|1) with q = sigmoid(logits).

    The batch shape is that of `logits`; every bit is a batch element. Draws are :class:`SoftBits` with exact log
    densities. They are reparameterized by implicit differentiation of the CDF F of the mixture,

        d zeta / d q = (R(zeta|0) - R(zeta|1)) / ((1-q) r(zeta|0) + q r(zeta|1)),

    and have gradients with respect to the logits and the parameters of the smoothing.

    Args:
        logits: Log odds of z = 1, of any shape: a tensor, an array, a list or a number.
        smoothing: The smoothing r. Its beta must broadcast to the shape of the logits.
        validate_args: Whether to check values. None is the default of `torch.distributions`.

    Raises:
        ShapeError: beta does not broadcast to the shape of the logits.
        SupportError: The logits are not real numbers, or `smoothing` is not a smoothing.

    References:
        Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann
        Priors", arXiv:1805.07445, Eqs. 8 and 9. Figurnov, Mohamed and Mnih (2018), "Implicit Reparameterization
        Gradients", arXiv:1805.08498.

    Example:
        >>> from softspin.smoothing import Power
        >>> posterior = SmoothedBernoulli(torch.tensor([-2.0, 3.0]), Power(40.0))
        >>> bits = posterior.draw((5,), generator=torch.Generator().manual_seed(0))
        >>> bits.zeta.shape, posterior.log_prob(bits).isfinite().all().item()
        (torch.Size([5, 2]), True)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True

    def __init__(self, logits: Tensor, smoothing: Smoothing, validate_args: bool | None = None) -> None:
        logits = real_tensor("logits", logits)
        if not isinstance(smoothing, Smoothing):
            raise SupportError(
                f"smoothing must be one such as softspin.smoothing.Power(beta=30.0), not {smoothing!r:.60}"
            )
        self.logits = logits
        self.smoothing = smoothing
        if broadcast_shape(smoothing.beta.shape, logits.shape) != logits.shape:
            raise ShapeError(
                f"beta of shape {tuple(smoothing.beta.shape)} does not broadcast to logits of shape "
                f"{tuple(logits.shape)}; one value per replica takes the form (replicas, 1, ..., 1)"
            )
        super().__init__(logits.shape, validate_args=validate_args)
        if self._validate_args and bool(torch.isnan(logits).any()):
            raise SupportError("logits of a SmoothedBernoulli hold NaN; they must be real numbers")

    def __repr__(self) -> str:
        return f"SmoothedBernoulli(logits {tuple(self.logits.shape)}, {self.smoothing!r})"

    @property
    def mean(self) -> Tensor:
        """E[zeta] = (1-q) E[zeta|0] + q E[zeta|1], in the batch shape. The mean of the bits is sigmoid(logits)."""
        mean0, mean1 = self.smoothing.component_means()
        return (torch.sigmoid(-self.logits) * mean0 + torch.sigmoid(self.logits) * mean1).to(self.logits.dtype)

    @property
    def variance(self) -> Tensor:
        """Raises NoClosedFormError: estimate it from draws."""
        raise NoClosedFormError("the variance of a SmoothedBernoulli is not implemented; use rsample((n,)).var(0)")

    def entropy(self) -> Tensor:
        """Raises NoClosedFormError: the differential entropy of a mixture has no closed form.

        Raises:
            NoClosedFormError: Always. The message names what to use instead.
        """
        raise NoClosedFormError(
            "the entropy of a SmoothedBernoulli, a mixture, has no closed form; bit_entropy() is that of the bits, and "
            "-log_prob(draw((n,))).mean(0) an estimate for zeta"
        )

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real

    def expand(self, batch_shape: Any, _instance: Any = None) -> SmoothedBernoulli:
        return SmoothedBernoulli(self.logits.expand(batch_shape), self.smoothing, validate_args=False)

    def draw(
        self,
        sample_shape: int | tuple[int, ...] = (),
        *,
        generator: torch.Generator | None = None,
        uniforms: tuple[Tensor, Tensor] | None = None,
    ) -> SoftBits:
        """Draw reparameterized soft bits.

        Args:
            sample_shape: Leading dimensions of the draws.
            generator: Source of randomness. None is torch's default generator.
            uniforms: Two tensors of uniforms in (0, 1), `(*sample_shape, *batch_shape)`, to use instead of the
                generator. The first decides the bit, the second the distance of zeta from it.

        Returns:
            Soft bits, `(*sample_shape, *batch_shape)`.

        Raises:
            ShapeError: The uniforms have another shape.
            SupportError: A uniform does not lie strictly between 0 and 1.
        """
        shape = tuple(sample_size(sample_shape)) + tuple(self.batch_shape)
        if uniforms is None:
            pair = open_uniform((2, *shape), dtype=self.logits.dtype, device=self.logits.device, generator=generator)
            uniforms = pair[0], pair[1]
        if uniforms[0].shape != shape or uniforms[1].shape != shape:
            raise ShapeError(
                f"uniforms of shapes {tuple(uniforms[0].shape)} and {tuple(uniforms[1].shape)}; "
                f"two of shape {shape} are needed"
            )
        if self._validate_args and not all(bool(((u > 0) & (u < 1)).all()) for u in uniforms):
            raise SupportError(
                "uniforms must lie strictly between 0 and 1; draw them by softspin.numerics.open_uniform"
            )
        with torch.no_grad():
            location = self.smoothing.draw_location(uniforms[0] < torch.sigmoid(self.logits), uniforms[1])
        return self.at(location)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draw zeta alone, as in `torch.distributions`. Prefer :meth:`draw`, which keeps the log densities."""
        return self.draw(sample_shape).zeta

    def soft_bits(self, zeta: Tensor) -> SoftBits:
        """Compute the soft bits of given values.

        Args:
            zeta: Relaxed bits, in a shape that broadcasts against the batch shape.

        Returns:
            Soft bits as precise as `zeta`, differentiable except at the ends of the support.
        """
        zeta = real_tensor("zeta", zeta).to(self.logits.device)
        self._check_shape(zeta)
        if self._validate_args:
            self.smoothing.check_support(zeta)
        return self.smoothing.to_soft_bits(self.smoothing.from_value(zeta))

    def log_prob(self, value: SoftBits | Tensor) -> Tensor:
        """Compute log q(zeta|x) of each bit, exactly.

        Args:
            value: Soft bits, or zeta alone, in a shape that broadcasts against the batch shape.

        Returns:
            Log densities in the broadcast shape.
        """
        bits = value if isinstance(value, SoftBits) else self.soft_bits(value)
        self._check_shape(bits.zeta)
        return mixture_log_prob(self.logits, bits.log_r0, bits.log_r1)

    def log_ratio(self, bits: SoftBits) -> Tensor:
        """Compute log q(zeta|x) - max(log r0, log r1) of each bit, relative to the base shared with the prior.

        Args:
            bits: Soft bits, in a shape that broadcasts against the batch shape.

        Returns:
            Log densities relative to the base, in the broadcast shape.
        """
        check_soft_bits("log_ratio", bits)
        base = bits.log_base
        return mixture_log_prob(self.logits, bits.log_r0 - base, bits.log_r1 - base)

    def bit_logits(self, bits: SoftBits) -> Tensor:
        """Compute the log odds of q(z=1|x, zeta): the logits plus b(zeta) = log r1 - log r0.

        Args:
            bits: Soft bits, in a shape that broadcasts against the batch shape.

        Returns:
            Log odds in the broadcast shape.
        """
        check_soft_bits("bit_logits", bits)
        return self.logits + bits.log_odds

    def bit_entropy(self) -> Tensor:
        """Compute the entropy of the discrete bits, H(q(z|x)).

        Returns:
            Entropies in nats, in the batch shape.
        """
        return binary_entropy(self.logits)

    def cdf(self, value: Tensor) -> Tensor:
        """Compute the CDF (1-q) R(zeta|0) + q R(zeta|1) of zeta."""
        value = real_tensor("zeta", value)
        if self._validate_args:
            self.smoothing.check_support(value)
        below0, below1 = self.smoothing.cdf(self.smoothing.from_value(value))
        return torch.sigmoid(-self.logits) * below0 + torch.sigmoid(self.logits) * below1

    def icdf(self, value: Tensor) -> Tensor:
        """Compute the zeta at which the CDF equals `value`. :meth:`quantile` returns soft bits instead."""
        return self.quantile(value).zeta

    def quantile(self, rho: Tensor) -> SoftBits:
        """Compute the soft bits at which the CDF equals rho, in closed form or by bisection.

        Args:
            rho: Probabilities in (0, 1), in a shape that broadcasts against the batch shape.

        Returns:
            Soft bits in the broadcast shape, reparameterized.

        Raises:
            SupportError: A probability does not lie strictly between 0 and 1.
        """
        rho = real_tensor("rho", rho)
        if self._validate_args and not bool(((rho > 0) & (rho < 1)).all()):
            raise SupportError("probabilities must lie strictly between 0 and 1")
        return self.at(self.smoothing.invert(self.logits.detach(), rho))

    def _check_shape(self, value: Tensor) -> None:
        if broadcast_shape(value.shape, self.batch_shape) is None:
            raise ShapeError(
                f"values of shape {tuple(value.shape)} for logits of shape {tuple(self.batch_shape)}; "
                "they must broadcast"
            )

    def at(self, location: Location) -> SoftBits:
        """Compute the soft bits at a location, with the gradients of a draw at this location.

        Args:
            location: Location of the bits, in a shape to which the logits broadcast.

        Returns:
            Soft bits, reparameterized.
        """
        beta = self.smoothing.beta
        near = _ImplicitDraw.apply(self.logits, beta, location.coordinate, location.mode, self.smoothing)
        return self.smoothing.to_soft_bits(Location(near, location.mode))
