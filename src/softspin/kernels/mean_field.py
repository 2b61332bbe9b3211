"""Mean-field bound of RBMs as one GPU kernel, registered as an operator so that torch.compile accepts it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from softspin.kernels.matmul import product, tf32_allowed
from softspin.kernels.side_stream import on_side_stream, wait_for
from softspin.kernels.support import has_kernels

LARGEST = 256
"""Maximum number of units per side. The means of more do not fit into registers."""
SCRATCH = 8192
"""Bytes of shared memory that the kernel may need beside W."""


def is_fused(odds: Tensor, weight: Tensor) -> bool:
    """Check whether :func:`mean_field_bound` supports these tensors, else plain torch is used.

    They must be float32 and on a GPU, and Triton must be installed. W must fit into the shared memory of a program.
    Both sides must have an even number of units, which the kernel loads in pairs.
    """
    n, m = weight.shape[-2:]
    return (
        has_kernels(odds)
        and n % 2 == m % 2 == 0
        and max(n, m) <= LARGEST
        and 4 * (n + -n % 16) * (m + -m % 16) + SCRATCH <= _shared_memory(odds.device)
    )


def _shared_memory(device: torch.device) -> int:
    """Return the maximum shared memory of a program in bytes. CUDA reserves 1 KB of each multiprocessor."""
    return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor - 1024


def mean_field_bound(odds: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    """Compute the bound of :meth:`softspin.distributions.OverlapRelaxation.bound` at the mean-field solution.

    The reference implementation is there, with the loop of `OverlapRelaxation.mean_field`. The gradient treats the
    means as constants.

    Args:
        odds: Log odds of the soft bits, `(R, rows, n + m)`.
        bias: Biases, `(R, n + m)`.
        weight: Couplings, `(R, n, m)`.
        steps: Iterations from means of 1/2. Each updates the right side first.

    Returns:
        The bound, `(R, rows)`.
    """
    bound: Tensor = _MeanFieldBound.apply(odds, bias, weight, steps, False)
    return bound


def mean_field_bound_beside(
    odds: Tensor, bias: Tensor, weight: Tensor, steps: int, meanwhile: Callable[[], Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute :func:`mean_field_bound` and, at the same time on the GPU, `meanwhile()`; returns both.

    The kernel has a program for each 128 rows, and every product of a net leaves parts of the GPU idle, too.
    """
    bound: Tensor = _MeanFieldBound.apply(odds, bias, weight, steps, True)
    other = meanwhile()
    return wait_for(bound), other


class _MeanFieldBound(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, odds: Tensor, bias: Tensor, weight: Tensor, steps: int, aside: bool) -> Tensor:
        bound, means, slopes = mean_field(odds, bias, weight, steps, aside)
        ctx.save_for_backward(means, slopes)
        ctx.left = weight.shape[1]
        return bound

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        means, slopes = ctx.saved_tensors
        scaled = grad[..., None] * means
        to_weight = product(scaled[..., : ctx.left].mT, means[..., ctx.left :])
        return grad[..., None] * slopes, scaled.sum(1), to_weight, None, None


@library.custom_op("softspin::mean_field", mutates_args=())
def mean_field(
    odds: Tensor, bias: Tensor, weight: Tensor, steps: int, aside: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the bound, the means m `(R, rows, n + m)`, and the derivative of the bound by each log odds.

    If `aside`, they are computed on the side stream (:mod:`softspin.kernels.side_stream`).
    """
    from softspin.kernels import gpu_mean_field

    odds = odds.contiguous()
    with on_side_stream(odds, bias, weight) if aside else contextlib.nullcontext():
        return gpu_mean_field.launch(odds, bias, weight, steps, tf32_allowed())


@mean_field.register_fake
def _(odds: Tensor, bias: Tensor, weight: Tensor, steps: int, aside: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    means = torch.empty_like(odds, memory_format=torch.contiguous_format)
    return odds.new_empty(odds.shape[:2]), means, torch.empty_like(means)
