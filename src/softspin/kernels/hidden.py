"""A linear layer x W, and a hidden layer tanh(batch norm(x W + b)), each as one operation on a GPU.

The statistics of batch norm come from the kernel of the product, and no factor is stored twice: the operations between
two products write the halves (:mod:`softspin.kernels.halves`) that the next product reads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.halves import LOW, gradients, halves, layer, padded, padded_matrix
from softspin.kernels.matmul import ordered_sum
from softspin.kernels.support import has_kernels

FEWEST_ROWS = 400
"""Minimum number of rows per replica. With fewer, a layer is bound by latency, and other kernels are faster."""


class Activations(NamedTuple):
    """Activations `(R, rows, m)`, and mean and variance of the outputs of the linear layer `(R, m)`."""

    values: Tensor
    mean: Tensor
    variance: Tensor


def is_fused(x: Tensor) -> bool:
    """Check whether these functions should be used for inputs `(R, ..., n)`: many rows on a GPU, in float32."""
    return has_kernels(x) and math.prod(x.shape[1:-1]) >= FEWEST_ROWS


def activations(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    epsilon: float,
    constant_statistics: bool = False,
) -> Activations:
    """Compute tanh(scale (y - mean) / sqrt(variance + epsilon) + shift) with y = x @ weight + bias.

    Mean and variance are those of the rows of y. They have no gradient of their own. Inputs and weights must be in the
    range of float16, up to 65504.

    Args:
        x: Inputs, `(R, rows, n)`.
        weight: Weights, `(R, n, m)`.
        bias: Terms that are added to the rows, `(R, b, m)`: row i gets row i mod b.
        scale: Scale of batch norm, `(R, m)`.
        shift: Shift of batch norm, `(R, m)`.
        epsilon: Added to the variance.
        constant_statistics: Whether mean and variance are constants for the gradient of x; only x has one then.

    Returns:
        Activations and statistics.
    """
    width = weight.shape[-1]
    values, mean, variance = _Hidden.apply(
        padded(x), padded_matrix(weight), padded(bias), padded(scale), padded(shift), epsilon, constant_statistics
    )
    return Activations(values[..., :width], mean[:, :width], variance[:, :width])


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x `(R, rows, n)` @ weight `(R, n, m)`. Both must be in the range of float16, up to 65504."""
    out: Tensor = _Linear.apply(padded(x), padded_matrix(weight))
    return out[..., : weight.shape[-1]]


class _Linear(torch.autograd.Function):
    """All lengths but rows are multiples of 8."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        inputs, weights = halves(x), halves(weight)
        ctx.save_for_backward(*inputs, *weights)
        return product(inputs, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        saved = ctx.saved_tensors
        largest = grad.abs().amax(2).amax(1).clamp_min(1e-30)  # at once, one program would search all rows of a replica
        relative = halves(grad / largest[:, None, None])
        return product_gradients(relative, largest, saved[:2], saved[2:], ctx.needs_input_grad[1])


def product(x: list[Tensor], weight: list[Tensor]) -> Tensor:
    """x `(R, rows, n)` @ weight `(R, n, m)`, both halves, with lengths as in :func:`softspin.kernels.halves.layer`."""
    zeros = weight[0].new_zeros(len(weight[0]), 1, weight[0].shape[-1], dtype=torch.float32)
    return layer(x, weight, zeros)[0]


def product_gradients(
    relative: list[Tensor], bound: Tensor, x: list[Tensor], weight: list[Tensor], trained: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of x and, if it is trained, weight of a product; its own is bound `(R,)` times `relative`, halves."""
    if not trained:  # no columns of x: the kernel computes the first product alone
        return gradients(relative, weight, [half[..., :0] for half in x], bound[:, None])[0], None
    grad_x, parts = gradients(relative, weight, x, bound[:, None])
    return grad_x, ordered_sum(parts) * bound[:, None, None]


