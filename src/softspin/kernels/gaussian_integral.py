"""Exponents of a Gaussian-integral relaxation with the products of :mod:`softspin.kernels.halves`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softspin.kernels import hidden
from softspin.kernels.fields import coupling_fields
from softspin.kernels.halves import halves, padded, padded_matrix
from softspin.numerics import softplus


def exponents(zeta: Tensor, weight: Tensor, bias: Tensor, beta: Tensor) -> Tensor:
    """Compute the terms of log p(zeta) of an RBM that depend on zeta.

        sum_i softplus((1 - 2 v_i) u_i) + v_i f_i - (zeta_i (f_i - a_i) + beta (zeta_i - v_i)^2) / 2,

    with v = [zeta > 1/2], f = a + W zeta and u = f + beta (zeta - 1/2). With s = sigmoid(u) = E[z|zeta], the derivative
    in f, at a fixed zeta and zeta W zeta, is s, and that in zeta is (W + beta I) (s - zeta).

    Args:
        zeta: Relaxed bits, `(R, ..., n + m)`, float32 on a GPU.
        weight: Couplings between the sides, `(R, n, m)`.
        bias: Biases a, in a shape that broadcasts to that of zeta.
        beta: beta, in a shape that broadcasts to that of zeta.

    Returns:
        The sums, `(R, ...)`.
    """
    rows = zeta.reshape(len(weight), -1, zeta.shape[-1])
    if hidden.is_fused(rows):
        out: Tensor = _Exponents.apply(zeta, weight, bias, beta)
        return out
    return _sum_of_terms(zeta, coupling_fields(rows, weight).reshape(zeta.shape), bias, beta)


def _sum_of_terms(zeta: Tensor, coupled: Tensor, bias: Tensor, beta: Tensor) -> Tensor:
    """The sum for given W zeta."""
    vertex = (zeta > 0.5).to(zeta.dtype)
    field = bias + coupled
    other_side = softplus((1 - 2 * vertex) * (field + beta * (zeta - 0.5)))
    return (other_side - 0.5 * (zeta * coupled + beta * (zeta - vertex).square()) + vertex * field).sum(-1)


class _Exponents(torch.autograd.Function):
    """The gradient of each row is bounded by that of its sum, so no pass over all units has to find the largest."""

    @staticmethod
    def forward(ctx: Any, zeta: Tensor, weight: Tensor, bias: Tensor, beta: Tensor) -> Tensor:
        replicas, n, m = weight.shape
        left, right = _sides(zeta, replicas, n)
        forth, back = halves(padded_matrix(weight)), halves(padded_matrix(weight.mT))
        to_left, to_right = hidden.product(right, back)[..., :n], hidden.product(left, forth)[..., :m]
        coupled = torch.cat([to_left, to_right], dim=-1).reshape(zeta.shape)
        ctx.save_for_backward(zeta, coupled, bias, beta, *left, *right, *forth, *back)
        ctx.sizes = replicas, n, m
        return _sum_of_terms(zeta, coupled, bias, beta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        zeta, coupled, bias, beta, *saved = ctx.saved_tensors
        left, right, forth, back = (saved[i : i + 2] for i in range(0, 8, 2))
        replicas, n, m = ctx.sizes
        mean = torch.sigmoid(bias + coupled + beta * (zeta - 0.5))
        bound = grad.abs().reshape(replicas, -1).amax(1).clamp_min(1e-30)
        share = (grad.reshape(replicas, -1) / bound[:, None]).reshape(grad.shape)[..., None]
        to_left, to_right = _sides(share * (mean - 0.5 * zeta), replicas, n)  # at most 1 + abs(zeta) / 2
        from_right, one = hidden.product_gradients(to_left, bound, right, back, ctx.needs_input_grad[1])
        from_left, two = hidden.product_gradients(to_right, bound, left, forth, ctx.needs_input_grad[1])
        grad = grad[..., None]
        coupled_back = torch.cat([from_left[..., :n], from_right[..., :m]], dim=-1).reshape(zeta.shape)
        to_zeta = coupled_back + grad * (beta * (mean - zeta) - 0.5 * coupled)
        to_beta = None
        if ctx.needs_input_grad[3]:
            vertex = (zeta > 0.5).to(zeta.dtype)
            each = (mean - vertex) * (zeta - 0.5) - 0.5 * (zeta - vertex).square()
            to_beta = (grad * each).sum_to_size(beta.shape)
        return (
            to_zeta,
            None if one is None or two is None else (one.mT + two)[:, :n, :m],
            (grad * mean).sum_to_size(bias.shape) if ctx.needs_input_grad[2] else None,
            to_beta,
        )


def _sides(x: Tensor, replicas: int, n: int) -> tuple[list[Tensor], list[Tensor]]:
    """Halves of the first n units and of the others, `(R, rows, n)` and `(R, rows, m)`, padded."""
    rows = x.reshape(replicas, -1, x.shape[-1])
    return halves(padded(rows[..., :n])), halves(padded(rows[..., n:]))
