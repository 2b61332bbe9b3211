"""Parallel tempering: ladders of chains from the base (t = 0) to the machine (t = 1) that exchange their states.

-E_t(z) = (1 - t) base.z + t (-E(z)). Hot chains cross barriers, exchanges carry what they find to the cold end. The
samples are the chains at t = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import warn_renamed
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
    check_step,
    independent_draw,
    replica_rng_states,
    sweep,
)
from softspin.samplers.schedules import check_schedule, linear_schedule
from softspin.typed import Rule

if TYPE_CHECKING:
    from softspin.config import Config

_NEW, _FROM_COLD, _FROM_HOT = 0, 1, 2


class TemperingState(NamedTuple):
    """What the next step needs."""

    z: Tensor
    """Chains, `(*replicas, ladders, K + 1, D)`, hot to cold."""
    temperatures: Tensor
    """Inverse temperatures 0 = t_0 < .. < t_K = 1, `(*replicas, K + 1)`."""
    base: Tensor
    """Independent biases at t = 0, `(*replicas, D)`."""
    last_end: Tensor
    """The end that each state saw last, `(*replicas, ladders, K + 1)`: 0 neither, 1 cold, 2 hot after cold."""
    round_trips: Tensor
    """Trips cold - hot - cold finished so far, `(*replicas, ladders)`."""
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
    """What is only interesting."""

    exchange_rate: Tensor
    """Mean probability that each pair of neighbours exchanges, `(*replicas, K)`."""
    round_trips: Tensor
    """Round trips finished in this step, over all ladders, `(*replicas,)`."""


@torch.no_grad()
def init(
    boltzmann: Boltzmann,
    chains: int,
    seed: int,
    temperatures: Tensor | int = 16,
    base: str | Tensor = "centred",
) -> TemperingState:
    """Ladders of chains, drawn from the base.

    `temperatures`: a schedule `(K + 1,)`, or one for each replica `(*replicas, K + 1)`, or K for an even one.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> init(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), chains=10, seed=0, temperatures=4).z.shape
    torch.Size([10, 5, 5])
    """
    check_boltzmann(boltzmann)
    check_count("chains", chains)
    ladder = temperatures if isinstance(temperatures, Tensor) else linear_schedule(temperatures)
    ladder = check_schedule(ladder, boltzmann.batch_shape).to(boltzmann.bias)
    biases = base_biases(boltzmann, base)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.TEMPERING)
    z = independent_draw(boltzmann, biases, rng_state, (chains, ladder.shape[-1]))
    ends = torch.full(z.shape[:-1], _NEW, dtype=torch.int8, device=z.device)
    trips = torch.zeros(z.shape[:-2], dtype=torch.int64, device=z.device)
    ladders = ladder.expand(*boltzmann.batch_shape, -1).clone()
    return TemperingState(z, ladders, biases.clone(), ends, trips, rng_state)


@torch.no_grad()
def step(
    state: TemperingState, boltzmann: Boltzmann, sweeps: int, *, implementation: Implementation = "auto"
) -> tuple[TemperingState, TemperingInfo]:
    """`sweeps` times: one sweep of every chain at its temperature, then exchanges between neighbours.

    Neighbours i, i + 1 exchange with probability min(1, exp((t_(i+1) - t_i) (g(z_i) - g(z_(i+1))))), g(z) = -E(z) -
    base.z; pairs with even i and with odd i take turns. NaN parameters of a machine with `validate_args=False` sample
    without a word.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))
    >>> state, info = step(init(boltzmann, chains=10, seed=0, temperatures=2), boltzmann, sweeps=8)
    >>> info.exchange_rate  # hot and cold are the same boltzmann here
    tensor([1., 1.], dtype=torch.float64)
    """
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
        )
        z = flat.reshape(state.z.shape)
        gain = -boltzmann.energy(z) - (align(state.base, z.ndim) * z).sum(-1)
        log_accept = (t.diff() * (gain[..., :-1] - gain[..., 1:])).to(torch.float64)
        rate = rate + log_accept.clamp(max=0).exp().mean(-2) / sweeps
        accept = _decide(log_accept, rng_state)
        source = _exchange(accept, rungs)
        z = z.gather(-2, source[..., None].expand(z.shape))
        ends, finished = _visit_ends(ends.gather(-1, source))
        trips, rng_state = trips + finished, later
    new = TemperingState(z, state.temperatures, state.base, ends, trips, rng_state)
    return new, TemperingInfo(rate, (trips - state.round_trips).sum(-1))


def adapted_temperatures(temperatures: Tensor, exchange_rate: Tensor) -> Tensor:
    """A ladder `(*replicas, K + 1)` on which all pairs would exchange at about the same rate.

    The rejection rates 1 - `exchange_rate` `(*replicas, K)` add up along the ladder to a barrier that hardly depends
    on the rungs (Syed et al., 2019); the new rungs cut it into K equal pieces. Repeat with fresh rates once or twice;
    then keep it fixed.

    >>> adapted_temperatures(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.9, 0.7]))
    tensor([0.0000, 0.6667, 1.0000])
    """
    if exchange_rate.shape != (*temperatures.shape[:-1], temperatures.shape[-1] - 1):
        raise ShapeError(f"{tuple(exchange_rate.shape)} exchange rates for temperatures {tuple(temperatures.shape)}")
    t = temperatures.to(torch.float64)
    # A pair that always exchanges still has some height, or its rung would have no place.
    heights = (1 - exchange_rate.to(torch.float64)).clamp(min=1e-3)
    barrier = torch.cat([torch.zeros_like(t[..., :1]), heights.cumsum(-1)], dim=-1)
    wanted = barrier[..., -1:] * torch.linspace(0, 1, t.shape[-1], dtype=torch.float64, device=t.device)
    above = torch.searchsorted(barrier, wanted.contiguous()).clamp(1, t.shape[-1] - 1)
    low, high = (barrier.gather(-1, above - k) for k in (1, 0))
    start, end = (t.gather(-1, above - k) for k in (1, 0))
    new = start + (end - start) * (wanted - low) / (high - low)
    new[..., 0], new[..., -1] = 0, 1
    return new.to(temperatures.dtype)


def _decide(log_accept: Tensor, rng_state: Tensor) -> Tensor:
    """Which pairs `(*replicas, ladders, K)` exchange; even and odd pairs take turns with the stream's counter."""
    flat = rng_state.reshape(-1, 2)
    u = uniforms(flat, 0, log_accept.shape[-2:], torch.float64, DrawDomain.EXCHANGE).reshape(log_accept.shape)
    pair = torch.arange(log_accept.shape[-1], device=log_accept.device)
    turn = (pair + rng_state[..., 1:]) % 2 == 0
    return (torch.log(u) < log_accept) & turn[..., None, :]


