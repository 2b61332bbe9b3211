"""Parallel tempering: chains at temperatures between independent units (t = 0) and the Boltzmann machine (t = 1).

-E_t(z) = (1 - t) base.z + t (-E(z)), with inverse temperature t. Hot chains cross barriers; exchanges pass their states
on to the cold chains. The samples are the chains at t = 1. The chains of one sample form a ladder with a rung for each
temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments, warn_renamed
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.kernels import Implementation
from softspin.numerics import align
from softspin.parts import PartSetting
from softspin.random import DrawDomain, KeyDomain, uniforms
from softspin.samplers.base import Sampler
from softspin.samplers.primitives import (
    base_biases,
    check_boltzmann,
    check_count,
    check_state,
    check_step,
    independent_draw,
    replica_rng_states,
    sweep,
)
from softspin.samplers.schedules import check_schedule, linear_schedule
from softspin.typed import Rule

if TYPE_CHECKING:
    from softspin.config import Config

_NEITHER_END, _FROM_COLD, _FROM_HOT = 0, 1, 2


class TemperingState(NamedTuple):
    """State of parallel tempering."""

    z: Tensor
    """Chains, `(*replicas, ladders, K + 1, D)`, hot to cold."""
    temperatures: Tensor
    """Inverse temperatures 0 = t_0 < .. < t_K = 1, `(*replicas, K + 1)`."""
    base: Tensor
    """Independent biases at t = 0, `(*replicas, D)`."""
    last_end: Tensor
    """The end that each state visited last, `(*replicas, ladders, K + 1)`: 0 neither, 1 cold, 2 hot after cold."""
    round_trips: Tensor
    """Number of completed round trips cold - hot - cold, `(*replicas, ladders)`."""
    rng_state: Tensor
    """Key and counter, `(*replicas, 2)`."""

    @property
    def stream(self) -> Tensor:
        """Deprecated name of `rng_state`."""
        warn_renamed("stream", "rng_state")
        return self.rng_state

    @property
    def samples(self) -> Tensor:
        """The chains at t = 1, `(*replicas, ladders, D)`."""
        return self.z[..., -1, :]


class TemperingInfo(NamedTuple):
    """Diagnostics of a step."""

    exchange_rate: Tensor
    """Mean acceptance probability of an exchange, for each pair of neighbors, `(*replicas, K)`."""
    round_trips: Tensor
    """Round trips completed in this step, over all ladders, `(*replicas,)`."""


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def init(
    boltzmann: Boltzmann,
    chains: int,
    seed: int,
    temperatures: Tensor | int = 16,
    base: str | Tensor = "centred",
) -> TemperingState:
    """Draw ladders of chains from the base distribution.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> init(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), chains=10, seed=0, temperatures=4).z.shape
    torch.Size([10, 5, 5])

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        chains: Number of ladders, and so of samples, per replica.
        seed: Seed of the random numbers.
        temperatures: Number K of equal steps, or increasing inverse temperatures from 0 to 1, `(K + 1,)` or
            `(*replicas, K + 1)`.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.

    Returns:
        The initial state.
    """
    check_boltzmann(boltzmann)
    check_count("chains", chains)
    ladder = temperatures if isinstance(temperatures, Tensor) else linear_schedule(temperatures)
    ladder = check_schedule(ladder, boltzmann.batch_shape).to(boltzmann.bias)
    biases = base_biases(boltzmann, base)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.TEMPERING)
    z = independent_draw(boltzmann, biases, rng_state, (chains, ladder.shape[-1]))
    ends = torch.full(z.shape[:-1], _NEITHER_END, dtype=torch.int8, device=z.device)
    trips = torch.zeros(z.shape[:-2], dtype=torch.int64, device=z.device)
    ladders = ladder.expand(*boltzmann.batch_shape, -1).clone()
    return TemperingState(z, ladders, biases.clone(), ends, trips, rng_state)


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def step(
    state: TemperingState,
    boltzmann: Boltzmann,
    sweeps: int,
    *,
    implementation: Implementation = "auto",
    first_chain: int = 0,
) -> tuple[TemperingState, TemperingInfo]:
    """Repeat `sweeps` times: sweep every chain once at its temperature, then exchange states between neighbors.

    Neighbours i, i + 1 exchange with probability min(1, exp((t_(i+1) - t_i) (g(z_i) - g(z_(i+1))))), g(z) = -E(z) -
    base.z; pairs with even i and with odd i alternate. With `validate_args=False` of the Boltzmann machine, NaN
    parameters silently give meaningless samples.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))
    >>> state, info = step(init(boltzmann, chains=10, seed=0, temperatures=2), boltzmann, sweeps=8)
    >>> info.exchange_rate  # without couplings all temperatures have the same distribution
    tensor([1., 1.], dtype=torch.float64)

    Args:
        state: State after the previous step.
        boltzmann: Boltzmann machine at inverse temperature 1.
        sweeps: Number of sweeps, each followed by exchanges.
        implementation: Implementation of the sweeps.
        first_chain: Number of the first ladder of the state, even: it has the random numbers of this ladder.

    Returns:
        The new state, and the diagnostics of the step.

    References:
        R. H. Swendsen and J.-S. Wang, 1986, Replica Monte Carlo Simulation of Spin-Glasses.
        C. J. Geyer, 1991, Markov Chain Monte Carlo Maximum Likelihood.
        K. Hukushima and K. Nemoto, 1996, Exchange Monte Carlo Method and Application to Spin Glass Simulations.
    """
    check_state(state, TemperingState)
    check_step(boltzmann, state.z, sweeps, chain_dims=2)
    replicas, (ladders, rungs, units) = boltzmann.batch_shape, state.z.shape[-3:]
    t = state.temperatures[..., None, :].expand(*replicas, ladders, rungs)
    z, rng_state, ends, trips = state.z, state.rng_state, state.last_end, state.round_trips
    rate = torch.zeros(*replicas, rungs - 1, dtype=torch.float64, device=z.device)
    for _ in range(sweeps):
        flat, later = sweep(
            boltzmann,
            z.reshape(*replicas, ladders * rungs, units),
            rng_state,
            1,
            t.reshape(*replicas, ladders * rungs),
            state.base,
            implementation,
            first_chain * rungs,
        )
        z = flat.reshape(state.z.shape)
        gain = -boltzmann.energy(z) - (align(state.base, z.ndim) * z).sum(-1)
        log_accept = (t.diff() * (gain[..., :-1] - gain[..., 1:])).to(torch.float64)
        rate = rate + log_accept.clamp(max=0).exp().mean(-2) / sweeps
        accept = _decide(log_accept, rng_state, first_chain)
        source = _exchange(accept, rungs)
        z = z.gather(-2, source[..., None].expand(z.shape))
        ends, finished = _visit_ends(ends.gather(-1, source))
        trips, rng_state = trips + finished, later
    new = TemperingState(z, state.temperatures, state.base, ends, trips, rng_state)
    return new, TemperingInfo(rate, (trips - state.round_trips).sum(-1))


def adapted_temperatures(temperatures: Tensor, exchange_rate: Tensor) -> Tensor:
    """Choose temperatures at which all neighbors exchange at about the same rate.

    The rejection rates 1 - `exchange_rate` add up along the ladder to a barrier that hardly depends on the choice of
    temperatures; the new ones divide it into K equal pieces. Repeat with newly measured rates once or twice, then keep
    the temperatures fixed.

    >>> adapted_temperatures(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.9, 0.7]))
    tensor([0.0000, 0.6667, 1.0000])

    Args:
        temperatures: Inverse temperatures, `(*replicas, K + 1)`.
        exchange_rate: Measured exchange rates of neighbors, `(*replicas, K)`.

    Returns:
        New inverse temperatures, `(*replicas, K + 1)`.

    Raises:
        ShapeError: The shapes of temperatures and rates do not match.

    References:
        S. Syed, A. Bouchard-Cote, G. Deligiannidis and A. Doucet, 2019, Non-Reversible Parallel Tempering: a Scalable
        Highly Parallel MCMC Scheme, arXiv:1905.02939.
    """
    if exchange_rate.shape != (*temperatures.shape[:-1], temperatures.shape[-1] - 1):
        raise ShapeError(
            f"exchange rates of shape {tuple(exchange_rate.shape)} for temperatures {tuple(temperatures.shape)}; give "
            "one rate for each pair of neighbors"
        )
    t = temperatures.to(torch.float64)
    # A pair that always exchanges keeps some height, or its rung would have no width.
    heights = (1 - exchange_rate.to(torch.float64)).clamp(min=1e-3)
    barrier = torch.cat([torch.zeros_like(t[..., :1]), heights.cumsum(-1)], dim=-1)
    wanted = barrier[..., -1:] * torch.linspace(0, 1, t.shape[-1], dtype=torch.float64, device=t.device)
    above = torch.searchsorted(barrier, wanted.contiguous()).clamp(1, t.shape[-1] - 1)
    low, high = (barrier.gather(-1, above - k) for k in (1, 0))
    start, end = (t.gather(-1, above - k) for k in (1, 0))
    new = start + (end - start) * (wanted - low) / (high - low)
    new[..., 0], new[..., -1] = 0, 1
    return new.to(temperatures.dtype)


def _decide(log_accept: Tensor, rng_state: Tensor, first_chain: int = 0) -> Tensor:
    """Which pairs `(*replicas, ladders, K)` exchange; even and odd pairs alternate with the counter."""
    shape = first_chain + log_accept.shape[-2], log_accept.shape[-1]
    u = uniforms(rng_state.reshape(-1, 2), 0, shape, torch.float64, DrawDomain.EXCHANGE)[:, first_chain:]
    u = u.reshape(log_accept.shape)
    pair = torch.arange(log_accept.shape[-1], device=log_accept.device)
    turn = (pair + rng_state[..., 1:]) % 2 == 0
    return (torch.log(u) < log_accept) & turn[..., None, :]


def _exchange(accept: Tensor, rungs: int) -> Tensor:
    """For each rung the rung whose state it receives, `(*replicas, ladders, K + 1)`."""
    never = torch.zeros_like(accept[..., :1])
    up, down = torch.cat([accept, never], dim=-1), torch.cat([never, accept], dim=-1)
    return torch.arange(rungs, device=accept.device) + up.to(torch.int64) - down.to(torch.int64)


def _visit_ends(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the states that are at an end now, and count the completed round trips `(*replicas, ladders)`."""
    ends = ends.clone()
    hot, cold = ends[..., 0], ends[..., -1]
    finished = (cold == _FROM_HOT).to(torch.int64)
    ends[..., 0] = torch.where(hot == _FROM_COLD, torch.full_like(hot, _FROM_HOT), hot)
    ends[..., -1] = _FROM_COLD
    return ends, finished


