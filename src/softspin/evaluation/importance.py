"""Whether importance sampling can be trusted: the tail of its weights, and states that the posterior never proposes.

The weights alone show a proposal that is too narrow, by their tail: the shape k of a generalized Pareto distribution
(PSIS). They cannot show a mode of p(z|x) that q(z|x) never visits: then all weights are nearly equal, and wrong. States
from elsewhere can: log p(x) >= log of the sum of p(x, z) over any distinct z.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from softspin.data.mapped import Table
from softspin.distributions import Boltzmann, RowBoltzmann
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import conditioned, evaluating
from softspin.model import DiscreteVAE
from softspin.numerics import all_states
from softspin.random import KeyDomain
from softspin.samplers.bounds import distinct, precise
from softspin.samplers.primitives import replica_rng_states, split_replicas, sweep

PARETO_K = 0.7
"""Largest shape of the tail at which a mean of weights is reliable (Vehtari et al. 2024)."""
ROUNDING = 1e-9
"""Relative differences of weights up to this are no tail."""
STATES = 1024
"""Largest number of codes of images whose states are tried for all other images."""
NUMBERS = 1 << 22
"""Numbers of one tensor at a time, where every image is paired with every state."""
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
def codes(
    model: DiscreteVAE, images: Table, seed: int = 0, count: int = STATES, condition: Tensor | None = None
) -> Tensor:
    """Encode some of the images, evenly spaced: one draw of q(z|x) each.

    Args:
        model: Trained model.
        images: Images, `(N, pixels)`.
        seed: Seed of the random numbers.
        count: Largest number of images.
        condition: Encoded conditions, `(N, C)`, of a conditional model.

    Returns:
        Bits, `(R, at most count, D)`.
    """
    step = max(1, math.ceil(len(images) / count))
    some = images[::step].to(model.mean)
    given = None if condition is None else condition[::step]
    keys = replica_keys(seed, model.replicas, model.mean.device)
    index = torch.arange(len(some), device=keys.device)
    noise = uniforms(keys, index, index[:1], model.units)
    with evaluating(model):
        z, _ = conditioned(model, given).sample_posterior(some.expand(model.replicas, *some.shape), noise)
    return z[:, 0]


@torch.no_grad()
def likely_states(
    model: DiscreteVAE, images: Sequence[Table], seed: int = 0, conditions: Sequence[Tensor] | None = None
) -> Tensor:
    """States that images are encoded as, and states of the prior's chains that start there.

    Args:
        model: Trained model.
        images: Sets of images, `(N, pixels)` each.
        seed: Seed of the random numbers.
        conditions: Encoded conditions of each set, `(N, C)`, of a conditional model. There are then no chains.

    Returns:
        Bits, `(R, M, D)`, with repetitions.
    """
    given = [None] * len(images) if conditions is None else conditions
    count = STATES // len(images)
    found = torch.cat([codes(model, one, seed, count, c) for one, c in zip(images, given, strict=True)], dim=1)
    if model.condition is not None:
        return found
    moved = []
    for boltzmann, z in zip(split_replicas(model.prior(validate=False)), found, strict=True):
        # One replica after another, so that none depends on the others.
        moved.append(sweep(boltzmann, z, replica_rng_states(boltzmann, seed, KeyDomain.SEARCH), SWEEPS)[0])
    return torch.cat([found, torch.stack(moved)], dim=1)


@torch.no_grad()
def probable_states(
    model: DiscreteVAE, images: Table, states: Tensor, samples: int, seed: int = 0, condition: Tensor | None = None
) -> Tensor:
    """States z with a large p(x, z) for some of the images, whatever q(z|x) proposes.

    All states if there are at most 4,096; of a conditional model, whose decoder runs for each pair of an image and a
    state, if there are at most as many as samples, or 1,024. Otherwise, for some images, the best of the given and of
    random states is improved by single flips until none raises p(x, z).

    Args:
        model: Trained model.
        images: Images, `(N, pixels)`.
        states: States to start from, `(R, M, D)`.
        samples: Number of importance samples per image, which the work is a fraction of.
        seed: Seed of the random numbers.
        condition: Encoded conditions, `(N, C)`, of a conditional model.

    Returns:
        Bits, `(R, M', D)`, the given ones included, with repetitions.
    """
    if model.units <= LISTED_UNITS and (condition is None or 1 << model.units <= max(samples, STATES)):
        every = next(iter(all_states(model.units, 1 << model.units))).to(model.mean)
        return every.expand(model.replicas, *every.shape)
    least, most = ASCENT_IMAGES
    count = round(ASCENT_SHARE * len(images) * samples / (model.units * ASCENT_STEPS))
    step = math.ceil(len(images) / min(max(count, least), most))
    x, given = images[::step].to(model.mean), None if condition is None else condition[::step]
    keys = replica_keys(seed, model.replicas, model.mean.device)
    index = torch.arange(STATES // 4, device=keys.device)
    random = (uniforms(keys, index, index[1:2], model.units)[:, 0] < 0.5).to(model.mean)
    with evaluating(model):
        found = [_ascended(model, x, given, _best_of(model, x, given, one)) for one in (states, random)]
    return torch.cat([states, *found], dim=1)


def _best_of(model: DiscreteVAE, x: Tensor, given: Tensor | None, states: Tensor) -> Tensor:
    """For each image the state of these with the largest p(x, z), `(R, batch, D)`."""
    best, at = torch.full((model.replicas, len(x)), -torch.inf, dtype=x.dtype, device=x.device), None
    boltzmann = model.prior(validate=False)
    for z in states.split(256, 1):
        if given is None:
            log_joint = model.likelihood.log_prob_pairs(x, model.decode(z[:, None])[:, 0])
            log_joint = log_joint - boltzmann.energy(z)[:, None]
        else:
            log_joint = torch.cat([one for one, _ in _pairs_given(model, x, given, z)], dim=1).mT.to(x)
        value, place = log_joint.max(-1)
        new = z.gather(1, place[..., None].expand(*place.shape, z.shape[-1]))
        at = new if at is None else torch.where((value > best)[..., None], new, at)
        best = torch.maximum(best, value)
    assert at is not None
    return at


def _ascended(model: DiscreteVAE, x: Tensor, given: Tensor | None, z: Tensor) -> Tensor:
    """Flip the bit that raises p(x, z) most, for each image, until none does or the steps end: `(R, batch, D)`."""
    data = x.expand(model.replicas, *x.shape)
    net = conditioned(model, given)
    prior = net.prior(validate=False)

    def log_joint(z: Tensor) -> Tensor:
        return net.log_likelihood(data, net.decode(z)) - prior.energy(z)

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


def log_joint_of_states(
    model: DiscreteVAE, boltzmann: Boltzmann, x: Tensor, states: Tensor, condition: Tensor | None = None
) -> Tensor:
    """log of the sum of p(x|z) e^(-E(z)) over distinct states: log p(x) + log Z is at least this.

    Args:
        model: Trained model, in evaluation mode.
        boltzmann: Its prior.
        x: Images, `(batch, pixels)`.
        states: States, `(R, M, D)`. Repeated ones count once.
        condition: Encoded conditions, `(batch, C)`, of a conditional model.

    Returns:
        The bound, `(R, batch)`, float64.
    """
    total = torch.full((model.replicas, len(x)), -torch.inf, dtype=torch.float64, device=x.device)
    if condition is not None:
        return log_joint_given(model, x, condition, states, distinct(states))
    own = -boltzmann.energy(states).to(torch.float64)
    own = own.masked_fill(~distinct(states), -torch.inf)
    for z, weight in zip(states.split(256, 1), own.split(256, 1), strict=True):
        parameters = model.decode(z[:, None])[:, 0].to(torch.float64)
        log_joint = model.likelihood.log_prob_pairs(x.to(torch.float64), parameters) + weight[:, None]
        total = torch.logaddexp(total, log_joint.logsumexp(-1))
    return total


def log_joint_given(
    model: DiscreteVAE, x: Tensor, condition: Tensor, states: Tensor, counts: Tensor | None = None
) -> Tensor:
    """log of the sum of p(x | z, c) e^(-E(z | c)) over states, of a conditional model.

    Args:
        model: Conditional model, in evaluation mode.
        x: Images, `(batch, pixels)`.
        condition: Encoded conditions, `(batch, C)`.
        states: States, `(R, M, D)`.
        counts: Which states count, `(R, M)`; by default all.

    Returns:
        The log of the sum, `(R, batch)`, float64.
    """
    total = torch.full((model.replicas, len(x)), -torch.inf, dtype=torch.float64, device=x.device)
    counts = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if counts is None else counts
    for log_joint, which in _pairs_given(model, x, condition, states):
        used = counts[:, which, None]
        total = torch.logaddexp(total, log_joint.masked_fill(~used, -torch.inf).logsumexp(1))
    return total


def _pairs_given(model: DiscreteVAE, x: Tensor, condition: Tensor, states: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """log p(x | z, c) - E(z | c) of every pair of a state and an image, `(R, some, batch)`, and which states."""
    given = model.given(condition.to(model.mean).expand(model.replicas, -1, -1))
    rows = given.prior(validate=False)
    assert rows.row_fields is not None
    prior = RowBoltzmann(precise(rows.shared), rows.row_fields.double())
    data = x.to(model.mean).expand(model.replicas, -1, -1)
    size = max(1, NUMBERS // (model.replicas * len(x) * max(model.likelihood.outputs, model.units)))
    for start in range(0, states.shape[1], size):
        which = slice(start, start + size)
        z = states[:, which, None].to(model.mean).expand(-1, -1, len(x), -1)
        yield given.log_likelihood(data, given.decode(z)).double() - prior.energy(z.double()), which
