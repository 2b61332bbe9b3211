"""Gibbs sweeps and annealing on any graph: one color class of uncoupled units after another.

The annealing path is that of the kernels, -E_t(z) = (1 - t) base.z + t (-E(z)). On a bipartite graph the sweeps are the
same. Shapes: chains `(*replicas, C, D)`, t `(*replicas, C)`, base `(*replicas, D)`, random state `(*replicas, 2)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.kernels.plain import is_on
from softspin.numerics import align, softplus
from softspin.random import advance, uniforms


def chromatic_sweeps(
    boltzmann: Boltzmann,
    z: Tensor,
    rng_state: Tensor,
    sweeps: int,
    t: Tensor | None = None,
    base: Tensor | None = None,
    first_chain: int = 0,
) -> tuple[Tensor, Tensor]:
    """Sample every color class given all others, `sweeps` times, in the order of the Boltzmann machine's blocks.

    The old values of the first class are never read.

    >>> from softspin.distributions import GraphBoltzmann
    >>> from softspin.kernels import init_rng_state
    >>> boltzmann = GraphBoltzmann(torch.full((3,), -50.0), torch.zeros(3, 3))
    >>> z, rng_state = chromatic_sweeps(boltzmann, torch.ones(4, 3), init_rng_state(0, 1)[0], sweeps=2)
    >>> int(z.sum()), rng_state[1].item()
    (0, 2)

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        z: Chains, `(*replicas, C, D)`.
        rng_state: Key and counter, `(*replicas, 2)`.
        sweeps: Number of sweeps.
        t: Inverse temperature of each chain, `(*replicas, C)`; 1 if None.
        base: Biases at inverse temperature 0, `(*replicas, D)`; 0 if None.
        first_chain: Number of the first chain of z: it has the random numbers of this chain.

    Returns:
        The new chains and the new random state.
    """
    hot = None if t is None else t[..., None]
    for k in range(sweeps):
        z = _one_sweep(boltzmann, z, _uniforms(rng_state, k, z, first_chain), hot, base)
    return z, advance(rng_state, sweeps)


def anneal_graph(
    boltzmann: Boltzmann,
    base: Tensor,
    schedule: Tensor,
    chains: int,
    rng_state: Tensor,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Annealed importance sampling along a schedule, as :func:`softspin.kernels.plain.anneal`, on any graph.

    The first color class is summed out.

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        base: Biases at inverse temperature 0, `(*replicas, D)`.
        schedule: Inverse temperatures, `(T + 1,)`; decreasing for reverse annealing.
        chains: Number of chains C per replica.
        rng_state: Key and counter, `(*replicas, 2)`.
        start: Chains at the first temperature, `(*replicas, C, D)`; needed for reverse annealing.

    Returns:
        Log weights `(*replicas, C)` in float64, chains `(*replicas, C, D)` and the random state, T + 1 counters later.
    """
    replicas, units = boltzmann.batch_shape, boltzmann.units
    z = boltzmann.bias.new_zeros(*replicas, chains, units) if start is None else start
    schedule = schedule.to(boltzmann.bias)
    log_weight = torch.zeros(*replicas, chains, dtype=torch.float64, device=boltzmann.bias.device)
    for k, t in enumerate(schedule):
        if k > 0:
            log_weight = log_weight + _gain(boltzmann, z, base, schedule[k - 1], t).to(torch.float64)
        z = _one_sweep(boltzmann, z, _uniforms(rng_state, k, z), t, base)
    return log_weight, z, advance(rng_state, len(schedule))


def _gain(boltzmann: Boltzmann, z: Tensor, base: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """log f_after - log f_before of the units outside the first class, which is summed out."""
    first = boltzmann.blocks[0]
    rest = z.clone()
    rest[..., first] = 0
    own = -boltzmann.energy(rest) - (align(base, z.ndim) * rest).sum(-1)
    low, high = (_field(boltzmann, 0, rest, t, base) for t in (before, after))
    return (after - before) * own + (softplus(high) - softplus(low)).sum(-1)


def _one_sweep(boltzmann: Boltzmann, z: Tensor, u: Tensor, t: Tensor | None, base: Tensor | None) -> Tensor:
    z = z.clone()
    for number, block in enumerate(boltzmann.blocks):
        z[..., block] = is_on(u[..., block], _field(boltzmann, number, z, t, base))
    return z


def _field(boltzmann: Boltzmann, number: int, z: Tensor, t: Tensor | None, base: Tensor | None) -> Tensor:
    """Log odds of one class at inverse temperature t, `(*replicas, C, 1)` or a number."""
    field = boltzmann.block_field(number, z).detach()
    if t is None:
        return field
    if base is None:
        return t * field
    low = align(base[..., boltzmann.blocks[number]], z.ndim)
    return low + t * (field - low)


def _uniforms(rng_state: Tensor, offset: int, z: Tensor, first_chain: int = 0) -> Tensor:
    chains_and_units = (first_chain + z.shape[-2], z.shape[-1])
    return uniforms(rng_state.reshape(-1, 2), offset, chains_and_units, z.dtype)[:, first_chain:].reshape(z.shape)
