"""Log determinants of symmetric positive definite matrices as GPU kernels, which keep the inverse for the gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.side_stream import on_side_stream, wait_for
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
    return _log_det(matrix, aside=False)


def log_det_beside(matrix: Tensor, meanwhile: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Compute :func:`log_det` and, at the same time on the GPU, `meanwhile()`; returns both.

    Elimination is a long chain of small steps, one program for each matrix, which leaves the GPU idle.
    """
    value = _log_det(matrix, aside=True)
    other = meanwhile()
    return wait_for(value), other


def _log_det(matrix: Tensor, aside: bool) -> Tensor:
    n = matrix.shape[-1]
    return _LogDet.apply(matrix.reshape(-1, n, n), aside).reshape(matrix.shape[:-2])


class _LogDet(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, aside: bool) -> Tensor:
        value, inverse = log_det_and_inverse(matrix, aside)
        ctx.save_for_backward(inverse)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (inverse,) = ctx.saved_tensors
        return grad[:, None, None] * inverse, None


@library.custom_op("softspin::log_det_and_inverse", mutates_args=())
def log_det_and_inverse(matrix: Tensor, aside: bool = False) -> tuple[Tensor, Tensor]:
    """Compute log determinants `(R,)` and inverses `(R, n, n)` of symmetric positive definite matrices.

    If `aside`, they are computed on the side stream (:mod:`softspin.kernels.side_stream`).
    """
    from softspin.kernels import gpu_log_det

    with on_side_stream(matrix) if aside else contextlib.nullcontext():
        return gpu_log_det.launch(matrix)


@log_det_and_inverse.register_fake
def _(matrix: Tensor, aside: bool = False) -> tuple[Tensor, Tensor]:
    return matrix.new_empty(matrix.shape[:1]), torch.empty_like(matrix, memory_format=torch.contiguous_format)
