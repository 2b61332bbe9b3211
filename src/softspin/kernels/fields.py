"""Products of states with the couplings of an RBM, for the rows of a training step on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softspin.kernels import hidden
from softspin.kernels.matmul import matmul_pair, product


def couple(states: Tensor, weight: Tensor) -> Tensor:
    """Compute states `(R, rows, n)` @ weight `(R, n, m)` by the fastest kernel for this number of rows.

    With many rows on a GPU, both must be in the range of float16, up to 65504.

    Args:
        states: States or means of units, `(R, rows, n)`.
        weight: Couplings, `(R, n, m)`.

    Returns:
        Fields on the other units, `(R, rows, m)`.
    """
    return hidden.linear(states, weight) if hidden.is_fused(states) else product(states, weight)


def coupling_fields(z: Tensor, weight: Tensor) -> Tensor:
    """Compute the fields W z of all units of RBMs, without the biases, with the kernels of :func:`couple`.

    Args:
        z: States, `(R, rows, n + m)`, float32 on a GPU.
        weight: Couplings between the sides, `(R, n, m)`.

    Returns:
        Fields, `(R, rows, n + m)`.
    """
    n = weight.shape[1]
    if hidden.is_fused(z):
        return torch.cat([hidden.linear(z[..., n:], weight.mT), hidden.linear(z[..., :n], weight)], dim=-1)
    return _Fields.apply(z, weight)


class _Fields(torch.autograd.Function):
    """Both sides in one launch: one for each would be too small to fill a GPU."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(z, weight)
        n = weight.shape[1]
        return torch.cat(matmul_pair(z[..., n:], weight.mT, z[..., :n], weight), dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        z, weight = ctx.saved_tensors
        n = weight.shape[1]
        left, right = grad[..., :n], grad[..., n:]
        to_z = torch.cat(matmul_pair(right, weight.mT, left, weight), dim=-1)
        one, other = matmul_pair(z[..., :n].mT, right, left.mT, z[..., n:])
        return to_z, one + other
