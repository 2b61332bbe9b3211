"""Convolutions of stride 2 and their transposes on a GPU, with the accuracy of float32, for R replicas.

Those of a training step are too small for the library of torch, which takes 20 to 40 us for each and does not use
tensor cores in float32. Maps are `(R, images, *sizes, channels)`; sizes are one number (sequences) or two (images). A
side of n is halved to ceil(n / 2). Maps and weights must be in the range of float16, up to 65504.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels import hidden
from softspin.kernels.halves import UNIT, halves, padded, padded_matrix
from softspin.kernels.matmul import ordered_sum, tf32_allowed


def is_fused(maps: Tensor, sizes: Sequence[int], channels: int) -> bool:
    """Check whether these functions should be used: many places on a GPU, in float32, whose number fits into 32 bits.

    Args:
        maps: Maps, `(R, images, *sizes, inputs)`.
        sizes: Sizes of the result.
        channels: Channels of the result.
    """
    places = maps.shape[1] * max(math.prod(sizes), math.prod(maps.shape[2:-1]))
    return hidden.is_fused(maps) and places * (max(channels, maps.shape[-1]) + UNIT) < 2**31


def convolution(maps: Tensor, weight: Tensor) -> Tensor:
    """Convolve maps: output o is the sum over channels c and points k of maps[2 o + k - margin, c] weight[k, c].

    Args:
        maps: Maps, `(R, images, *sizes, inputs)`.
        weight: Weights, `(R, *kernel, inputs, outputs)`; the kernel has an odd number of points along each axis.

    Returns:
        Maps, `(R, images, *halved sizes, outputs)`.
    """
    kernel = _kernel_of(weight)
    out: Tensor = _Convolve.apply(_as_images(maps), _as_points(weight), kernel)
    return out[..., : weight.shape[-1]].reshape(*maps.shape[:2], *_halved(maps.shape[2:-1]), -1)


def transposed_convolution(maps: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Apply the transpose of :func:`convolution`.

    Args:
        maps: Maps, `(R, images, *halved sizes, inputs)`.
        weight: Weights, `(R, *kernel, inputs, outputs)`.
        sizes: Sizes of the result.

    Returns:
        Maps, `(R, images, *sizes, outputs)`.
    """
    kernel = _kernel_of(weight)
    height, width = sizes if len(sizes) == 2 else (1, *sizes)
    out: Tensor = _Transpose.apply(_as_images(maps), _as_points(weight), kernel, height, width)
    return out[..., : weight.shape[-1]].reshape(*maps.shape[:2], *sizes, -1)


def _kernel_of(weight: Tensor) -> tuple[int, int]:
    points = weight.shape[1:-2]
    return (points[0], points[1]) if len(points) == 2 else (1, points[0])


