"""Log likelihood of binary pixels whose logits are the outputs of a linear layer, as one operation on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from softspin.kernels.halves import UNIT, gradients, halves, padded, padded_matrix
from softspin.kernels.matmul import latency_bound, ordered_sum, tf32_allowed
from softspin.kernels.support import has_kernels

OFF = -1e4
"""Logit of a pixel that is always 0, whose log likelihood and gradient are 0."""


def is_fused(x: Tensor, hidden: Tensor, weight: Tensor) -> bool:
    """Check whether :func:`log_prob` supports these tensors: float32 on a GPU, of a training step or an evaluation."""
    if hidden.ndim != 4 or x.dtype != hidden.dtype or x.requires_grad:
        return False
    return has_kernels(hidden) if not torch.is_grad_enabled() else latency_bound(hidden.flatten(1, -2), weight)


def log_prob(x: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute log p(x|z) = sum of x l - softplus(l) over the pixels, with logits l = hidden @ weight + bias.

    The logits are not stored. Activations and weights must be in the range of float16, up to 65504.

    Args:
        x: Pixels, `(R, batch, F)`.
        hidden: Activations, `(R, K, batch, hidden)`.
        weight: Weights, `(R, hidden, F)`.
        bias: Bias, `(R, F)`.

    Returns:
        log p(x|z), `(R, K, batch)`.
    """
    rows = hidden.flatten(1, 2)
    if torch.is_grad_enabled():
        out: Tensor = _LogProb.apply(x, rows, weight, bias)
    else:
        out = _log_prob(x, rows, halves(padded_matrix(weight)), bias, differentiable=False)[0]
    return out.view(hidden.shape[:-1])


def _log_prob(
    x: Tensor, hidden: Tensor, weights: list[Tensor], bias: Tensor, differentiable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The log likelihood `(R, rows)`, and the halves of the residual."""
    parts, *residual = forward(halves(padded(hidden)), weights, padded(bias, OFF), padded(x), differentiable)
    return ordered_sum(parts), *residual


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        weights = halves(padded_matrix(weight))
        value, *residual = _log_prob(x, hidden, weights, bias, differentiable=True)
        ctx.save_for_backward(*residual, *weights, hidden)
        ctx.pixels = weight.shape[-1]
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        *saved, hidden = ctx.saved_tensors
        width, pixels = hidden.shape[-1], ctx.pixels
        # Relative to the largest gradient, all are in the range of float16.
        largest = grad.abs().amax(1)[:, None, None].clamp_min(1e-30)
        relative = grad[..., None] / largest
        # The bias is the weight of a hidden unit that is always 1. At least one is added.
        scaled = halves(pad(hidden, (0, UNIT - width % UNIT), value=1.0) * relative)
        grad_hidden, parts = gradients(saved[:2], saved[2:], scaled, grad)
        grad_weight = ordered_sum(parts[:, :, :width, :pixels]) * largest
        grad_bias = ordered_sum(parts[:, :, width, :pixels]) * largest[..., 0]
        return None, grad_hidden[..., :width], grad_weight, grad_bias


@library.custom_op("softspin::bernoulli_forward", mutates_args=())
def forward(
    hidden: list[Tensor], weight: list[Tensor], bias: Tensor, x: Tensor, differentiable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute parts `(n, R, rows)` of the log likelihood, and the halves of x - sigmoid(logits) `(R, rows, F)`.

    hidden `(R, rows, hidden)` and weight `(R, hidden, F)` are halves, bias `(R, F)`, x `(R, batch, F)`. All lengths but
    rows and batch are multiples of UNIT. If no gradient is needed, the halves have no rows.
    """
    from softspin.kernels import gpu_bernoulli

    return gpu_bernoulli.launch_forward(hidden, weight, bias, x, tf32_allowed(), differentiable)


@forward.register_fake
def _(
    hidden: list[Tensor], weight: list[Tensor], bias: Tensor, x: Tensor, differentiable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from softspin.kernels import gpu_halves

    (replicas, rows, _), pixels = hidden[0].shape, x.shape[-1]
    residual = hidden[0].new_empty(replicas, rows if differentiable else 0, pixels)
    return bias.new_empty(gpu_halves.column_tiles(int(pixels)), replicas, rows), residual, torch.empty_like(residual)
