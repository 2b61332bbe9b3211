"""Whether importance sampling can be trusted: the tail of its weights, and states that the posterior never proposes.

The weights alone show a proposal that is too narrow, by their tail: the shape k of a generalized Pareto distribution
(PSIS). They cannot show a mode of p(z|x) that q(z|x) never visits: then all weights are nearly equal, and wrong. States
from elsewhere can: log p(x) >= log of the sum of p(x, z) over any distinct z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.data.mapped import Table
from softspin.distributions import Boltzmann
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE
from softspin.numerics import all_states
from softspin.random import KeyDomain
from softspin.samplers.bounds import distinct
from softspin.samplers.primitives import replica_rng_states, split_replicas, sweep

PARETO_K = 0.7
"""Largest shape of the tail at which a mean of weights is reliable (Vehtari et al. 2024)."""
ROUNDING = 1e-9
"""Relative differences of weights up to this are no tail."""
STATES = 1024
"""Largest number of codes of images whose states are tried for all other images."""
SWEEPS = 20
"""Gibbs sweeps of the prior from the codes, for states that no image is encoded as."""

LISTED_UNITS = 12
"""Largest number of bits of which all states are tried."""
ASCENT_IMAGES = 8, 64
"""Smallest and largest number of images whose probability is raised by flips of bits."""
ASCENT_STEPS = 24
"""Largest number of flips; most ascents end earlier."""
ASCENT_SHARE = 0.1
"""Decoded states of the ascents, relative to those of the importance samples."""


def tail_length(samples: int) -> int:
    """Number of weights that make the tail: the smaller of a fifth and 3 sqrt(samples), as in PSIS."""
    return math.ceil(min(0.2 * samples, 3 * math.sqrt(samples)))


def pareto_k(tail: Tensor) -> Tensor:
    """Shape of the generalized Pareto distribution of the largest importance weights.

    Means of weights with k below 0.5 have a finite variance. Above 0.7 they are unreliable for any feasible number of
    samples. The estimate is that of Zhang and Stephens (2009) with the weak prior of PSIS.

    Args:
        tail: The largest log weights and, as a threshold, the one before them, `(..., M + 1)`, in any order.

    Returns:
        k, `(...,)`; 0 if the weights are equal, NaN for fewer than 5.

    References:
        A. Vehtari, D. Simpson, A. Gelman, Y. Yao and J. Gabry, 2024, Pareto Smoothed Importance Sampling, JMLR 25,
        arXiv:1507.02646.
        J. Zhang and M. A. Stephens, 2009, A New and Efficient Estimation Method for the Generalized Pareto
        Distribution, Technometrics 51.
    """
    count = tail.shape[-1] - 1
    if count < 5:
        return torch.full(tail.shape[:-1], torch.nan, dtype=torch.float64, device=tail.device)
    ordered = tail.to(torch.float64).sort(-1).values
    weights = torch.exp(ordered - ordered[..., -1:])
    x = weights[..., 1:] - weights[..., :1]
    largest = x[..., -1]
    equal = largest <= ROUNDING
    quartile = torch.maximum(x[..., int(count / 4 + 0.5) - 1], largest * 1e-12)
    grid = 30 + int(math.sqrt(count))
    steps = 1 - torch.sqrt(grid / (torch.arange(1, grid + 1, dtype=torch.float64, device=tail.device) - 0.5))
    b = steps / (3 * quartile[..., None]) + 1 / largest[..., None]  # infinite or NaN only for equal weights
    shape = torch.log1p(-b[..., None] * x[..., None, :]).mean(-1)
    log_profile = count * (torch.log(-b / shape) - shape - 1)
    mean_b = (torch.softmax(log_profile, -1) * b).sum(-1)
    k = torch.log1p(-mean_b[..., None] * x).mean(-1)
    return torch.where(equal, 0.0, (count * k + 10 * 0.5) / (count + 10))


@torch.no_grad()
def codes(model: DiscreteVAE, images: Table, seed: int = 0, count: int = STATES) -> Tensor:
    """Encode some of the images, evenly spaced: one draw of q(z|x) each.

    Args:
        model: Trained model.
        images: Images, `(N, pixels)`.
        seed: Seed of the random numbers.
        count: Largest number of images.

    Returns:
        Bits, `(R, at most count, D)`.
    """
    some = images[:: max(1, math.ceil(len(images) / count))].to(model.mean)
    keys = replica_keys(seed, model.replicas, model.mean.device)
    index = torch.arange(len(some), device=keys.device)
    noise = uniforms(keys, index, index[:1], model.units)
    with evaluating(model):
        z, _ = model.sample_posterior(some.expand(model.replicas, *some.shape), noise)
    return z[:, 0]


@torch.no_grad()
def likely_states(model: DiscreteVAE, images: Sequence[Table], seed: int = 0) -> Tensor:
    """States that images are encoded as, and states of the prior's chains that start there.

    Args:
        model: Trained model.
        images: Sets of images, `(N, pixels)` each.
        seed: Seed of the random numbers.

    Returns:
        Bits, `(R, M, D)`, with repetitions.
    """
    found = torch.cat([codes(model, one, seed, STATES // len(images)) for one in images], dim=1)
    moved = []
    for boltzmann, z in zip(split_replicas(model.prior(validate=False)), found, strict=True):
        # One replica after another, so that none depends on the others.
        moved.append(sweep(boltzmann, z, replica_rng_states(boltzmann, seed, KeyDomain.SEARCH), SWEEPS)[0])
    return torch.cat([found, torch.stack(moved)], dim=1)


@torch.no_grad()
def probable_states(model: DiscreteVAE, images: Table, states: Tensor, samples: int, seed: int = 0) -> Tensor:
    """States z with a large p(x, z) for some of the images, whatever q(z|x) proposes.

    All states if there are at most 4,096. Otherwise, for some images, the best of the given and of random states is
    improved by single flips until none raises p(x, z).

    Args:
        model: Trained model.
        images: Images, `(N, pixels)`.
        states: States to start from, `(R, M, D)`.
        samples: Number of importance samples per image, which the work is a fraction of.
        seed: Seed of the random numbers.

    Returns:
        Bits, `(R, M', D)`, the given ones included, with repetitions.
    """
    if model.units <= LISTED_UNITS:
        every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean)
        return every.expand(model.replicas, *every.shape)
    least, most = ASCENT_IMAGES
    count = round(ASCENT_SHARE * len(images) * samples / (model.units * ASCENT_STEPS))
    x = images[:: math.ceil(len(images) / min(max(count, least), most))].to(model.mean)
    keys = replica_keys(seed, model.replicas, model.mean.device)
    index = torch.arange(STATES // 4, device=keys.device)
    random = (uniforms(keys, index, index[1:2], model.units)[:, 0] < 0.5).to(model.mean)
    with evaluating(model):
        boltzmann = model.prior(validate=False)
        found = [_ascended(model, boltzmann, x, _best_of(model, boltzmann, x, one)) for one in (states, random)]
    return torch.cat([states, *found], dim=1)


def _best_of(model: DiscreteVAE, boltzmann: Boltzmann, x: Tensor, states: Tensor) -> Tensor:
    """For each image the state of these with the largest p(x, z), `(R, batch, D)`."""
    best, at = torch.full((model.replicas, len(x)), -torch.inf, dtype=x.dtype, device=x.device), None
    for z in states.split(256, 1):
        log_joint = model.likelihood.log_prob_pairs(x, model.decode(z[:, None])[:, 0]) - boltzmann.energy(z)[:, None]
        value, place = log_joint.max(-1)
        new = z.gather(1, place[..., None].expand(*place.shape, z.shape[-1]))
        at = new if at is None else torch.where((value > best)[..., None], new, at)
        best = torch.maximum(best, value)
    assert at is not None
    return at


def _ascended(model: DiscreteVAE, boltzmann: Boltzmann, x: Tensor, z: Tensor) -> Tensor:
    """Flip the bit that raises p(x, z) most, for each image, until none does or the steps end: `(R, batch, D)`."""
    data = x.expand(model.replicas, *x.shape)

    def log_joint(z: Tensor) -> Tensor:
        return model.log_likelihood(data, model.decode(z)) - boltzmann.energy(z)

    best = log_joint(z[:, None])[:, 0]
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)[:, None]
    for _ in range(ASCENT_STEPS):
        flipped = torch.cat([log_joint((z[:, None] - units).abs()) for units in eye.split(32)], dim=1)
        value, unit = flipped.max(1)
        better = value > best
        if not bool(better.any()):
            break
        z = torch.where(better[..., None], (z - eye[unit, 0]).abs(), z)
        best = torch.where(better, value, best)
    return z


def log_joint_of_states(model: DiscreteVAE, boltzmann: Boltzmann, x: Tensor, states: Tensor) -> Tensor:
    """log of the sum of p(x|z) e^(-E(z)) over distinct states: log p(x) + log Z is at least this.

    Args:
        model: Trained model, in evaluation mode.
        boltzmann: Its prior.
        x: Images, `(batch, pixels)`.
        states: States, `(R, M, D)`. Repeated ones count once.

    Returns:
        The bound, `(R, batch)`, float64.
    """
    total = torch.full((model.replicas, len(x)), -torch.inf, dtype=torch.float64, device=x.device)
    own = -boltzmann.energy(states).to(torch.float64)
    own = own.masked_fill(~distinct(states), -torch.inf)
    for z, weight in zip(states.split(256, 1), own.split(256, 1), strict=True):
        parameters = model.decode(z[:, None])[:, 0].to(torch.float64)
        log_joint = model.likelihood.log_prob_pairs(x.to(torch.float64), parameters) + weight[:, None]
        total = torch.logaddexp(total, log_joint.logsumexp(-1))
    return total