def _halved(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((size + 1) // 2 for size in sizes)


def _as_images(maps: Tensor) -> Tensor:
    """Maps of two axes, with a multiple of 8 channels."""
    return padded(maps if maps.ndim == 5 else maps[:, :, None])


def _as_points(weight: Tensor) -> Tensor:
    """Weights `(R, points, inputs, outputs)`, with multiples of 8 inputs and outputs."""
    return padded_matrix(weight.flatten(1, -3)).contiguous()  # or the kernels would copy its halves


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, kernel: tuple[int, int]) -> Tensor:
        inputs, weights = halves(maps), halves(weight)
        ctx.save_for_backward(*inputs, *weights)
        ctx.kernel = kernel
        return convolve(inputs, weights, *kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        saved, kernel = ctx.saved_tensors, ctx.kernel
        relative, largest = _relative(grad)
        grad_maps = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_maps = largest * transpose(relative, [one.mT for one in saved[2:]], *saved[0].shape[2:4], *kernel)
        if ctx.needs_input_grad[1]:
            grad_weight = (
                ordered_sum(weight_gradient(saved[:2], relative, *kernel)) * largest.flatten(1)[:, :, None, None]
            )
        return grad_maps, grad_weight, None


class _Transpose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, kernel: tuple[int, int], height: int, width: int) -> Tensor:
        inputs, weights = halves(maps), halves(weight)
        ctx.save_for_backward(*inputs, *weights)
        ctx.kernel = kernel
        return transpose(inputs, weights, height, width, *kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        saved, kernel = ctx.saved_tensors, ctx.kernel
        relative, largest = _relative(grad)
        grad_maps = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_maps = largest * convolve(relative, [one.mT for one in saved[2:]], *kernel)
        if ctx.needs_input_grad[1]:  # as that of a convolution from the result to the inputs
            parts = weight_gradient(relative, saved[:2], *kernel)
            grad_weight = largest[..., 0] * ordered_sum(parts).mT
        return grad_maps, grad_weight, None, None, None


def _relative(grad: Tensor) -> tuple[list[Tensor], Tensor]:
    """Halves of a gradient relative to its largest entry in each replica, and that entry `(R, 1, 1, 1, 1)`."""
    # In two steps: torch.compile would otherwise reduce a whole replica in one program.
    largest = grad.abs().amax((3, 4), keepdim=True).amax((1, 2), keepdim=True).clamp_min(1e-30)
    return halves(grad / largest), largest


@library.custom_op("softspin::convolve", mutates_args=())
def convolve(x: list[Tensor], weight: list[Tensor], kernel_y: int, kernel_x: int) -> Tensor:
    """Convolve x `(R, images, height, width, n)` with weight `(R, points, n, m)`: halves, n and m multiples of 8."""
    from softspin.kernels import gpu_convolution

    out = _empty(x, weight, *_halved(x[0].shape[2:4]))
    gpu_convolution.launch_convolve(x, weight, out, (kernel_y, kernel_x), tf32_allowed())
    return out


@library.custom_op("softspin::convolve_transposed", mutates_args=())
def transpose(x: list[Tensor], weight: list[Tensor], height: int, width: int, kernel_y: int, kernel_x: int) -> Tensor:
    """Apply the transpose of :func:`convolve`, to maps of `height` and `width`."""
    from softspin.kernels import gpu_convolution

    out = _empty(x, weight, height, width)
    gpu_convolution.launch_transpose(x, weight, out, (kernel_y, kernel_x), tf32_allowed())
    return out


@library.custom_op("softspin::convolution_weight_gradient", mutates_args=())
def weight_gradient(x: list[Tensor], grad: list[Tensor], kernel_y: int, kernel_x: int) -> Tensor:
    """Compute parts `(count, R, points, n, m)`, whose sum is the gradient of the weight of :func:`convolve`.

    x `(R, images, height, width, n)` and grad `(R, images, halved sizes, m)` are halves.
    """
    from softspin.kernels import gpu_convolution

    parts = _empty_parts(x, grad, kernel_y * kernel_x)
    gpu_convolution.launch_weight_gradient(x, grad, parts, (kernel_y, kernel_x), tf32_allowed())
    return parts


@convolve.register_fake
def _(x: list[Tensor], weight: list[Tensor], kernel_y: int, kernel_x: int) -> Tensor:
    return _empty(x, weight, *_halved(x[0].shape[2:4]))


@transpose.register_fake
def _(x: list[Tensor], weight: list[Tensor], height: int, width: int, kernel_y: int, kernel_x: int) -> Tensor:
    return _empty(x, weight, height, width)


@weight_gradient.register_fake
def _(x: list[Tensor], grad: list[Tensor], kernel_y: int, kernel_x: int) -> Tensor:
    return _empty_parts(x, grad, kernel_y * kernel_x)


def _empty(x: list[Tensor], weight: list[Tensor], height: int, width: int) -> Tensor:
    return x[0].new_empty(*x[0].shape[:2], height, width, weight[0].shape[-1], dtype=torch.float32)


def _empty_parts(x: list[Tensor], grad: list[Tensor], points: int) -> Tensor:
    from softspin.kernels import gpu_convolution

    replicas, images, height, width, columns = grad[0].shape
    count = gpu_convolution.row_parts(int(images * height * width))
    return x[0].new_empty(count, replicas, points, x[0].shape[-1], columns, dtype=torch.float32)
