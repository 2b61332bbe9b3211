"""Log determinants of symmetric positive definite matrices as GPU kernels, which keep the inverse for the gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.support import has_kernels

LARGEST = 512
"""Largest matrix for which the kernel is used. Libraries are made for larger ones."""


def is_fused(matrix: Tensor) -> bool:
    """Check whether :func:`log_det` supports this matrix: float32, on a GPU, not large, with Triton installed."""
    return has_kernels(matrix) and matrix.shape[-1] <= LARGEST


def log_det(matrix: Tensor) -> Tensor:
    """Compute log determinants `(*replicas,)` of symmetric matrices `(*replicas, n, n)`.

    They are NaN where a matrix is not positive definite, and differentiable once. The reference implementation is the
    Cholesky factorization in :mod:`softspin.distributions.boltzmann`.
    """
    n = matrix.shape[-1]
    return _LogDet.apply(matrix.reshape(-1, n, n)).reshape(matrix.shape[:-2])


class _LogDet(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        value, inverse = log_det_and_inverse(matrix)
        ctx.save_for_backward(inverse)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return grad[:, None, None] * inverse


@library.custom_op("softspin::log_det_and_inverse", mutates_args=())
def log_det_and_inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log determinants `(R,)` and inverses `(R, n, n)` of symmetric positive definite matrices."""
    from softspin.kernels import gpu_log_det

    return gpu_log_det.launch(matrix)


@log_det_and_inverse.register_fake
def _(matrix: Tensor) -> tuple[Tensor, Tensor]:
    return matrix.new_empty(matrix.shape[:1]), torch.empty_like(matrix, memory_format=torch.contiguous_format)
