"""Population annealing: a population that follows the parameters, and a running estimate of log Z.

One update from old to new parameters: weights exp(E_old - E_new) per member; log Z grows by the log of their mean;
the members are resampled by their weights; sweeps at the new parameters. Annealing from temperature 0 to 1 is the
same update from a machine without couplings, in as many parts as it takes.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.kernels import Implementation, uniforms
from softspin.numerics import softplus
from softspin.samplers.machines import (
    POPULATION,
    RESAMPLE,
    base_biases,
    check_chains,
    check_count,
    check_machine,
    couplings,
    independent_draw,
    rebuild,
    replica_streams,
    sweep,
)
from softspin.samplers.result import NORMAL_95, LogZ, log_mean_error, log_mean_exp, weight_ess

COLLAPSED = 0.9
"""A population has collapsed when one member carries more than this share of the weight."""
_HALVINGS = 30


class CollapseWarning(UserWarning):
    """One member carries nearly all the weight: samples and log Z are not to be trusted."""


class PopulationState(NamedTuple):
    """What the next step needs."""

    z: Tensor
    """Members, `(*replicas, members, D)`, 0 or 1."""
    bias: Tensor
    """Parameters at which the members were last swept, `(*replicas, D)`."""
    coupling: Tensor
    """`(*replicas, n, m)` of an RBM, `(*replicas, D, D)` of any other graph."""
    log_z: Tensor
    """Estimate of log Z at these parameters, `(*replicas,)`, float64."""
    stream: Tensor
    """Key and counter, `(*replicas, 2)`."""


class PopulationInfo(NamedTuple):
    """What is only interesting; all `(*replicas,)`."""

    log_z_increment: Tensor
    """log Z_new - log Z_old."""
    standard_error: Tensor
    """Of the increment, from how unequal the families of this step became."""
    effective_sample_size: Tensor
    """The smallest over the parts of the step."""
    parts: Tensor
    """Into how many parts the step was divided."""
    families: Tensor
    """How many members from before the step have descendants after it."""
    largest_family: Tensor
    """Share of the population that descends from one of them."""
    mean_square_family: Tensor
    """rho_t = sum of squared family sizes / members: 1 if nothing was resampled, `members` if all are kin."""
    collapsed: Tensor
    """Whether one member carried nearly all the weight in some part."""


@torch.no_grad()
def init(machine: Boltzmann, members: int, seed: int, base: str | Tensor = "centred") -> PopulationState:
    """A population drawn exactly from independent units with biases `base`: log Z = sum softplus(base) is known there.

    base: "centred", "bias", "uniform" or a tensor, see :func:`base_biases`. The first step anneals from there to the
    machine.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> state = init(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), members=100, seed=0, base="uniform")
    >>> state.z.shape, round(state.log_z.item(), 4)
    (torch.Size([100, 5]), 3.4657)
    """
    check_machine(machine)
    check_count("members", members, least=2)
    biases = base_biases(machine, base)
    stream = replica_streams(machine, seed, POPULATION)
    z = independent_draw(machine, biases, stream, (members,))
    log_z = softplus(biases.to(torch.float64)).sum(-1)
    return PopulationState(z, biases.clone(), torch.zeros_like(couplings(machine)), log_z, stream)


@torch.no_grad()
def step(
    state: PopulationState,
    machine: Boltzmann,
    sweeps: int,
    *,
    smallest_ess: float = 0.5,
    largest_parts: int = 32,
    implementation: Implementation = "auto",
) -> tuple[PopulationState, PopulationInfo]:
    """Take the population from its old parameters to the machine's, `sweeps` sweeps after each part of the way.

    The way is straight, old + s (new - old). When the effective sample size of the whole way would fall below
    `smallest_ess` times the members, s goes only as far as keeps it there, found by bisection, and on from there; the
    last of `largest_parts` parts takes what is left. With unchanged parameters nothing is resampled.
    exp(log_z_increment) is unbiased for Z_new / Z_old where the step is not divided; choosing the parts by the
    weights costs a bias of order 1 / members.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> machine = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> state, info = step(init(machine, members=4000, seed=0), machine, sweeps=2)
    >>> bool((state.log_z - machine.log_z).abs() < 0.1)
    True
    """
    _check_step(state, machine, sweeps, smallest_ess, largest_parts)
    bias, coupling = machine.bias.detach(), couplings(machine)
    change = rebuild(machine, bias - state.bias, coupling - state.coupling)
    replicas, members = machine.batch_shape, state.z.shape[-2]
    z, stream = state.z, state.stream
    kin = torch.arange(members, device=z.device).expand(*replicas, members)
    way = torch.zeros(replicas, dtype=torch.float64, device=z.device)
    increment, parts, smallest = way, torch.zeros_like(way, dtype=torch.int64), torch.full_like(way, members)
    family_ess, largest_share = torch.full_like(way, members), torch.zeros_like(way)
    for part in range(largest_parts):
        moving = way < 1
        if not bool(moving.any()):
            break
        gain = -change.energy(z).to(torch.float64)
        if not bool(torch.isfinite(gain).all()):
            raise SupportError("the weights of the population are not finite; every parameter must be finite")
        far = torch.ones_like(way) if part + 1 == largest_parts else _next(gain, way, smallest_ess * members, z.dtype)
        log_weights = (far - way)[..., None] * gain
        weights = torch.exp(log_weights - log_weights.amax(-1, keepdim=True))
        increment = increment + log_mean_exp(log_weights)
        parts = parts + moving
        smallest = torch.minimum(smallest, weight_ess(log_weights))
        largest_share = torch.maximum(largest_share, 1 / weights.sum(-1))
        family_ess = torch.where(moving, weight_ess(_family_sizes(kin, weights).log()), family_ess)
        u = uniforms(stream.reshape(-1, 2), 0, (1,), torch.float64, RESAMPLE).reshape(*replicas, 1)
        parents = systematic(log_weights, u)
        kin = kin.gather(-1, parents)
        z = z.gather(-2, parents[..., None].expand(z.shape))
        way = far
        here = rebuild(machine, _between(state.bias, bias, way), _between(state.coupling, coupling, way))
        swept, later = sweep(here, z, stream, sweeps, implementation=implementation)
        z = torch.where(moving[..., None, None], swept, z)
        stream = torch.where(moving[..., None], later, stream)
    sizes = _family_sizes(kin, torch.ones_like(gain))
    info = PopulationInfo(
        log_z_increment=increment,
        standard_error=log_mean_error(family_ess, members),
        effective_sample_size=smallest,
        parts=parts,
        families=(sizes > 0).sum(-1),
        largest_family=sizes.amax(-1) / members,
        mean_square_family=sizes.square().sum(-1) / members,
        collapsed=largest_share > COLLAPSED,
    )
    if bool(info.collapsed.any()):
        warnings.warn(
            f"the population collapsed: one of {members} members carries {largest_share.max().item():.0%} of the "
            "weight; take smaller parameter steps, more parts or more members",
            CollapseWarning,
            stacklevel=3,
        )
    return PopulationState(z, bias.clone(), coupling.clone(), state.log_z + increment, stream), info


def anneal_population(
    machine: Boltzmann,
    members: int,
    seed: int,
    *,
    sweeps: int = 1,
    base: str | Tensor = "centred",
    smallest_ess: float = 0.9,
    largest_parts: int = 1000,
    implementation: Implementation = "auto",
) -> tuple[LogZ, PopulationState, PopulationInfo]:
    """Population annealing from temperature 0 to 1, in steps that keep the effective sample size: samples, and log Z.

    Starts exactly, at independent units with biases `base`. The mean of e^value is Z up to a bias of order 1 /
    members, so value is a lower bound in expectation, as AIS's.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> machine = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> log_z, state, info = anneal_population(machine, members=4000, seed=0)
    >>> bool((log_z.value - machine.log_z).abs() < 3 * log_z.standard_error), log_z.kind
    (True, 'lower bound')
    """
    start = init(machine, members, seed, base)
    state, info = step(
        start,
        machine,
        sweeps,
        smallest_ess=smallest_ess,
        largest_parts=largest_parts,
        implementation=implementation,
    )
    error = info.standard_error
    log_z = LogZ(
        value=state.log_z,
        standard_error=error,
        effective_sample_size=members / info.mean_square_family,
        lower=state.log_z - NORMAL_95 * error,
        upper=torch.full_like(state.log_z, torch.inf),
        method="population",
        kind="lower bound",
    )
    return log_z, state, info


def systematic(log_weights: Tensor, uniform: Tensor) -> Tensor:
    """Systematic resampling: N parents by weights `(*replicas, N)`, from one uniform per replica `(*replicas, 1)`.

    A member of weight w has floor or ceil of N w / sum(w) children. Equal weights: everyone is their own parent.

    >>> systematic(torch.tensor([0.0, 0.0, 1.1, -50.0]), torch.tensor([0.5]))
    tensor([0, 1, 2, 2])
    """
    count = log_weights.shape[-1]
    edges = torch.softmax(log_weights.to(torch.float64), -1).cumsum(-1)
    edges = edges / edges[..., -1:]
    own = torch.arange(count, device=log_weights.device).expand(log_weights.shape)
    # Strictly below the last edge: a point that rounds to 1 would be the child of the last member, whatever it weighs.
    points = ((own + uniform) / count).clamp(max=1 - 2.0**-53)
    parents = torch.searchsorted(edges.contiguous(), points.contiguous(), right=True)
    equal = log_weights.amax(-1, keepdim=True) == log_weights.amin(-1, keepdim=True)
    return torch.where(equal, own, parents)


def _next(gain: Tensor, way: Tensor, least: float, dtype: torch.dtype) -> Tensor:
    """How far each replica can go while its effective sample size stays at `least`, as a number of the given dtype."""
    one = torch.ones_like(way)
    enough = weight_ess((one - way)[..., None] * gain) >= least
    if bool(enough.all()):
        return one
    low, high = way, one
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = weight_ess((middle - way)[..., None] * gain) >= least
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return torch.where(enough, one, low).to(dtype).to(torch.float64)


def _between(old: Tensor, new: Tensor, way: Tensor) -> Tensor:
    """old + way (new - old), and exactly `new` at 1."""
    return torch.lerp(old, new, way.to(old.dtype).reshape(*way.shape, *[1] * (old.ndim - way.ndim)))


def _family_sizes(kin: Tensor, amounts: Tensor) -> Tensor:
    """Sum of the amounts `(*replicas, N)` of the members of each family, by founder."""
    return torch.zeros_like(amounts).scatter_add(-1, kin, amounts)


def _check_step(
    state: PopulationState, machine: Boltzmann, sweeps: int, smallest_ess: float, largest_parts: int
) -> None:
    check_chains(state.z, machine, what="the population's members")
    if state.coupling.shape != couplings(machine).shape or state.bias.shape != machine.bias.shape:
        raise ShapeError(
            f"the population was at bias {tuple(state.bias.shape)} and couplings {tuple(state.coupling.shape)}, "
            f"this machine has {tuple(machine.bias.shape)} and {tuple(couplings(machine).shape)}"
        )
    check_count("sweeps", sweeps)
    check_count("parts", largest_parts)
    if not 0 < smallest_ess < 1:
        raise SupportError(f"smallest_ess {smallest_ess}; it is a share of the members, between 0 and 1")
