"""Gradients of the importance-weighted bound without the score of the posterior: STL (K = 1) and DReG (K > 1).

With a the weight of the KL, w_k = p(x|zeta_k) (p(zeta_k) / q(zeta_k|x))^a and v = softmax(log w) over the K samples,

    decoder, prior:  sum_k v_k d log w_k                                   as for the plain bound
    encoder:         sum_k c_k (d log w_k / d zeta_k) d zeta_k,            c_k = (1 - a) v_k + a v_k^2

where v and c are constants. The mean is that of the plain gradient, because for any differentiable f
E[f d log q(zeta)] = E[(df / d zeta) d zeta], and d v_k / d zeta_k = (v_k - v_k^2) d log w_k / d zeta_k. With K = 1,
c = 1. d log w_k / d zeta_k is the derivative of a function of the soft bits alone: the *parameters* of the encoder are
constants in log q, but the logits of a group still depend on the soft bits of the groups before it.

Batch norm couples the samples of a batch. Through its statistics, zeta_k has an effect on log w_j of all other samples,
small for each, but not small for all together. For this effect the weights are those of the plain gradient, v_j: as
v_k hardly depends on the other images, there is no score to be replaced. So the backward pass has two gradients, the
total one and the `own` one of a sample with the statistics held fixed, and the encoder gets

    total(v) - own(v - c).

What is left is an error of the order of 1 / batch. (To scale the total gradient by c / v would be wrong by as much as
the gradient itself.)

References:
    G. Roeder, Y. Wu and D. Duvenaud, 2017, Sticking the Landing: Simple, Lower-Variance Gradient Estimators for
    Variational Inference, arXiv:1703.09194.
    G. Tucker, D. Lawson, S. Gu and C. J. Maddison, 2018, Doubly Reparameterized Gradient Estimators for Monte Carlo
    Objectives, arXiv:1810.04152.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softspin.methods.base import LatentModel
from softspin.methods.smoothed import SmoothedMethod
from softspin.numerics import constant


class Path(NamedTuple):
    """Soft bits on the way of one gradient, the total or the own one; values are equal on both."""

    zeta: Tensor
    """Relaxed bits, `(R, K, batch, D)`."""
    log_odds: Tensor
    """log r1 - log r0, `(R, K, batch, D)`."""
    outputs: list[Tensor]
    """Outputs of the encoder nets as functions of the soft bits alone, `(R, 1 or K, batch, outputs)` for each group."""


def draw_paths(method: SmoothedMethod, model: LatentModel, x: Tensor, uniforms: Tensor) -> list[Path]:
    """Draw soft bits from the posterior.

    The nets of all groups but the first run once for the gradient of their parameters, and once for each gradient of
    the soft bits before them. The forward passes are equal, so that a compiler can join them.

    Args:
        method: Method with soft bits.
        model: Nets, likelihood and sizes.
        x: Data, `(R, batch, F)`.
        uniforms: Uniforms in (0, 1), `(R, 2, K, batch, D)`.

    Returns:
        The total path; for K > 1 also the own path.
    """
    ways = range(1 if uniforms.shape[2] == 1 else 2)
    zetas: list[list[Tensor]] = [[] for _ in ways]
    odds: list[list[Tensor]] = [[] for _ in ways]
    outputs: list[list[Tensor]] = [[] for _ in ways]

    def draw(group: int, out: Tensor, noise: Tensor) -> Tensor:
        first = method.draw_group(model, group, out, noise).soft_bits if group == 0 else None
        for way in ways:
            if first is None:
                fixed = model.detached_outputs(x, torch.cat(zetas[way], dim=-1), group, own_path=way > 0)
                bits = method.draw_group(model, group, _JoinGradients.apply(out, fixed), noise).soft_bits
            else:  # no soft bits before it: both gradients add up at its logits
                fixed, bits = constant(out), first
            zetas[way].append(bits.zeta)
            odds[way].append(bits.log_odds)
            outputs[way].append(fixed)
        return constant(zetas[0][-1])

    model.encode_groups(x, uniforms, draw)
    return [Path(torch.cat(zetas[way], -1), torch.cat(odds[way], -1), outputs[way]) for way in ways]


class _JoinGradients(torch.autograd.Function):
    """The first of two equal tensors; both get its gradient."""

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> Tensor:
        return one.view_as(one)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad


class _SplitGradients(torch.autograd.Function):
    """The first half of tensors whose second half has equal values: total and own path.

    The gradient of the own path has factors that are known only after the forward pass. They come back as the gradient
    of a further output, zeros that the loss multiplies by them. So there is one graph, which torch.compile traces; a
    hook would have to be called from Python.
    """

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        total = tensors[: len(tensors) // 2]
        zeros = total[0].new_zeros(2, *total[0].shape[:-1])
        return (*(one.view_as(one) for one in total), zeros)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        *total, (scaled, unit) = gradients
        # The second row is the gradient of the loss itself: a loss times 2 has the same factors.
        factor = torch.where(unit == 0, 0.0, scaled / torch.where(unit == 0, 1.0, unit))[..., None]
        return (*total, *(-factor * one for one in total))


def join_paths(paths: Sequence[Sequence[Tensor]]) -> tuple[list[Tensor], Tensor | None]:
    """Join paths, from here on up to the log weights: what follows must treat samples one by one.

    Args:
        paths: Tensors `(R, K, batch, ...)` of the total path, and for K > 1 the same of the own path.

    Returns:
        The tensors, and zeros `(2, R, K, batch)` for :func:`pathwise_loss`; None for K = 1.
    """
    if len(paths) == 1:
        return list(paths[0]), None
    *joined, zeros = _SplitGradients.apply(*paths[0], *paths[1])
    return joined, zeros


def pathwise_loss(log_weights: Tensor, kl_weight: Tensor, zeros: Tensor | None) -> Tensor:
    """Compute a loss with the gradient above from log weights of joined paths.

    Args:
        log_weights: log w, `(R, K, batch)`.
        kl_weight: Weight a of the KL, a scalar.
        zeros: Second result of :func:`join_paths`.

    Returns:
        The loss of each replica, `(R,)`. Its value has no meaning.
    """
    weights = torch.softmax(log_weights.detach(), dim=-2)
    loss = -(weights * log_weights).sum(-2).mean(-1)
    if zeros is None:
        return loss
    factors = kl_weight * (1 - weights)  # (v - c) / v
    return loss + (zeros * torch.stack([factors, torch.ones_like(factors)])).sum((0, -2, -1))
