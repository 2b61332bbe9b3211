"""Batch norm and tanh as two GPU kernels each way, registered as operators so that torch.compile accepts them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.matmul import TRITON

MANY_ROWS = 1024
"""Rows per replica from which the kernels are used. With fewer, one kernel of torch.compile does everything."""


def is_fused(y: Tensor) -> bool:
    """Check whether :func:`normalized_tanh` supports y: many rows of float32 on a GPU, with Triton installed."""
    return TRITON and y.device.type == "cuda" and y.dtype == torch.float32 and y[0, ..., 0].numel() >= MANY_ROWS


def normalized_tanh(
    y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute tanh((x - mean) / sqrt(variance + epsilon) * scale + shift) with x = y + shared.

    The reference implementation is that of :class:`softspin.nets.BatchNorm`.

    Args:
        y: Rows `(R, K, batch, features)`.
        shared: Rows `(R, 1, batch, features)` that are added for all samples, or None.
        scale: Scale `(R, features)`.
        shift: Shift `(R, features)`.
        epsilon: Added to the variance.

    Returns:
        The result in the shape of y; mean and variance over samples and batch `(R, features)`, without a gradient.
    """
    rows = y.flatten(1, -2), None if shared is None else shared.flatten(1, -2)
    out, statistics = _NormalizedTanh.apply(*rows, scale, shift, epsilon)
    return out.reshape(y.shape), statistics[:, 0], statistics[:, 1]


class _NormalizedTanh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        out, statistics = batch_norm_tanh(y, shared, scale, shift, epsilon)
        ctx.save_for_backward(y, shared, out, statistics, scale)
        ctx.mark_non_differentiable(statistics)
        return out, statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_t: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        y, shared, out, statistics, scale = ctx.saved_tensors
        to_y, sums = batch_norm_tanh_backward(y, shared, out, statistics, scale, to_t)
        to_shared = None if shared is None else to_y.unflatten(1, (-1, shared.shape[1])).sum(1)
        return to_y, to_shared, sums[:, 1], sums[:, 0], None


@library.custom_op("softspin::batch_norm_tanh", mutates_args=())
def batch_norm_tanh(
    y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Compute tanh of the normalized rows `(R, rows, features)`, and statistics `(R, 3, features)`."""
    from softspin.kernels import gpu_norm

    addend = None if shared is None else shared.contiguous()
    return gpu_norm.launch(y.contiguous(), addend, scale.contiguous(), shift.contiguous(), epsilon)


@batch_norm_tanh.register_fake
def _(y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    return y.new_empty(y.shape), y.new_empty(y.shape[0], 3, y.shape[2])


@library.custom_op("softspin::batch_norm_tanh_backward", mutates_args=())
def batch_norm_tanh_backward(
    y: Tensor, shared: Tensor | None, out: Tensor, statistics: Tensor, scale: Tensor, to_t: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of y, and those of shift and scale `(R, 2, features)`."""
    from softspin.kernels import gpu_norm

    addend = None if shared is None else shared.contiguous()
    return gpu_norm.launch_backward(y.contiguous(), addend, out, statistics, scale.contiguous(), to_t.contiguous())


@batch_norm_tanh_backward.register_fake
def _(
    y: Tensor, shared: Tensor | None, out: Tensor, statistics: Tensor, scale: Tensor, to_t: Tensor
) -> tuple[Tensor, Tensor]:
    return y.new_empty(y.shape), y.new_empty(y.shape[0], 2, y.shape[2])