class ParallelTempering(Sampler):
    """Parallel tempering: ladders of chains at several temperatures; the samples are the chains at t = 1.

    Args:
        temperatures: Number of temperature steps between independent units and the prior.

    References:
        R. H. Swendsen and J.-S. Wang, 1986, Replica Monte Carlo Simulation of Spin-Glasses.
        C. J. Geyer, 1991, Markov Chain Monte Carlo Maximum Likelihood.
    """

    name = "pt"
    chain_fields = ("z", "last_end", "round_trips")
    citation = "K. Hukushima and K. Nemoto, Exchange Monte Carlo Method and Application to Spin Glass Simulations, 1996"
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "temperatures": PartSetting(
            Annotated[int, Rule("an integer from 1 to 1000", lambda v: 1 <= v <= 1000)],
            16,
            "Temperature steps of the ladder from independent units to the prior; each ladder has one chain more.",
        )
    }

    def __init__(self, temperatures: int = 16) -> None:
        self.temperatures = temperatures

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> ParallelTempering:
        return cls(config.options["temperatures"])

    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> TemperingState:
        return init(boltzmann, chains, seed, self.temperatures)

    def restart(self, boltzmann: Boltzmann, z: Tensor, rng_state: Tensor, log_z: Tensor) -> TemperingState:
        """All chains of a ladder start at its sample; the hot ones forget it in a few sweeps."""
        ladder = linear_schedule(self.temperatures).to(boltzmann.bias)
        rungs = z[..., None, :].expand(*z.shape[:-1], len(ladder), z.shape[-1]).clone()
        ends = torch.full(rungs.shape[:-1], _NEITHER_END, dtype=torch.int8, device=z.device)
        trips = torch.zeros(z.shape[:-1], dtype=torch.int64, device=z.device)
        temperatures = ladder.expand(*boltzmann.batch_shape, -1).clone()
        biases = base_biases(boltzmann, "centred").clone()
        return TemperingState(rungs, temperatures, biases, ends, trips, rng_state.clone())

    def step(self, state: TemperingState, boltzmann: Boltzmann, sweeps: int) -> tuple[TemperingState, TemperingInfo]:
        return step(state, boltzmann, sweeps, first_chain=self.first_chain)

    def samples(self, state: TemperingState) -> Tensor:
        return state.samples

    def quality(self, info: TemperingInfo) -> Tensor:
        return info.exchange_rate.mean(-1).to(torch.float32)
