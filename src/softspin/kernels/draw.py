"""Draws of soft bits as one GPU kernel, with their gradient as another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.support import has_kernels

FAMILIES = ("power", "exp", "un_exp")
"""Names of the smoothings on the unit interval that :func:`draw` supports."""


def is_fused(logits: Tensor) -> bool:
    """Check whether the kernels support these logits: float32 `(R, K, batch, bits)` on a GPU with Triton."""
    return has_kernels(logits) and logits.ndim == 4


def draw(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, family: str, epsilon: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw soft bits, with gradients to the logits.

    The reference implementation is :meth:`softspin.distributions.SmoothedBernoulli.draw`.

    Args:
        logits: Logits `(R, 1 or K, batch, bits)`.
        bit: Uniforms that decide the bits, `(R, K, batch, bits)`.
        place: Uniforms that decide the distances, of the same shape.
        beta: Inverse temperatures, `(R,)`.
        family: One of `FAMILIES`.
        epsilon: Weight of the uniform component of `un_exp`.

    Returns:
        zeta and log odds `(R, K, batch, bits)`, and the log ratios summed over the bits, `(R, K, batch)`.
    """
    zeta, odds, ratio = _Draw.apply(logits, bit, place, beta, FAMILIES.index(family), epsilon)
    return zeta, odds, ratio


def draw_gaussian(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, shift: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw Gaussian soft bits, with gradients to the logits, beta and shift.

    The reference implementation is :meth:`softspin.distributions.SmoothedBernoulli.draw`.

    Args:
        logits: Logits `(R, 1 or K, batch, bits)`.
        bit: Uniforms that decide the bits, `(R, K, batch, bits)`.
        place: Uniforms that decide the distances, of the same shape.
        beta: Inverse variances, `(R, 1, 1, 1 or bits)`.
        shift: Displacement of both modes, in the shape of the logits; None is 0.

    Returns:
        zeta `(R, K, batch, bits)`, and log ratios and log bases summed over the bits, `(R, K, batch)`.
    """
    zeta, ratio, base = _DrawGaussian.apply(logits, bit, place, beta, shift)
    return zeta, ratio, base


class _Draw(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, family: int, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        zeta, odds, nears, ratio = draw_soft_bits(logits, bit, place, beta, epsilon, family)
        ctx.save_for_backward(logits, nears, beta)
        ctx.family, ctx.epsilon = family, epsilon
        return zeta, odds, ratio

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_zeta: Tensor, to_odds: Tensor, to_ratio: Tensor) -> tuple[Tensor | None, ...]:
        logits, nears, beta = ctx.saved_tensors
        each = draw_soft_bits_backward(logits, nears, beta, to_zeta, to_odds, to_ratio, ctx.epsilon, ctx.family)
        return each.sum_to_size(logits.shape), None, None, None, None, None


@library.custom_op("softspin::draw_soft_bits", mutates_args=())
def draw_soft_bits(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, epsilon: float, family: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw zeta, log odds and signed log distances `(R, K, batch, bits)`, and log ratios `(R, K, batch)`."""
    from softspin.kernels import gpu_draw

    return gpu_draw.launch(logits, bit, place, beta, epsilon, family)


@draw_soft_bits.register_fake
def _(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, epsilon: float, family: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*(bit.new_empty(bit.shape) for _ in range(3)), bit.new_empty(bit.shape[:-1]))  # type: ignore[return-value]


@library.custom_op("softspin::draw_soft_bits_backward", mutates_args=())
def draw_soft_bits_backward(
    logits: Tensor,
    nears: Tensor,
    beta: Tensor,
    to_zeta: Tensor,
    to_odds: Tensor,
    to_ratio: Tensor,
    epsilon: float,
    family: int,
) -> Tensor:
    """Compute the gradient of the logits for every sample, `(R, K, batch, bits)`."""
    from softspin.kernels import gpu_draw

    return gpu_draw.launch_backward(logits, nears, beta, to_zeta, to_odds, to_ratio, epsilon, family)


@draw_soft_bits_backward.register_fake
def _(
    logits: Tensor,
    nears: Tensor,
    beta: Tensor,
    to_zeta: Tensor,
    to_odds: Tensor,
    to_ratio: Tensor,
    epsilon: float,
    family: int,
) -> Tensor:
    return torch.empty_like(nears)


class _DrawGaussian(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, shift: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        zeta, ratio, base = draw_gaussian_bits(logits, bit, place, beta, shift)
        ctx.save_for_backward(logits, zeta, beta, *([] if shift is None else [shift]))
        return zeta, ratio, base

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_zeta: Tensor, to_ratio: Tensor, to_base: Tensor) -> tuple[Tensor | None, ...]:
        logits, zeta, beta, *rest = ctx.saved_tensors
        shift, trained = rest[0] if rest else None, ctx.needs_input_grad[3]
        each, to_beta = draw_gaussian_bits_backward(logits, zeta, beta, shift, to_zeta, to_ratio, to_base, trained)
        return (
            each.sum_to_size(logits.shape),
            None,
            None,
            to_beta[:, None, None].sum_to_size(beta.shape) if trained else None,
            None if shift is None else to_zeta.sum_to_size(shift.shape),
        )


@library.custom_op("softspin::draw_gaussian_bits", mutates_args=())
def draw_gaussian_bits(
    logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, shift: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw zeta `(R, K, batch, bits)`, and compute log ratios and log bases `(R, K, batch)`."""
    from softspin.kernels import gpu_gaussian

    return gpu_gaussian.launch(logits, bit, place, beta, shift)


@draw_gaussian_bits.register_fake
def _(logits: Tensor, bit: Tensor, place: Tensor, beta: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return bit.new_empty(bit.shape), bit.new_empty(bit.shape[:-1]), bit.new_empty(bit.shape[:-1])


@library.custom_op("softspin::draw_gaussian_bits_backward", mutates_args=())
def draw_gaussian_bits_backward(
    logits: Tensor,
    zeta: Tensor,
    beta: Tensor,
    shift: Tensor | None,
    to_zeta: Tensor,
    to_ratio: Tensor,
    to_base: Tensor,
    trained: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the gradients of the logits for every sample, and of beta `(R, bits)`, or `(0, bits)` if not trained."""
    from softspin.kernels import gpu_gaussian

    return gpu_gaussian.launch_backward(logits, zeta, beta, shift, to_zeta, to_ratio, to_base, trained)


@draw_gaussian_bits_backward.register_fake
def _(
    logits: Tensor,
    zeta: Tensor,
    beta: Tensor,
    shift: Tensor | None,
    to_zeta: Tensor,
    to_ratio: Tensor,
    to_base: Tensor,
    trained: bool,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(zeta), zeta.new_empty(len(zeta) if trained else 0, zeta.shape[-1])
