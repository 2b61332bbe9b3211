"""Population annealing: a population that follows the parameters, and a running estimate of log Z.

One update from old to new parameters: weights exp(E_old - E_new) per member; log Z grows by the log of their mean (in
training by what the members after the sweeps tell, see :func:`step`); the members are resampled by their weights;
sweeps at the new parameters. Where that is too far for the weights, it is divided into as many parts as it takes; in
training the weights take the members a part of the way, and the sweeps the rest.
Annealing from temperature 0 to 1 is the same update from a machine without couplings, see :mod:`population_log_z`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments, renamed_members
from softspin.distributions import Boltzmann
from softspin.errors import ConfigError, ShapeError, SupportError
from softspin.kernels import Implementation
from softspin.numerics import softplus
from softspin.random import DrawDomain, KeyDomain, one_uniform
from softspin.samplers.base import Sampler
from softspin.samplers.population_state import PopulationInfo, PopulationState, warn_of_collapse
from softspin.samplers.primitives import (
    base_biases,
    check_boltzmann,
    check_count,
    check_step,
    independent_draw,
    replica_rng_states,
    sweep,
)
from softspin.samplers.resampling import effective_sample_size, max_tempering_step, systematic

if TYPE_CHECKING:
    from softspin.config import Config


@torch.no_grad()
def init(boltzmann: Boltzmann, members: int, seed: int, base: str | Tensor = "centred") -> PopulationState:
    """A population drawn exactly from independent units with biases `base`: log Z = sum softplus(base) is known there.

    base: "centred", "bias", "uniform" or a tensor, see :func:`base_biases`. The first step anneals from there to the
    machine.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> state = init(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), members=100, seed=0, base="uniform")
    >>> state.z.shape, round(state.log_z.item(), 4)
    (torch.Size([100, 5]), 3.4657)
    """
    check_boltzmann(boltzmann)
    check_count("members", members, least=2)
    biases = base_biases(boltzmann, base)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.POPULATION)
    z = independent_draw(boltzmann, biases, rng_state, (members,))
    log_z = softplus(biases.to(torch.float64)).sum(-1)
    no_couplings = torch.zeros_like(boltzmann.couplings.detach())
    return PopulationState(z, biases.clone(), no_couplings, log_z, _labels(z), rng_state)


def reset_ancestors(state: PopulationState) -> PopulationState:
    """The same population, in which every member is its own founder from now on.

    Families and the error of log Z count from here: the present members are taken for independent draws, the present
    log Z for exact. For when sweeps have made old kin unlike each other, or log Z was found in another way,
    `reset_ancestors(state._replace(log_z=...))`. Reads nothing on the host.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> state, info = step(init(boltzmann, members=50, seed=0), boltzmann, sweeps=1)
    >>> bool(info.families < 50), reset_ancestors(state).ancestors.unique().numel()
    (True, 50)
    """
    return state._replace(ancestors=_labels(state.z))


@renamed_arguments(at_once="single_step", largest_parts="max_tempering_steps")
@torch.no_grad()
def step(
    state: PopulationState,
    boltzmann: Boltzmann,
    sweeps: int,
    *,
    single_step: bool = False,
    compiled: bool = False,
    smallest_ess: float = 0.5,
    max_tempering_steps: int = 32,
    implementation: Implementation = "auto",
) -> tuple[PopulationState, PopulationInfo]:
    """Take the population from its old parameters to the machine's, `sweeps` sweeps after each part of the way.

    The way is straight, old + s (new - old). When the effective sample size of the whole way would fall below
    `smallest_ess` times the members, s is the farthest of 1, 2^(-1/4), 2^(-1/2), ... that keeps it there, and on from
    there; the last of `max_tempering_steps` parts takes what is left. With unchanged parameters nothing is resampled.
    exp(log_z_increment) is unbiased for Z_new / Z_old where the step is not divided; choosing the parts by the
    weights costs a bias of order 1 / members.

    With `single_step` there is one part, whatever `max_tempering_steps` says: weights as far as keeps the effective
    sample size, and sweeps at the machine's parameters in any case. This is for training, where nothing may wait:
    members behind the parameters would move them farther away. What a way that was too long cost is in its info
    alone: the families, and so the standard error of later steps, know nothing of it.
    In training the old members have moved the parameters themselves, away from where they were many, and their
    weights would lower log Z a little with every step. So the members after the sweeps tell the way back:
    exp(-log_z_increment) is unbiased for Z_old / Z_new as far as the sweeps forget. Where the way back is too far, of
    too small an effective sample size by the old members' weights, it is these that tell it.

    Nothing is read on the host then (of a machine with `validate_args=False`), so that a training update can be
    captured as a CUDA graph, where there is Triton. Therefore nothing warns or raises either: a collapse is in the
    info, parameters that are not finite make log_z NaN. `compiled` fuses what comes before and after the sweeps, some
    fifty small operations, by torch.compile.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> state, info = step(init(boltzmann, members=4000, seed=0), boltzmann, sweeps=2)
    >>> bool((state.log_z - boltzmann.log_z).abs() < 0.1)
    True
    >>> far = BipartiteBoltzmann(torch.zeros(5), -torch.ones(2, 3))
    >>> state, info = step(state, far, sweeps=2, single_step=True)
    >>> bool(info.effective_sample_size < 2000), state.coupling[0, 0].item()  # too far for the weights, but there
    (True, -1.0)
    """
    _check_step(state, boltzmann, sweeps, smallest_ess, max_tempering_steps)
    least = smallest_ess * state.z.shape[-2]
    if single_step:
        return _single_step(state, boltzmann, sweeps, least, implementation, compiled)
    new, info = _all_tempering_steps(state, boltzmann, sweeps, least, max_tempering_steps, implementation)
    if bool(info.collapsed.any()):
        warn_of_collapse(info)
    return new, info


class _Part(NamedTuple):
    """One part of the way, up to its sweeps."""

    z: Tensor
    bias: Tensor
    coupling: Tensor
    reached: Tensor
    increment: Tensor
    parents: Tensor
    weights: Tensor
    effective_sample_size: Tensor
    largest_weight: Tensor


def _part(
    kind: type[Boltzmann],
    state: PopulationState,
    bias: Tensor,
    coupling: Tensor,
    least: float,
    single_step: bool = False,
) -> _Part:
    """Towards these parameters as far as keeps the effective sample size at `least`, and resample there.

    With `single_step` only the parents are of that part; all else is of the whole way.
    """
    gain = -kind.from_parameters(bias - state.bias, coupling - state.coupling).energy(state.z).to(torch.float64)
    # Relative to the largest: equal weights are all exactly 1, and the largest share is 1 / sum.
    largest = gain.amax(-1, keepdim=True)
    gain = gain - largest
    reached = max_tempering_step(gain, least, state.z.dtype)
    weights = torch.exp(reached[..., None] * gain)
    parents = systematic(weights, one_uniform(state.rng_state, DrawDomain.RESAMPLE)[..., None])
    if single_step:
        reached, weights = torch.ones_like(reached), gain.exp()
    total = weights.sum(-1)
    increment = reached * largest[..., 0] + torch.log(total / weights.shape[-1])
    return _Part(
        z=state.z.gather(-2, parents[..., None].expand(state.z.shape)),
        bias=_between(state.bias, bias, reached),
        coupling=_between(state.coupling, coupling, reached),
        reached=reached,
        increment=increment,
        parents=parents,
        weights=weights,
        effective_sample_size=effective_sample_size(weights),
        largest_weight=1 / total,
    )


@functools.cache
def _compiled_part() -> Callable[..., _Part]:
    return torch.compile(_part)


def _single_step(
    state: PopulationState,
    boltzmann: Boltzmann,
    sweeps: int,
    least: float,
    implementation: Implementation,
    compiled: bool,
) -> tuple[PopulationState, PopulationInfo]:
    run = _compiled_part() if compiled else _part
    part = run(type(boltzmann), state, boltzmann.bias.detach(), boltzmann.couplings.detach(), least, single_step=True)
    z, rng_state = sweep(boltzmann, part.z, state.rng_state, sweeps, implementation=implementation)
    back = _compiled_reverse_increment() if compiled else _reverse_increment
    moved = part.bias - state.bias, part.coupling - state.coupling
    increment = back(type(boltzmann), z, *moved, part.increment, part.weights, least)
    info = PopulationInfo(
        log_z_increment=increment,
        tempering_steps=torch.ones_like(part.reached, dtype=torch.int64),
        effective_sample_size=part.effective_sample_size,
        largest_weight=part.largest_weight,
        weights=part.weights,
        prior_ancestors=state.ancestors.clone(),  # a replayed graph writes its next state over this one
        ancestors=state.ancestors.gather(-1, part.parents),
    )
    return PopulationState(z, part.bias, part.coupling, state.log_z + increment, info.ancestors, rng_state), info


def _reverse_increment(
    kind: type[Boltzmann],
    z: Tensor,
    moved_bias: Tensor,
    moved_coupling: Tensor,
    forward: Tensor,
    weights: Tensor,
    least: float,
) -> Tensor:
    """log Z_new - log Z_old by members of the new machine, from how far the parameters moved; else as told `forward`.

    What the way has all but forbidden, no new member knows of. The old ones do: by them the weights of the way back,
    the inverse ones, are worth N / (mean w mean 1/w) members.
    """
    loss = kind.from_parameters(moved_bias, moved_coupling).energy(z).to(torch.float64)
    back = math.log(z.shape[-2]) - torch.logsumexp(loss, dim=-1)
    enough = least * weights.mean(-1) * weights.reciprocal().mean(-1) <= z.shape[-2]
    return torch.where(enough, back, forward)


@functools.cache
def _compiled_reverse_increment() -> Callable[..., Tensor]:
    return torch.compile(_reverse_increment)


def _all_tempering_steps(
    state: PopulationState,
    boltzmann: Boltzmann,
    sweeps: int,
    least: float,
    max_tempering_steps: int,
    implementation: Implementation,
) -> tuple[PopulationState, PopulationInfo]:
    """Parts until every replica is there; one that is waits for the others, without weights, sweeps or draws."""
    replicas, members = boltzmann.batch_shape, state.z.shape[-2]
    kind, bias, coupling = type(boltzmann), boltzmann.bias.detach(), boltzmann.couplings.detach()
    zero = torch.zeros(replicas, dtype=torch.float64, device=state.z.device)
    info = PopulationInfo(
        log_z_increment=zero,
        tempering_steps=torch.zeros_like(zero, dtype=torch.int64),
        effective_sample_size=torch.full_like(zero, members),
        largest_weight=zero,
        weights=torch.ones_like(state.ancestors, dtype=torch.float64),
        prior_ancestors=state.ancestors,
        ancestors=state.ancestors,
    )
    moving = torch.ones_like(zero, dtype=torch.bool)
    for number in range(1, max_tempering_steps + 1):
        part = _part(kind, state, bias, coupling, least if number < max_tempering_steps else 0.0)
        if not bool(torch.isfinite(part.increment).all()):
            raise SupportError("the weights of the population are not finite; every parameter must be finite")
        here = boltzmann.with_parameters(part.bias, part.coupling)
        z, rng_state = sweep(here, part.z, state.rng_state, sweeps, implementation=implementation)
        info = PopulationInfo(
            log_z_increment=info.log_z_increment + part.increment,
            tempering_steps=info.tempering_steps + moving,
            effective_sample_size=torch.minimum(info.effective_sample_size, part.effective_sample_size),
            largest_weight=torch.maximum(info.largest_weight, part.largest_weight),
            weights=torch.where(moving[..., None], part.weights, info.weights),
            prior_ancestors=torch.where(moving[..., None], state.ancestors, info.prior_ancestors),
            ancestors=state.ancestors.gather(-1, part.parents),
        )
        state = PopulationState(
            z=torch.where(moving[..., None, None], z, state.z),
            bias=part.bias,
            coupling=part.coupling,
            log_z=state.log_z + part.increment,
            ancestors=info.ancestors,
            rng_state=torch.where(moving[..., None], rng_state, state.rng_state),
        )
        moving = moving & (part.reached < 1)
        if not bool(moving.any()):
            break
    return state, info


def _between(old: Tensor, new: Tensor, way: Tensor) -> Tensor:
    """old + way (new - old), and exactly `new` at 1."""
    return torch.lerp(old, new, way.to(old.dtype).reshape(*way.shape, *[1] * (old.ndim - way.ndim)))


def _labels(z: Tensor) -> Tensor:
    """Every member its own founder, `(*replicas, members)`."""
    return torch.arange(z.shape[-2], device=z.device).expand(z.shape[:-1]).clone()


def _check_step(
    state: PopulationState, boltzmann: Boltzmann, sweeps: int, smallest_ess: float, max_tempering_steps: int
) -> None:
    check_step(boltzmann, state.z, sweeps, what="the population's members")
    if state.coupling.shape != boltzmann.couplings.shape or state.bias.shape != boltzmann.bias.shape:
        raise ShapeError(
            f"the population was at bias {tuple(state.bias.shape)} and couplings {tuple(state.coupling.shape)}, "
            f"this machine has {tuple(boltzmann.bias.shape)} and {tuple(boltzmann.couplings.shape)}"
        )
    check_count("parts", max_tempering_steps)
    if not 0 < smallest_ess < 1:
        raise SupportError(f"smallest_ess {smallest_ess}; it is a share of the members, between 0 and 1")


class PopulationAnnealing(Sampler):
    """A population that follows the parameters, and its running estimate of log Z."""

    name = "pa"
    citation = "K. Hukushima and Y. Iba, Population Annealing and Its Application to a Spin Glass, 2003"
    capturable = True

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled

    @classmethod
    def check_config(cls, config: Config) -> None:
        if config.chains < 2:
            raise ConfigError("chains = 1 is not possible; population annealing (sampler = pa) needs at least 2")

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> PopulationAnnealing:
        return cls(compiled)

    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> PopulationState:
        return init(boltzmann, chains, seed)

    def step(self, state: PopulationState, boltzmann: Boltzmann, sweeps: int) -> tuple[PopulationState, PopulationInfo]:
        return step(state, boltzmann, sweeps, single_step=True, compiled=self.compiled)

    def quality(self, info: PopulationInfo) -> Tensor:
        return (info.effective_sample_size / info.weights.shape[-1]).to(torch.float32)

    def log_z(self, state: PopulationState) -> Tensor:
        return state.log_z

    def set_log_z(self, state: PopulationState, value: Tensor) -> PopulationState:
        return reset_ancestors(state)._replace(log_z=value.to(state.log_z))


__getattr__ = renamed_members(__name__, {"reset_founders": "reset_ancestors"})
