"""Batched matrix products: those of torch, or a Triton kernel for the small products of a training step on a GPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.support import has_kernels

ROWS = 4096
"""Maximum number of rows per replica for which the kernel is used."""


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """Compute rows `(R, M, K)` @ weight `(R, K, N)`.

    Float32 products on a GPU use TF32 only if torch allows it for its own products.

    >>> product(torch.ones(3, 5, 2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 5, 4])
    """
    return _Product.apply(rows, weight) if latency_bound(rows, weight) else rows @ weight


def latency_bound(rows: Tensor, weight: Tensor) -> bool:
    """Check whether this is a small float32 product on a GPU, as in a training step.

    For these, cuBLAS does not use tensor cores and has so few tiles that the time is dominated by latency. Products
    with many rows, as in an evaluation, use the GPU well.
    """
    return (
        has_kernels(rows) and rows.dtype == weight.dtype and rows.ndim == weight.ndim == 3 and 0 < rows.shape[1] <= ROWS
    )


def tf32_allowed() -> bool:
    """Check whether torch allows TF32. As in cuBLAS, it is read when the product runs, and fixed in a CUDA graph."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return joined(a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        if all(ctx.needs_input_grad):
            return matmul_pair(grad, b.mT, a.mT, grad)
        wanted_a, wanted_b = ctx.needs_input_grad
        return joined(grad, b.mT) if wanted_a else None, joined(a.mT, grad) if wanted_b else None


def joined(a: Tensor, b: Tensor) -> Tensor:
    """Compute the product by the kernel. The sum over its parts can be fused by torch.compile."""
    return ordered_sum(partial_products(a, b))


def matmul_pair(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a @ b and c @ d in one launch, because most launches of a training step are too small to fill a GPU."""
    one, two = two_partial_products(a, b, c, d)
    return ordered_sum(one), ordered_sum(two)


def ordered_sum(parts: Tensor) -> Tensor:
    """Add the parts in order. The order of `Tensor.sum` can depend on the number of replicas."""
    return parts.squeeze(0) if len(parts) == 1 else functools.reduce(torch.add, parts.unbind())


@library.custom_op("softspin::partial_products", mutates_args=())
def partial_products(a: Tensor, b: Tensor) -> Tensor:
    """Compute parts `(split_k, R, M, N)`, whose sum is a `(R, M, K)` @ b `(R, K, N)`."""
    from softspin.kernels import gpu_matmul

    return gpu_matmul.launch(a, b, gpu_matmul.tile_for(a.shape[1], b.shape[2], a.shape[2]), tf32_allowed())


@library.custom_op("softspin::two_partial_products", mutates_args=())
def two_partial_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `partial_products` of a and b, and of c and d."""
    from softspin.kernels import gpu_matmul

    return gpu_matmul.launch_two(a, b, c, d, tf32_allowed())


@partial_products.register_fake
def _empty(a: Tensor, b: Tensor) -> Tensor:
    from softspin.kernels import gpu_matmul

    tile = gpu_matmul.tile_for(int(a.shape[1]), int(b.shape[2]), int(a.shape[2]))
    return a.new_empty(tile.split_k, a.shape[0], a.shape[1], b.shape[2])


@two_partial_products.register_fake
def _(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return _empty(a, b), _empty(c, d)
