"""The noise of the gradient in the logits of q, as training meets it: Fig. 2c."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from softspin.model import DiscreteVAE


class GradientNoise(NamedTuple):
    """Variances of g = d bound(x) / d logit, of one image's bound and one bit; nats squared."""

    variance: Tensor
    """Over the noise alone, at fixed image and parameters; mean over images and bits, `(R,)`."""
    error: Tensor
    """Its standard error over images, `(R,)`."""
    groups: Tensor
    """The variance in each group of bits, `(R, G)`."""
    total: Tensor
    """Of all g about their common mean: over noise, images and bits, `(R,)`."""


def gradient_noise(
    model: DiscreteVAE,
    x: Tensor,
    uniforms: Callable[[int], Tensor],
    draws: int,
    *,
    kl_weight: Tensor,
) -> GradientNoise:
    """The noise of g over `draws` draws `uniforms(i)` `(R, 2, 1, batch, D)`, for images `(R, batch, pixels)`.

    The bound is that of training with K = 1: the KL at its warm-up weight, batch norm as the model's mode says. g is
    the whole derivative: of an early group it includes the way through the later groups' nets. With batch statistics
    an image's logit also moves the bounds of its neighbours; that is in it, as it is in training.
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
            if number == 0:  # a point to measure from, so that no digits cancel
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
    """What the nets give while this is open, in order: the logits, as parts of the graph."""
    kept: list[Tensor] = []

    def keep(net: nn.Module, inputs: Any, out: Tensor) -> None:
        kept.append(out)

    hooks = [net.register_forward_hook(keep) for net in nets]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()
