"""Products of R pairs of matrices: torch's, and on a GPU, for the small ones of a training step, our own kernel."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

ROWS = 4096
"""Rows of a replica up to which the kernel is used."""
TRITON = importlib.util.find_spec("triton") is not None


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows `(R, M, K)` @ weight `(R, K, N)`; in float32 on a GPU with TF32 only where torch's own products may use it.

    >>> product(torch.ones(3, 5, 2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 5, 4])
    """
    return _Product.apply(rows, weight) if latency_bound(rows, weight) else rows @ weight


def latency_bound(rows: Tensor, weight: Tensor) -> bool:
    """Whether this is a product of a training step, on a GPU.

    There cuBLAS multiplies float32 without tensor cores, in so few tiles that most of the time is spent waiting. Many
    rows, as in an evaluation, keep it busy.
    """
    return (
        TRITON
        and rows.device.type == "cuda"
        and rows.dtype == weight.dtype == torch.float32
        and rows.ndim == weight.ndim == 3
        and 0 < rows.shape[1] <= ROWS
    )


def tf32_allowed() -> bool:
    """As in cuBLAS, the switch counts when the product runs, and a captured graph keeps it."""
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
    """The product by the kernel; where it comes in parts, a compiler adds them up in whatever uses the result."""
    return _sum(partial_products(a, b))


def matmul_pair(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """a @ b and c @ d by one launch: a training step is a chain of launches, most of them too small to fill a GPU."""
    one, two = two_partial_products(a, b, c, d)
    return _sum(one), _sum(two)


def _sum(parts: Tensor) -> Tensor:
    return parts.squeeze(0) if len(parts) == 1 else parts.sum(0)


@library.custom_op("softspin::partial_products", mutates_args=())
def partial_products(a: Tensor, b: Tensor) -> Tensor:
    """`(split_k, R, M, N)`, whose sum over the first dimension is a `(R, M, K)` @ b `(R, K, N)`."""
    from softspin.kernels import gpu_matmul

    return gpu_matmul.launch(a, b, gpu_matmul.tile_for(a.shape[1], b.shape[2], a.shape[2]), tf32_allowed())


@library.custom_op("softspin::two_partial_products", mutates_args=())
def two_partial_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """`partial_products` of a and b, and of c and d."""
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
