"""q(zeta|x) = (1-q) r(zeta|0) + q r(zeta|1): a bit drawn, smoothed, and still differentiable."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution, constraints
from torch.nn.functional import logsigmoid

from softspin.errors import ShapeError, SupportError
from softspin.numerics import binary_entropy, broadcast_shape, mixture_log_prob, open_uniform
from softspin.smoothing import Location, Smoothing, SoftBits


class _ImplicitDraw(torch.autograd.Function):
    """Gives a draw the gradient it would have if made by inverting the mixture's CDF.

    F(near; logits, beta) = rho stays fixed, so d near = -(dF/d parameter) / (dF/d near). In the coordinate
    `near` both are finite where zeta itself has rounded to 0 or 1. One function for all families: they
    differ in their densities and CDFs only.
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
    """The mixture (1-q) r(zeta|0) + q r(zeta|1) with q = sigmoid(logits).

    Batch shape: that of `logits`; every bit is a batch element. Draws are :class:`SoftBits`, with exact
    log densities and with gradients to the logits, to beta, and to shift and width where there are any.

    >>> from softspin.smoothing import Power
    >>> posterior = SmoothedBernoulli(torch.tensor([-2.0, 3.0]), Power(40.0))
    >>> bits = posterior.draw((5,), generator=torch.Generator().manual_seed(0))
    >>> bits.zeta.shape, posterior.log_prob(bits).isfinite().all().item()
    (torch.Size([5, 2]), True)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True

    def __init__(self, logits: Tensor, smoothing: Smoothing, validate_args: bool | None = None) -> None:
        self.logits = logits
        self.smoothing = smoothing
        if not logits.is_floating_point():
            raise SupportError(f"logits of a SmoothedBernoulli must be floating point, not {logits.dtype}")
        if broadcast_shape(smoothing.beta.shape, logits.shape) != logits.shape:
            raise ShapeError(
                f"beta of shape {tuple(smoothing.beta.shape)} does not broadcast to logits of shape "
                f"{tuple(logits.shape)}; one value per replica takes the form (replicas, 1, ..., 1)"
            )
        super().__init__(logits.shape, validate_args=validate_args)
        if self._validate_args and bool(torch.isnan(logits).any()):
            raise SupportError("logits of a SmoothedBernoulli hold NaN; they must be real numbers")

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
        """Reparameterised soft bits of shape `sample_shape + batch_shape`.

        Randomness comes from `generator`, or from two given tensors of uniforms in (0, 1) of that shape:
        the first decides the bit, the second how far the value lies from it.
        """
        lead = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        shape = lead + tuple(self.batch_shape)
        if uniforms is None:
            pair = open_uniform((2, *shape), dtype=self.logits.dtype, device=self.logits.device, generator=generator)
            uniforms = pair[0], pair[1]
        if uniforms[0].shape != shape or uniforms[1].shape != shape:
            raise ShapeError(
                f"uniforms of shapes {tuple(uniforms[0].shape)} and {tuple(uniforms[1].shape)}; "
                f"two of shape {shape} are needed"
            )
        if self._validate_args and not all(bool(((u > 0) & (u < 1)).all()) for u in uniforms):
            raise SupportError("uniforms must lie strictly between 0 and 1; softspin.numerics.open_uniform makes such")
        with torch.no_grad():
            location = self.smoothing.draw_location(uniforms[0] < torch.sigmoid(self.logits), uniforms[1])
        return self.at(location)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """zeta alone, as torch's interface has it. Prefer :meth:`draw`: zeta loses its log density."""
        return self.draw(tuple(sample_shape)).zeta

    def soft_bits(self, zeta: Tensor) -> SoftBits:
        """The soft bits of given values, as exact as the values are; differentiable except at the support's ends."""
        self._check_shape(zeta)
        if self._validate_args:
            self.smoothing.check_support(zeta)
        return self.smoothing.to_soft_bits(self.smoothing.from_value(zeta))

    def log_prob(self, value: SoftBits | Tensor) -> Tensor:
        """log q(zeta|x) of each bit; exact.

        The shapes of value and logits broadcast.
        """
        bits = value if isinstance(value, SoftBits) else self.soft_bits(value)
        self._check_shape(bits.zeta)
        return mixture_log_prob(self.logits, bits.log_r0, bits.log_r1)

    def log_ratio(self, bits: SoftBits) -> Tensor:
        """log q(zeta|x) - max(log r0, log r1) of each bit: what is left beside the part shared with the prior."""
        base = bits.log_base
        return mixture_log_prob(self.logits, bits.log_r0 - base, bits.log_r1 - base)

    def bit_logits(self, bits: SoftBits) -> Tensor:
        """Log odds of q(z=1|x, zeta): the logits plus the evidence b(zeta)."""
        return self.logits + bits.log_odds

    def bit_entropy(self) -> Tensor:
        """Entropy in nats of the discrete bit, H(q(z|x))."""
        return binary_entropy(self.logits)

    def cdf(self, value: Tensor) -> Tensor:
        """(1-q) R(zeta|0) + q R(zeta|1)."""
        if self._validate_args:
            self.smoothing.check_support(value)
        below0, below1 = self.smoothing.cdf(self.smoothing.from_value(value))
        return torch.sigmoid(-self.logits) * below0 + torch.sigmoid(self.logits) * below1

    def icdf(self, value: Tensor) -> Tensor:
        """zeta at which the CDF reaches `value`; see :meth:`quantile` for the whole soft bits."""
        return self.quantile(value).zeta

    def quantile(self, rho: Tensor) -> SoftBits:
        """Soft bits at which the CDF reaches rho in (0, 1), by closed form or bisection, differentiable."""
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
        """Soft bits at a given place, with the gradients that a draw which fell there would have."""
        beta = self.smoothing.beta
        near = _ImplicitDraw.apply(self.logits, beta, location.coordinate, location.mode, self.smoothing)
        return self.smoothing.to_soft_bits(Location(near, location.mode))