def _exchange(accept: Tensor, rungs: int) -> Tensor:
    """For each rung the rung whose state it takes over, `(*replicas, ladders, K + 1)`."""
    never = torch.zeros_like(accept[..., :1])
    up, down = torch.cat([accept, never], dim=-1), torch.cat([never, accept], dim=-1)
    return torch.arange(rungs, device=accept.device) + up.to(torch.int64) - down.to(torch.int64)


def _visit_ends(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the states that are at an end now; how many round trips `(*replicas, ladders)` that finished."""
    ends = ends.clone()
    hot, cold = ends[..., 0], ends[..., -1]
    finished = (cold == _FROM_HOT).to(torch.int64)
    ends[..., 0] = torch.where(hot == _FROM_COLD, torch.full_like(hot, _FROM_HOT), hot)
    ends[..., -1] = _FROM_COLD
    return ends, finished


class ParallelTempering(Sampler):
    """Ladders of chains at several temperatures; the samples are those at temperature 1."""

    name = "pt"
    citation = "K. Hukushima and K. Nemoto, Exchange Monte Carlo Method and Application to Spin Glass Simulations, 1996"
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "temperatures": PartSetting(
            Annotated[int, Rule("an integer from 1 to 1000", lambda v: 1 <= v <= 1000)],
            16,
            "Steps of the ladder between independent units and the prior; every chain is a ladder of that many + 1.",
        )
    }

    def __init__(self, temperatures: int = 16) -> None:
        self.temperatures = temperatures

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> ParallelTempering:
        return cls(config.options["temperatures"])

    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> TemperingState:
        return init(boltzmann, chains, seed, self.temperatures)

    def step(self, state: TemperingState, boltzmann: Boltzmann, sweeps: int) -> tuple[TemperingState, TemperingInfo]:
        return step(state, boltzmann, sweeps)

    def samples(self, state: TemperingState) -> Tensor:
        return state.samples

    def quality(self, info: TemperingInfo) -> Tensor:
        return info.exchange_rate.mean(-1).to(torch.float32)
