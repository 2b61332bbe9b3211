"""Images with missing pixels: Markov chains over p(x_missing, z | x_observed).

A step has two parts, and both leave this distribution invariant.

1. z given all pixels x. K candidates z_1 .. z_K from q(z|x), and the present bits z_0, compete: z_k is chosen with a
   probability proportional to p(x, z_k) / q(z_k|x). With one candidate this is Barker's acceptance rule; with
   infinitely many it is an exact draw from p(z|x). log Z cancels.
2. x_missing given z. Pixels are independent given z, so this is an exact draw from the likelihood.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.conditions import Given
from softspin.distributions import Boltzmann
from softspin.model import DiscreteVAE

NUMBERS = 1 << 22
"""Numbers of one tensor of pixels or bits at a time, which bounds the memory."""


def fill_in(
    net: DiscreteVAE,
    x: Tensor,
    missing: Tensor,
    replica: int,
    steps: int,
    candidates: int,
    generator: torch.Generator,
    condition: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw the missing pixels of images.

    Args:
        net: Networks and prior, in evaluation mode.
        x: Images, `(N, pixels)`; values of missing pixels are ignored.
        missing: True where a pixel is missing, `(N, pixels)`.
        replica: Which replica.
        steps: Steps of each chain.
        candidates: Candidates from the encoder in each step.
        generator: Source of randomness, on the device of the images.
        condition: Encoded conditions, `(N, C)`, of a conditional model.

    Returns:
        Images with drawn pixels, and images with the means of these pixels given the last bits, `(N, pixels)` each.
    """
    widest = max(x.shape[1], net.units) * (candidates + 1) * net.replicas
    parts, size = [], max(1, NUMBERS // widest)
    given = [None] * len(x.split(size)) if condition is None else condition.split(size)
    for rows, gaps, own in zip(x.split(size), missing.split(size), given, strict=True):
        model = net.given(None if own is None else own.expand(net.replicas, -1, -1))
        prior = model.prior(validate=False)
        # Missing pixels start at the mean of the training data, which is 0 at the input of the encoder.
        start = torch.where(gaps, net.mean, rows).expand(net.replicas, *rows.shape)
        z, _ = model.sample_posterior(start, _uniforms(net, 1, start, generator))
        known, gap = rows.expand_as(start), gaps.expand_as(start)
        filled = draw_pixels(net, known, gap, z, generator, model)
        for _ in range(steps):
            z = draw_bits(net, prior, filled, z, candidates, generator, model)
            filled = draw_pixels(net, known, gap, z, generator, model)
        means = torch.where(gap, net.likelihood.mean(model.decode(z))[:, 0], known)
        parts.append((filled[replica], means[replica]))
    return torch.cat([drawn for drawn, _ in parts]), torch.cat([mean for _, mean in parts])


def draw_bits(
    net: DiscreteVAE,
    prior: Boltzmann,
    x: Tensor,
    z: Tensor,
    candidates: int,
    generator: torch.Generator,
    given: DiscreteVAE | Given | None = None,
) -> Tensor:
    """Part 1 of a step: new bits given all pixels, by a choice among candidates and the present bits.

    Args:
        net: Networks and prior.
        prior: The prior; its log Z is not used.
        x: Images, `(R, N, pixels)`.
        z: Present bits, `(R, 1, N, D)`.
        candidates: Number of candidates K.
        generator: Source of randomness.
        given: The networks with the conditions of the images; by default those of an unconditional model.

    Returns:
        New bits, `(R, 1, N, D)`.
    """
    model = net if given is None else given
    proposed, log_q = model.sample_posterior(x, _uniforms(net, candidates, x, generator))
    every = torch.cat([z, proposed], dim=1)
    log_q = torch.cat([model.posterior_log_prob(x, z), log_q.expand(-1, candidates, -1)], dim=1)
    log_joint = model.reconstruction(x, every).double() - prior.energy(every).double()
    chances = torch.softmax(log_joint - log_q.double(), dim=1)
    u = torch.rand(chances[:, :1].shape, dtype=chances.dtype, device=chances.device, generator=generator)
    chosen = (chances.cumsum(1) < u).sum(1, keepdim=True).clamp(max=candidates)
    return every.gather(1, chosen[..., None].expand(-1, -1, -1, every.shape[-1]))


def draw_pixels(
    net: DiscreteVAE,
    x: Tensor,
    missing: Tensor,
    z: Tensor,
    generator: torch.Generator,
    given: DiscreteVAE | Given | None = None,
) -> Tensor:
    """Part 2 of a step: missing pixels given the bits.

    Args:
        net: Networks and prior.
        x: Images with the observed pixels, `(R, N, pixels)`.
        missing: True where a pixel is missing, of the same shape.
        z: Bits, `(R, 1, N, D)`.
        generator: Source of randomness.
        given: The networks with the conditions of the images; by default those of an unconditional model.

    Returns:
        Images, `(R, N, pixels)`.
    """
    parameters = (net if given is None else given).decode(z)
    return torch.where(missing, net.likelihood.sample(parameters, generator)[:, 0], x)


def _uniforms(net: DiscreteVAE, samples: int, x: Tensor, generator: torch.Generator) -> Tensor:
    shape = (net.replicas, samples, x.shape[1], net.units)
    return torch.rand(shape, dtype=x.dtype, device=x.device, generator=generator)
