"""Variance of the gradient with respect to the logits of q during training: Fig. 2c of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from softspin.model import DiscreteVAE


class GradientNoise(NamedTuple):
    """Variances of g = d bound(x) / d logit, for the bound of one image and one bit; in squared nats."""

    variance: Tensor
    """Variance over the noise, at fixed image and parameters; mean over images and bits, `(R,)`."""
    error: Tensor
    """Its standard error over images, `(R,)`."""
    groups: Tensor
    """The variance in each group of bits, `(R, G)`."""
    total: Tensor
    """Variance of g over noise, images and bits, `(R,)`."""


def gradient_noise(
    model: DiscreteVAE,
    x: Tensor,
    uniforms: Callable[[int], Tensor],
    draws: int,
    *,
    kl_weight: Tensor,
) -> GradientNoise:
    """Measure the variance of g.

    The bound is that of training with K = 1: the KL has its warm-up weight, and batch norm depends on the mode of the
    model. g is the total derivative: for an early group it includes the path through the networks of later groups. With
    batch statistics, the logit of an image also changes the bounds of other images; g includes this, as in training.

    Args:
        model: The model.
        x: Images `(R, batch, pixels)`.
        uniforms: Noise of draw i, `(R, 2, 1, batch, D)`.
        draws: Number of draws.
        kl_weight: Weight of the KL.

    Returns:
        The variances.
    """
    count = x.shape[1]
    prior = model.prior(torch.zeros(model.replicas, device=x.device), validate=False)  # log Z is a constant
    first = mean = squares = torch.zeros(())
    with _outputs(model.encoder) as kept:
        for number in range(draws):
            kept.clear()
            terms = model.method.objective(model, x, uniforms(number), prior, kl_weight)
            each = torch.autograd.grad(terms.bound.sum() * count, kept)
            gradient = torch.cat([g[:, 0, :, : model.bits_per_group] for g in each], dim=-1).to(torch.float64)
            if number == 0:  # subtract the first gradient, to avoid cancellation
                first, mean, squares = gradient, torch.zeros_like(gradient), torch.zeros_like(gradient)
            mean = mean + (gradient - first) / draws
            squares = squares + (gradient - first).square() / draws
    variance = (squares - mean.square()) * (draws / (draws - 1))
    whole = mean + first
    second = squares + 2 * first * mean + first.square()
    return GradientNoise(
        variance=variance.mean((1, 2)),
        error=variance.mean(2).std(1) / count**0.5,
        groups=variance.unflatten(2, (-1, model.bits_per_group)).mean((1, 3)),
        total=second.mean((1, 2)) - whole.mean((1, 2)).square(),
    )


@contextmanager
def _outputs(nets: nn.ModuleList) -> Iterator[list[Tensor]]:
    """Collect the outputs of the networks, in order: the logits, with their autograd graph."""
    kept: list[Tensor] = []

    def keep(net: nn.Module, inputs: Any, out: Tensor) -> None:
        kept.append(out)

    hooks = [net.register_forward_hook(keep) for net in nets]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()
