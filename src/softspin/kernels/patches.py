"""Convolutions of stride 2, and their transposes, between maps with few channels and halved maps, as one product.

The larger maps, such as images of one channel, become patches (:mod:`softspin.kernels.gpu_patches`), which are as small
as the halved maps. The kernels of :mod:`softspin.kernels.convolution` would read every place of the halved maps for
each point, for a few columns of a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.halves import halves, padded, padded_matrix
from softspin.kernels.hidden import product, product_gradients

LONGEST = 64
"""Maximum number of values in a patch."""


def are_short(kernel: tuple[int, int], channels: int) -> bool:
    """Check whether the patches of maps with some channels are short enough for these functions."""
    return kernel[0] * kernel[1] * channels <= LONGEST


def convolution(maps: Tensor, weight: Tensor, kernel: tuple[int, int]) -> Tensor:
    """Convolve maps.

    Args:
        maps: Maps, `(R, images, height, width, inputs)`.
        weight: Weights, `(R, points, inputs, outputs)`.
        kernel: Number of points along each axis.

    Returns:
        Maps, `(R, images, high, wide, outputs)`.
    """
    out: Tensor = _Convolve.apply(maps, padded_matrix(weight.flatten(1, 2)), kernel)
    images, height, width = maps.shape[1:4]
    return out[..., : weight.shape[-1]].unflatten(1, (images, (height + 1) // 2, (width + 1) // 2))


def transposed_convolution(maps: Tensor, weight: Tensor, kernel: tuple[int, int], sizes: tuple[int, int]) -> Tensor:
    """Apply the transpose of :func:`convolution`.

    Args:
        maps: Maps, `(R, images, high, wide, inputs)`.
        weight: Weights, `(R, points, inputs, outputs)`.
        kernel: Number of points along each axis.
        sizes: Height and width of the result.

    Returns:
        Maps, `(R, images, height, width, outputs)`.
    """
    rows, weights = padded(maps.flatten(1, 3)), padded_matrix(weight.transpose(1, 2).flatten(2))
    out: Tensor = _Transpose.apply(rows, weights, kernel, (maps.shape[1], *sizes, weight.shape[-1]))
    return out


def _relative(grad: Tensor) -> tuple[Tensor, Tensor]:
    """A gradient `(R, rows, m)` relative to its largest entry in each replica, and that entry `(R,)`."""
    # In two steps: torch.compile would otherwise reduce a whole replica in one program.
    largest = grad.abs().amax(2).amax(1).clamp_min(1e-30)
    return grad / largest[:, None, None], largest


class _Convolve(torch.autograd.Function):
    """The weight `(R, length, m)` is padded to multiples of UNIT."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, kernel: tuple[int, int]) -> Tensor:
        inputs, weights = unfold(maps, *kernel, weight.shape[1]), halves(weight)
        ctx.save_for_backward(*inputs, *weights)
        ctx.kernel, ctx.shape = kernel, maps.shape
        return product(inputs, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        inputs, weights = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        relative, largest = _relative(grad)
        if not ctx.needs_input_grad[0]:  # no rows of the weight: the kernel computes the second product alone
            weights = [half[:, :0] for half in weights]
        grad_patches, grad_weight = product_gradients(
            halves(relative), largest, inputs, weights, ctx.needs_input_grad[1]
        )
        grad_maps = fold(grad_patches, list(ctx.shape), *ctx.kernel) if ctx.needs_input_grad[0] else None
        return grad_maps, grad_weight, None


class _Transpose(torch.autograd.Function):
    """Maps are rows `(R, images * high * wide, n)`; n, and the weight `(R, n, length)`, are padded."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, kernel: tuple[int, int], shape: tuple[int, int, int, int]
    ) -> Tensor:
        inputs, weights = halves(rows), halves(weight)
        ctx.save_for_backward(*inputs, *weights)
        ctx.kernel = kernel
        return fold(product(inputs, weights), [len(rows), *shape], *kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        inputs, weights = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        relative, largest = _relative(grad.flatten(1, -2))
        patches = unfold(relative.view(grad.shape), *ctx.kernel, weights[0].shape[-1])
        return *product_gradients(patches, largest, inputs, weights, ctx.needs_input_grad[1]), None, None


@library.custom_op("softspin::unfold_patches", mutates_args=())
def unfold(maps: Tensor, kernel_y: int, kernel_x: int, length: int) -> list[Tensor]:
    """Compute the halves of the patches of maps `(R, images, height, width, channels)`, padded to `length`."""
    from softspin.kernels import gpu_patches

    return gpu_patches.launch_unfold(maps, (kernel_y, kernel_x), length)


@library.custom_op("softspin::fold_patches", mutates_args=())
def fold(patches: Tensor, shape: list[int], kernel_y: int, kernel_x: int) -> Tensor:
    """Compute maps of this shape, whose values are sums of the entries of patches at their places."""
    from softspin.kernels import gpu_patches

    return gpu_patches.launch_fold(patches, tuple(shape), (kernel_y, kernel_x))


@unfold.register_fake
def _(maps: Tensor, kernel_y: int, kernel_x: int, length: int) -> list[Tensor]:
    replicas, images, height, width, _ = maps.shape
    rows = images * ((height + 1) // 2) * ((width + 1) // 2)
    return [maps.new_empty(replicas, rows, length, dtype=torch.float16) for _ in range(2)]


@fold.register_fake
def _(patches: Tensor, shape: list[int], kernel_y: int, kernel_x: int) -> Tensor:
    return patches.new_empty(shape)
