"""A search for states of high probability, independent of annealing: what it finds bounds log Z from below.

Starts: each unit with its strongest neighbors, singular vectors of the couplings, random states of all densities, and
the states that the caller has. From these: ascent by conditional modes of whole blocks, by single flips, and of the
mean field; then perturbed ascents from the best, their neighbors, and Gibbs sweeps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.random import DrawDomain
from softspin.samplers.primitives import replica_uniforms, sweep

ITERATIONS = 30
"""Largest number of sweeps of an ascent; most end after five."""
TOP = 32
"""Number of the best states whose neighborhoods are searched."""


class Found(NamedTuple):
    """States of high probability."""

    z: Tensor
    """All states seen, `(*replicas, M, D)`, with repetitions."""
    top: Tensor
    """The ones of lowest energy, `(*replicas, at most 32, D)`, all different if there are that many."""


def evenly(z: Tensor, count: int) -> Tensor:
    """At most `count` of the states `(*replicas, N, D)`, evenly spaced."""
    return z[..., :: max(1, math.ceil(z.shape[-2] / max(1, count))), :]


def block_ascent(boltzmann: Boltzmann, z: Tensor, iterations: int = ITERATIONS, reverse: bool = False) -> Tensor:
    """Set one block after another to its conditional mode until nothing changes. The energy never rises.

    Args:
        boltzmann: Boltzmann machine.
        z: States, `(*replicas, N, D)`.
        iterations: Largest number of sweeps.
        reverse: Whether the last block is updated first.

    Returns:
        The new states.
    """
    order = range(len(boltzmann.blocks))
    for _ in range(iterations):
        new = z.clone()
        for block in reversed(order) if reverse else order:
            new[..., boltzmann.blocks[block]] = (boltzmann.block_field(block, new) > 0).to(z.dtype)
        if torch.equal(new, z):
            break
        z = new
    return z


def flip_ascent(boltzmann: Boltzmann, z: Tensor, iterations: int) -> Tensor:
    """Flip the unit that lowers the energy most, until none does or the iterations end."""
    for _ in range(iterations):
        gain, unit = ((1 - 2 * z) * boltzmann.field(z)).max(-1, keepdim=True)
        if not bool((gain > 0).any()):
            break
        z = z.scatter(-1, unit, torch.where(gain > 0, 1 - z.gather(-1, unit), z.gather(-1, unit)))
    return z


def mean_field_ascent(boltzmann: Boltzmann, means: Tensor, iterations: int = 10) -> Tensor:
    """Iterate the mean-field equations block by block, and round."""
    for _ in range(iterations):
        means = means.clone()
        for number, block in enumerate(boltzmann.blocks):
            means[..., block] = torch.sigmoid(boltzmann.block_field(number, means))
    return (means > 0.5).to(means.dtype)


def structured_starts(boltzmann: Boltzmann, count: int, rng_state: Tensor) -> Tensor:
    """Units with their 1, 2, 4, ... strongest neighbors on, the signs of dominant eigenvectors of W, all off, all on.

    W is used by products only: a dense matrix of a large RBM would need more memory than its parameters.

    Args:
        boltzmann: Boltzmann machine.
        count: Number of states, about.
        rng_state: Key and counter, `(*replicas, 2)`.

    Returns:
        States, `(*replicas, N, D)`.
    """
    units, replicas = boltzmann.units, boltzmann.batch_shape
    bias = boltzmann.bias.detach().unsqueeze(-2)
    sizes = [1 << k for k in range(units.bit_length())]
    one = evenly(torch.eye(units, dtype=bias.dtype, device=bias.device), max(1, count // len(sizes)))
    one = one.expand(*replicas, *one.shape)
    rows = boltzmann.field(one).detach() - bias
    rank = rows.argsort(-1, descending=True).argsort(-1)
    expanded = [((rank < size) & (rows > 0)).to(bias) + one for size in sizes]
    vectors = replica_uniforms(boltzmann, rng_state, (8, units), DrawDomain.RESAMPLE) - 0.5
    for _ in range(12):
        vectors = boltzmann.field(vectors).detach() - bias
        vectors = vectors / vectors.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
    ends = torch.stack([torch.zeros_like(vectors[..., 0, :]), torch.ones_like(vectors[..., 0, :])], dim=-2)
    return torch.cat([*expanded, (vectors > 0).to(bias), (vectors < 0).to(bias), ends], dim=-2).clamp(max=1)


def random_starts(boltzmann: Boltzmann, count: int, rng_state: Tensor) -> Tensor:
    """Random states, `(*replicas, count, D)`: of densities from 0 to 1, different for the blocks."""
    u = replica_uniforms(boltzmann, rng_state, (count, boltzmann.units), DrawDomain.START)
    density = replica_uniforms(boltzmann, rng_state, (count, len(boltzmann.blocks)), DrawDomain.RESAMPLE)
    level = torch.empty_like(u)
    for number, block in enumerate(boltzmann.blocks):
        level[..., block] = density[..., number, None]
    return (u < level).to(boltzmann.bias.dtype)


def best_states(boltzmann: Boltzmann, z: Tensor, count: int) -> Tensor:
    """The states of lowest energy, without repetitions, `(*replicas, at most count, D)`; the last may repeat."""
    energy = boltzmann.energy(z)
    # Equal energies are taken to be equal states: a copy in the list would cost a start, an omission costs as little.
    ordered, index = energy.sort(-1)
    ordered[..., 1:] = torch.where(ordered[..., 1:] == energy.gather(-1, index)[..., :-1], torch.inf, ordered[..., 1:])
    some = ordered.topk(min(count, z.shape[-2]), largest=False).indices
    chosen = index.gather(-1, some)
    return z.gather(-2, chosen[..., None].expand(*chosen.shape, z.shape[-1]))


@torch.no_grad()
def find_states(boltzmann: Boltzmann, rng_state: Tensor, *, count: int, starts: Tensor | None = None) -> Found:
    """Find states of high probability.

    Args:
        boltzmann: Boltzmann machine.
        rng_state: Key and counter, `(*replicas, 2)`.
        count: Number of ascents; the result has several times as many states.
        starts: Further starts, such as chains or codes of data, `(*replicas, N, D)`.

    Returns:
        All states seen, the starts included, and the best ones.
    """
    given = [] if starts is None else [starts.to(boltzmann.bias.dtype)]
    structured = structured_starts(boltzmann, count, rng_state)
    drawn = random_starts(boltzmann, count, rng_state)
    found = [
        block_ascent(boltzmann, structured),
        block_ascent(boltzmann, structured, reverse=True),
        block_ascent(boltzmann, drawn, reverse=True),
        flip_ascent(boltzmann, evenly(drawn, count // 8), boltzmann.units),
        mean_field_ascent(boltzmann, evenly(drawn, count // 4)),
        *(block_ascent(boltzmann, one) for one in given),
    ]
    top = best_states(boltzmann, torch.cat(found, dim=-2), min(TOP, max(1, count // 16)))
    # Perturb the best ones by flips of a tenth and of a third of the units, and ascend once more.
    many = top.repeat_interleave(max(1, count // (4 * top.shape[-2])), dim=-2)
    u = replica_uniforms(boltzmann, rng_state, (many.shape[-2], boltzmann.units), DrawDomain.EXCHANGE)
    rate = torch.where(torch.arange(many.shape[-2], device=u.device) % 2 == 0, 0.1, 0.33)[:, None]
    kicked = block_ascent(boltzmann, torch.where(u < rate, 1 - many, many))
    top = best_states(boltzmann, torch.cat([top, kicked], dim=-2), top.shape[-2])
    near = _neighbors(top[..., : max(1, 2 * count // boltzmann.units), :])
    return Found(
        torch.cat([*given, structured, drawn, *found, kicked, near, *_visited(boltzmann, top, rng_state)], -2), top
    )


def _neighbors(z: Tensor) -> Tensor:
    """All states that differ from one of these in one unit, `(*replicas, N D, D)`."""
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    return (z[..., :, None, :] - eye).abs().flatten(-3, -2)


def _visited(boltzmann: Boltzmann, z: Tensor, rng_state: Tensor) -> list[Tensor]:
    """States visited by Gibbs sweeps that start at these."""
    z, visited = z.repeat_interleave(4, dim=-2), []
    for _ in range(20):
        z, rng_state = sweep(boltzmann, z, rng_state, 1)
        visited.append(z)
    return visited
