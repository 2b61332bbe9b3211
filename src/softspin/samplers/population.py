"""Population annealing: a population that follows the parameters, and a running estimate of log Z.

A step from old to new parameters gives each member the weight exp(E_old - E_new), resamples the members by their
weights and sweeps them at the new parameters. log Z grows by the log of the mean weight; in training the reverse
estimator is used instead, see :func:`step`. If the effective sample size would be too low, the step is divided into
tempering steps; in training the members are resampled for a fraction of the step, and the sweeps do the rest.
Annealing from inverse temperature 0 to 1 is the same step from a Boltzmann machine without couplings, see
:mod:`population_log_z`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments, renamed_members
from softspin.distributions import Boltzmann
from softspin.errors import ConfigError, ShapeError, SupportError
from softspin.kernels import Implementation
from softspin.numerics import softplus
from softspin.random import KeyDomain
from softspin.samplers.base import Sampler
from softspin.samplers.population_state import PopulationInfo, PopulationState, warn_of_collapse
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
from softspin.samplers.reweighting import (
    compiled_reverse_increment,
    compiled_tempering_step,
    reverse_increment,
    tempering_step,
)

if TYPE_CHECKING:
    from softspin.config import Config


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def init(boltzmann: Boltzmann, members: int, seed: int, base: str | Tensor = "centred") -> PopulationState:
    """Draw a population exactly from independent units with biases `base`, where log Z = sum softplus(base).

    The first step anneals from there to the Boltzmann machine.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> state = init(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), members=100, seed=0, base="uniform")
    >>> state.z.shape, round(state.log_z.item(), 4)
    (torch.Size([100, 5]), 3.4657)

    Args:
        boltzmann: Boltzmann machine that gives shapes, dtype and device.
        members: Size of the population, at least 2.
        seed: Seed of the random numbers.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.

    Returns:
        The initial state.

    Raises:
        SupportError: Fewer than two members, or parameters that are not finite.
    """
    check_boltzmann(boltzmann)
    check_count("members", members, minimum=2)
    biases = base_biases(boltzmann, base)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.POPULATION)
    z = independent_draw(boltzmann, biases, rng_state, (members,))
    log_z = softplus(biases.to(torch.float64)).sum(-1)
    no_couplings = torch.zeros_like(boltzmann.couplings.detach())
    return PopulationState(z, biases.clone(), no_couplings, log_z, _labels(z), rng_state)


def reset_ancestors(state: PopulationState) -> PopulationState:
    """Make every member its own ancestor, and restart the count of families.

    From here on the present members count as independent draws and the present log Z as exact. Use it when sweeps have
    decorrelated the families, or with a log Z from another estimator: `reset_ancestors(state._replace(log_z=...))`.
    Nothing is read on the host.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> state, info = step(init(boltzmann, members=50, seed=0), boltzmann, sweeps=1)
    >>> bool(info.families < 50), reset_ancestors(state).ancestors.unique().numel()
    (True, 50)

    Args:
        state: A population.

    Returns:
        The same population with new ancestors.
    """
    return state._replace(ancestors=_labels(state.z))


@renamed_arguments(machine="boltzmann", at_once="single_step", largest_parts="max_tempering_steps")
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
    """Move the population from its old parameters to those of `boltzmann`: reweight, resample, sweep.

    The parameters move along a straight line, old + s (new - old). If the effective sample size for the whole line
    would fall below `smallest_ess` times the members, the step is divided into tempering steps. Each takes the largest
    fraction 1, 2^(-1/4), 2^(-1/2), ... of the remaining line that keeps the effective sample size, and the last of
    `max_tempering_steps` takes all that is left. With unchanged parameters nothing is resampled. exp(log_z_increment)
    is an unbiased estimate of Z_new / Z_old if the step is not divided; choosing the tempering steps from the weights
    adds a bias of order 1 / members.

    With `single_step` the members are resampled once, for the largest fraction that keeps the effective sample size,
    and always swept at the new parameters. Training uses this, because members at stale parameters would push the
    parameters further away. The error of a step that is too long for the weights is visible only in its own info; the
    families, and so the standard error of later steps, do not include it.

    With `single_step` log Z uses the reverse estimator on the new members; if its effective sample size is too low,
    the forward one. In training the old members have moved the parameters themselves, away from their own states, so
    the forward estimator would lower log Z a little at every step. exp(-log_z_increment) is an unbiased estimate of
    Z_old / Z_new to the extent that the sweeps forget the old members.

    With `single_step` and a Boltzmann machine with `validate_args=False`, nothing is read on the host, so a training
    step can be captured as a CUDA graph where Triton is available. Therefore nothing warns or raises: a collapse is
    reported in the info, and parameters that are not finite make log_z NaN.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> state, info = step(init(boltzmann, members=4000, seed=0), boltzmann, sweeps=2)
    >>> bool((state.log_z - boltzmann.log_z).abs() < 0.1)
    True
    >>> far = BipartiteBoltzmann(torch.zeros(5), -torch.ones(2, 3))
    >>> state, info = step(state, far, sweeps=2, single_step=True)
    >>> bool(info.effective_sample_size < 2000), state.coupling[0, 0].item()  # too long for the weights, yet completed
    (True, -1.0)

    Args:
        state: Population at the old parameters.
        boltzmann: Boltzmann machine with the new parameters.
        sweeps: Number of Gibbs sweeps after each tempering step.
        single_step: Take one tempering step, whatever `max_tempering_steps` is.
        compiled: With `single_step`, fuse the operations before and after the sweeps, about fifty, by torch.compile.
        smallest_ess: Smallest effective sample size, as a fraction of the particles, between 0 and 1.
        max_tempering_steps: Largest number of tempering steps.
        implementation: Implementation of the sweeps.

    Returns:
        The population at the new parameters, and the diagnostics of the step.

    Raises:
        ShapeError: The population belongs to a Boltzmann machine of another shape.
        SupportError: An argument is out of range, or the parameters are not finite.

    References:
        K. Hukushima and Y. Iba, 2003, Population Annealing and Its Application to a Spin Glass.
        J. Machta, 2010, Population Annealing with Weighted Averages: A Monte Carlo Method for Rough Free Energy
        Landscapes, arXiv:1006.0252.
    """
    _check_step(state, boltzmann, sweeps, smallest_ess, max_tempering_steps)
    min_ess = smallest_ess * state.z.shape[-2]
    if single_step:
        return _single_step(state, boltzmann, sweeps, min_ess, implementation, compiled)
    new, info = _all_tempering_steps(state, boltzmann, sweeps, min_ess, max_tempering_steps, implementation)
    if bool(info.collapsed.any()):
        warn_of_collapse(info)
    return new, info


def _single_step(
    state: PopulationState,
    boltzmann: Boltzmann,
    sweeps: int,
    min_ess: float,
    implementation: Implementation,
    compiled: bool,
) -> tuple[PopulationState, PopulationInfo]:
    temper = compiled_tempering_step() if compiled else tempering_step
    bias, coupling = boltzmann.bias.detach(), boltzmann.couplings.detach()
    tempered = temper(type(boltzmann), state, bias, coupling, min_ess, single_step=True)
    z, rng_state = sweep(boltzmann, tempered.z, state.rng_state, sweeps, implementation=implementation)
    reverse = compiled_reverse_increment() if compiled else reverse_increment
    changes = tempered.bias - state.bias, tempered.coupling - state.coupling
    increment = reverse(type(boltzmann), z, *changes, tempered.increment, tempered.weights, min_ess)
    info = PopulationInfo(
        log_z_increment=increment,
        tempering_steps=torch.ones_like(tempered.fraction, dtype=torch.int64),
        effective_sample_size=tempered.effective_sample_size,
        largest_weight=tempered.largest_weight,
        weights=tempered.weights,
        prior_ancestors=state.ancestors.clone(),  # a replayed CUDA graph overwrites this state with the next
        ancestors=state.ancestors.gather(-1, tempered.parents),
    )
    return PopulationState(
        z, tempered.bias, tempered.coupling, state.log_z + increment, info.ancestors, rng_state
    ), info


def _all_tempering_steps(
    state: PopulationState,
    boltzmann: Boltzmann,
    sweeps: int,
    min_ess: float,
    max_tempering_steps: int,
    implementation: Implementation,
) -> tuple[PopulationState, PopulationInfo]:
    """Repeat tempering steps until every replica is at the new parameters. A replica that is done stays unchanged."""
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
        tempered = tempering_step(kind, state, bias, coupling, min_ess if number < max_tempering_steps else 0.0)
        if not bool(torch.isfinite(tempered.increment).all()):
            raise SupportError("the weights of the population are not finite; every parameter must be finite")
        intermediate = boltzmann.with_parameters(tempered.bias, tempered.coupling)
        z, rng_state = sweep(intermediate, tempered.z, state.rng_state, sweeps, implementation=implementation)
        info = PopulationInfo(
            log_z_increment=info.log_z_increment + tempered.increment,
            tempering_steps=info.tempering_steps + moving,
            effective_sample_size=torch.minimum(info.effective_sample_size, tempered.effective_sample_size),
            largest_weight=torch.maximum(info.largest_weight, tempered.largest_weight),
            weights=torch.where(moving[..., None], tempered.weights, info.weights),
            prior_ancestors=torch.where(moving[..., None], state.ancestors, info.prior_ancestors),
            ancestors=state.ancestors.gather(-1, tempered.parents),
        )
        state = PopulationState(
            z=torch.where(moving[..., None, None], z, state.z),
            bias=tempered.bias,
            coupling=tempered.coupling,
            log_z=state.log_z + tempered.increment,
            ancestors=info.ancestors,
            rng_state=torch.where(moving[..., None], rng_state, state.rng_state),
        )
        moving = moving & (tempered.fraction < 1)
        if not bool(moving.any()):
            break
    return state, info


def _labels(z: Tensor) -> Tensor:
    """Every member is its own ancestor, `(*replicas, members)`."""
    return torch.arange(z.shape[-2], device=z.device).expand(z.shape[:-1]).clone()


def _check_step(
    state: PopulationState, boltzmann: Boltzmann, sweeps: int, smallest_ess: float, max_tempering_steps: int
) -> None:
    check_state(state, PopulationState)
    check_step(boltzmann, state.z, sweeps, what="the population's members")
    if state.coupling.shape != boltzmann.couplings.shape or state.bias.shape != boltzmann.bias.shape:
        raise ShapeError(
            f"the population has a bias {tuple(state.bias.shape)} and couplings {tuple(state.coupling.shape)}, this "
            f"Boltzmann machine has {tuple(boltzmann.bias.shape)} and {tuple(boltzmann.couplings.shape)}"
        )
    check_count("tempering steps", max_tempering_steps)
    if not 0 < smallest_ess < 1:
        raise SupportError(f"smallest_ess = {smallest_ess}; it must be a fraction of the members, between 0 and 1")


class PopulationAnnealing(Sampler):
    """Population annealing: a population that follows the parameters, with a running estimate of log Z.

    Args:
        compiled: Whether small operations go through torch.compile.

    References:
        K. Hukushima and Y. Iba, 2003, Population Annealing and Its Application to a Spin Glass.
        J. Machta, 2010, Population Annealing with Weighted Averages, arXiv:1006.0252.
    """

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

    def restart(self, boltzmann: Boltzmann, z: Tensor, rng_state: Tensor, log_z: Tensor) -> PopulationState:
        parameters = boltzmann.bias.detach().clone(), boltzmann.couplings.detach().clone()
        log_z = log_z.to(torch.float64, copy=True)
        return PopulationState(z.clone(), *parameters, log_z, _labels(z), rng_state.clone())

    def step(self, state: PopulationState, boltzmann: Boltzmann, sweeps: int) -> tuple[PopulationState, PopulationInfo]:
        return step(state, boltzmann, sweeps, single_step=True, compiled=self.compiled)

    def quality(self, info: PopulationInfo) -> Tensor:
        return (info.effective_sample_size / info.weights.shape[-1]).to(torch.float32)

    def log_z(self, state: PopulationState) -> Tensor:
        return state.log_z

    def set_log_z(self, state: PopulationState, value: Tensor) -> PopulationState:
        return reset_ancestors(state)._replace(log_z=value.to(state.log_z))


__getattr__ = renamed_members(__name__, {"reset_founders": "reset_ancestors"})
