"""Fields of RBMs at two sets of states, with the products of both sides in one launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softspin.kernels.matmul import matmul_pair


def coupling_fields(z: Tensor, fixed: Tensor, weight: Tensor) -> Tensor:
    """Compute W s for the rows s of z and of `fixed`, as the kernels of :mod:`softspin.kernels.matmul` do it.

    A call for each set and each side would be four launches, each too small to fill a GPU.

    Args:
        z: States, `(R, rows, n + m)`.
        fixed: States that get no gradient, of the same shape.
        weight: Couplings between the sides, `(R, n, m)`.

    Returns:
        Fields without the bias, `(R, 2, rows, n + m)`.
    """
    return _Fields.apply(z, fixed, weight)


class _Fields(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, fixed: Tensor, weight: Tensor) -> Tensor:
        states = torch.cat([z, fixed], dim=1)
        ctx.save_for_backward(states, weight)
        n = weight.shape[1]
        fields = torch.cat(matmul_pair(states[..., n:], weight.mT, states[..., :n], weight), dim=-1)
        return fields.unflatten(1, (2, z.shape[1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        states, weight = ctx.saved_tensors
        n = weight.shape[1]
        left, right = grad[:, 0, :, :n], grad[:, 0, :, n:]
        to_z = torch.cat(matmul_pair(right, weight.mT, left, weight), dim=-1)
        left, right = grad.flatten(1, 2).split([n, weight.shape[2]], dim=-1)
        one, other = matmul_pair(states[..., :n].mT, right, left.mT, states[..., n:])
        return to_z, None, one + other