class _Hidden(torch.autograd.Function):
    """All lengths but rows are multiples of 8. A padded column has y = 0, scale 0 and shift 0."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        epsilon: float,
        constant_statistics: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs, weights = halves(x), halves(weight)
        y, sums, deviations = layer(inputs, weights, bias)
        mean, variance = _statistics(sums, deviations, x.shape[1])
        inverse = torch.rsqrt(variance + epsilon)
        ctx.save_for_backward(y, mean, inverse, scale, shift, *inputs, *weights)
        ctx.period, ctx.constant_statistics = bias.shape[1], constant_statistics
        gain = scale * inverse
        ctx.mark_non_differentiable(mean, variance)
        return torch.tanh(y * gain[:, None] + (shift - mean * gain)[:, None]), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        y, mean, inverse, scale, shift, *saved = ctx.saved_tensors
        replicas, _, columns = y.shape
        sums = slope_sums(grad, y, mean, inverse, scale, shift)
        # Without the first two, which are the way through mean and variance.
        used = torch.cat([torch.zeros_like(sums[:2]), sums[2:]]) if ctx.constant_statistics else sums
        *relative, bound = norm_gradient(grad, y, mean, inverse, scale, shift, used)
        grad_x, grad_weight = product_gradients(relative, bound, saved[:2], saved[2:], ctx.needs_input_grad[1])
        grad_bias = None
        if ctx.needs_input_grad[2]:
            high, low = (half.view(replicas, -1, ctx.period, columns).float().sum(1) for half in relative)
            grad_bias = (high + low / LOW) * bound[:, None, None]
        return grad_x, grad_weight, grad_bias, sums[1], sums[0], None, None


@library.custom_op("softspin::slope_sums", mutates_args=())
def slope_sums(grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Compute sums over rows for the gradient of tanh(scale normal + shift), normal = (y - mean) inverse.

    Args:
        grad: Gradient of the activations, `(R, rows, m)`.
        y: Inputs of batch norm, `(R, rows, m)`.
        mean: Mean of y, `(R, m)`.
        inverse: One over the standard deviation of y, `(R, m)`.
        scale: Scale of batch norm, `(R, m)`.
        shift: Shift of batch norm, `(R, m)`.

    Returns:
        `(3, R, m)`: with slope = grad (1 - tanh^2), the sum of slope, which is the gradient of shift; the sum of slope
        normal, which is that of scale; and the largest abs(slope).
    """
    from softspin.kernels import gpu_norm

    return gpu_norm.launch_sums(grad, y, mean, inverse, scale, shift)


@library.custom_op("softspin::norm_gradient", mutates_args=())
def norm_gradient(
    grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor, sums: Tensor
) -> list[Tensor]:
    """Compute the halves of the gradient of y divided by a bound on its size, and the bound `(R,)`.

    The arguments are those of :func:`slope_sums`, and its result.
    """
    from softspin.kernels import gpu_norm

    return list(gpu_norm.launch_gradient(grad, y, mean, inverse, scale, shift, sums))


@slope_sums.register_fake
def _(grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return y.new_empty(3, *mean.shape)


@norm_gradient.register_fake
def _(
    grad: Tensor, y: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor, sums: Tensor
) -> list[Tensor]:
    return [*(torch.empty_like(y, dtype=torch.float16) for _ in range(2)), y.new_empty(len(y))]


def _statistics(sums: Tensor, deviations: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Mean and variance `(R, m)` of all rows, from sums and squared deviations of each block `(blocks, R, m)`."""
    from softspin.kernels.gpu_halves import LAYER_ROWS

    start = LAYER_ROWS.value * torch.arange(len(sums), device=sums.device)[:, None, None]
    count = (rows - start).clamp_max(LAYER_ROWS.value)
    mean = sums.sum(0) / rows
    between = count * (sums / count - mean).square()
    return mean, (deviations + between).sum(0) / rows
