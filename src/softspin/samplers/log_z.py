"""log Z exactly, or by annealed importance sampling (AIS) in both directions.

e^(AIS weight) is an unbiased estimate of Z, so its log is too low on average, and a likelihood computed with it too
high. Reverse annealing from samples of the Boltzmann machine errs on the other side. Reports should quote the two
together, see :func:`sandwich`. Neither detects a mode that neither the annealing nor the samples have visited.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments
from softspin.distributions import Boltzmann
from softspin.distributions.enumeration import LARGEST
from softspin.errors import SupportError, unknown_name
from softspin.formatting import distinct
from softspin.kernels import Implementation
from softspin.random import DrawDomain, KeyDomain, one_uniform
from softspin.samplers.ais import Chains, ais, annealing_path, forward_chains, reverse_ais, reverse_chains
from softspin.samplers.guards import guard
from softspin.samplers.population_log_z import anneal_population
from softspin.samplers.primitives import (
    base_biases,
    check_boltzmann,
    check_chains,
    check_count,
    check_implementation,
    replica_rng_states,
    worst_replica,
)
from softspin.samplers.resampling import mean_square_family, systematic
from softspin.samplers.result import NORMAL_95, LogZ
from softspin.samplers.schedules import check_schedule, linear_schedule

__all__ = ["SANDWICH_RUNS", "SandwichWarning", "ais", "estimate", "exact", "reverse_ais", "sandwich"]

METHODS = ("auto", "exact", "ais", "sandwich", "population")
SANDWICH_RUNS = ("forward AIS", "samples for reverse AIS", "reverse AIS")
"""The annealing runs of :func:`sandwich`, in order; given samples replace the second."""

ROUNDING = 1e-6
"""Relative rounding error of a log Z by float32 sweeps: the spread of weights that are equal in exact arithmetic."""


class SandwichWarning(UserWarning):
    """The reverse estimate is below the forward one by more than their errors.

    Most likely the samples are not from the Boltzmann machine. It can also happen by chance, see :func:`sandwich`. The
    absence of this warning does not prove that they are, see :func:`reverse_ais`.
    """


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def exact(boltzmann: Boltzmann) -> LogZ:
    """Compute log Z by enumeration in float64.

    The states of at most 24 units are enumerated: one side of an RBM, or all color classes but one of any other graph.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> exact(BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))).value
    tensor(3.4657, dtype=torch.float64)

    Args:
        boltzmann: Boltzmann machine.

    Returns:
        log Z, with a standard error of 0.

    Raises:
        TooLargeError: More than 24 units would have to be enumerated.
        SupportError: Parameters are not finite.
    """
    check_boltzmann(boltzmann)
    parameters = (x.detach().to(torch.float64) for x in (boltzmann.bias, boltzmann.couplings))
    precise = boltzmann.with_parameters(*parameters)
    value = precise.exact_log_z()
    many = torch.full_like(value, torch.inf)
    return LogZ(value, torch.zeros_like(value), many, value, value, method="exact", kind="exact")


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def sandwich(
    boltzmann: Boltzmann,
    samples: Tensor | None = None,
    *,
    seed: int,
    temperatures: int = 10_000,
    chains: int = 1_000,
    base: str | Tensor = "centred",
    schedule: Tensor | None = None,
    implementation: Implementation = "auto",
    guarded: bool = True,
    starts: Tensor | None = None,
    progress: Callable[[str], None] | None = None,
) -> LogZ:
    """AIS in both directions: value and standard error of the forward run, `upper` from the reverse run.

    The forward value needs no samples and is what AIS papers report, so it is the value. [lower, upper] runs from 1.96
    standard errors below it to 1.96 above the reverse value, or above the forward one if that is higher. Without
    `samples` a second forward run makes them: its chains are resampled by their weights, and the error of the reverse
    run accounts for their families. Given `samples` are taken to be independent.

    If the upper limit of the reverse value is below the lower limit of the forward one, the samples are probably not
    from the Boltzmann machine. Then it warns, and the interval covers both. Both limits are at 1.96 standard errors, so
    with good samples the warning can come by chance: in 0.3% of all runs if the two errors are equal, in 2.5% if one is
    much larger, and more often if few chains dominate the weights, whose errors are then estimated poorly. It detects
    bad samples only if annealing finds states that they lack.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> result = sandwich(boltzmann, seed=0, temperatures=20, chains=500)
    >>> bool((result.lower < exact(boltzmann).value) & (exact(boltzmann).value < result.upper))
    True

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        samples: Independent samples of it for the reverse run, `(*replicas, N, D)`.
        seed: Seed of the random numbers.
        temperatures: Number of equal steps of the inverse temperature.
        chains: Number of forward chains per replica; without `samples` at least 2.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.
        schedule: Increasing inverse temperatures from 0 to 1, `(T + 1,)`, in place of `temperatures` equal steps.
        implementation: Implementation of the sweeps.
        guarded: Whether to extend the interval to that of both forward runs together, and to search for states that
            annealing misses, see :func:`softspin.samplers.guards.guard`.
        starts: States to start this search from, such as codes of data, `(*replicas, N, D)`.
        progress: Called with the name of each annealing run, one of `SANDWICH_RUNS`, before it starts.

    Returns:
        The estimate, of kind "estimate", with limits on both sides.

    Warns:
        SandwichWarning: The two directions contradict each other.
        LogZWarning: States that annealing misses were found. The limits are then bounds that hold with certainty.

    References:
        R. B. Grosse, Z. Ghahramani and R. P. Adams, 2015, Sandwiching the Marginal Likelihood Using Bidirectional Monte
        Carlo, arXiv:1511.02543.
    """
    check_count("chains", chains, minimum=2 if samples is None else 1)
    tell = progress or (lambda name: None)
    tell(SANDWICH_RUNS[0])
    path = annealing_path(boltzmann, temperatures, base, schedule, implementation)
    forward, ends = forward_chains(boltzmann, path, chains, seed=seed)
    family_correlation: Tensor | float = 1.0
    low, high = forward.lower, forward.value + NORMAL_95 * forward.standard_error
    if samples is None:
        tell(SANDWICH_RUNS[1])
        again, other_ends = forward_chains(boltzmann, path, chains, seed=seed, domain=KeyDomain.AIS_SAMPLES)
        samples, family_correlation = _resampled(boltzmann, other_ends, seed)
        if guarded:
            low, high = _of_both(low, high, forward, again)
    tell(SANDWICH_RUNS[2])
    reverse, starts_of_reverse = reverse_chains(
        boltzmann, samples, path, seed=seed, family_correlation=family_correlation
    )
    crossed = reverse.upper < forward.lower - ROUNDING * (1 + forward.value.abs())
    if bool(crossed.any()):
        worst, name = worst_replica(forward.lower - reverse.upper)
        below, above = distinct(reverse.upper[worst].item(), forward.lower[worst].item())
        warnings.warn(
            f"{name}reverse AIS gives log Z below {below}, forward AIS above {above}; the samples are not from this "
            "Boltzmann machine, or there are too few",
            SandwichWarning,
            stacklevel=3,
        )
    lowest = torch.minimum(low, reverse.value - NORMAL_95 * reverse.standard_error)
    found = forward._replace(
        lower=torch.where(crossed, lowest, low),
        upper=torch.maximum(reverse.upper, high),
        method="sandwich",
        kind="estimate",
    )
    if not guarded:
        return found
    return guard(boltzmann, found, ends, starts_of_reverse, path, seed=seed, starts=starts, stacklevel=3)


def _of_both(low: Tensor, high: Tensor, one: LogZ, two: LogZ) -> tuple[Tensor, Tensor]:
    """An interval, extended to that of two independent estimates of equal cost together."""
    value = torch.logaddexp(one.value, two.value) - math.log(2)
    share = torch.sigmoid(one.value - two.value)
    error = torch.sqrt((share * one.standard_error).square() + ((1 - share) * two.standard_error).square())
    return torch.minimum(low, value - NORMAL_95 * error), torch.maximum(high, value + NORMAL_95 * error)


def _resampled(boltzmann: Boltzmann, chains: Chains, seed: int) -> tuple[Tensor, Tensor]:
    """Samples `(*replicas, C, D)`: annealed chains, resampled by their weights; and their mean square family size."""
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.AIS_SAMPLES)
    weights = torch.exp(chains.log_weights - chains.log_weights.amax(-1, keepdim=True))
    parents = systematic(weights, one_uniform(rng_state, DrawDomain.RESAMPLE)[..., None])
    return chains.z.gather(-2, parents[..., None].expand(chains.z.shape)), mean_square_family(parents)


@renamed_arguments(machine="boltzmann")
def estimate(
    boltzmann: Boltzmann,
    method: Literal["auto", "exact", "ais", "sandwich", "population"] = "auto",
    *,
    seed: int,
    temperatures: int = 10_000,
    chains: int = 1_000,
    base: str | Tensor = "centred",
    schedule: Tensor | None = None,
    samples: Tensor | None = None,
    implementation: Implementation = "auto",
) -> LogZ:
    """Estimate log Z by a method named in a configuration.

    "auto" is exact where that is possible, and the sandwich elsewhere. All options are checked, whether the method
    needs them or not. A method that takes no schedule or samples rejects them.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> estimate(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), seed=0).kind
    'exact'

    Args:
        boltzmann: Boltzmann machine.
        method: "auto", "exact", "ais", "sandwich" or "population".
        seed: Seed of the random numbers.
        temperatures: Number of equal steps of the inverse temperature.
        chains: Number of chains, or members of the population, per replica.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.
        schedule: Increasing inverse temperatures from 0 to 1, `(T + 1,)`, for "ais" and "sandwich".
        samples: Samples of the Boltzmann machine `(*replicas, N, D)`, for "sandwich".
        implementation: Implementation of the sweeps.

    Returns:
        The estimate.

    Raises:
        UnknownNameError: There is no such method.
        SupportError: The method takes no schedule or samples, or an option is out of range.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    for option, given, takers in (("schedule", schedule, ("ais", "sandwich")), ("samples", samples, ("sandwich",))):
        if given is not None and method not in ("auto", *takers):
            raise SupportError(f"method '{method}' takes no {option}; leave it out or use {' or '.join(takers)}")
    check_count("chains", chains, minimum=1 if method in ("exact", "ais") or samples is not None else 2)
    check_schedule(linear_schedule(temperatures) if schedule is None else schedule)
    base_biases(boltzmann, base)
    check_implementation(boltzmann, implementation)
    if samples is not None:
        samples = boltzmann.as_states("the samples", samples)
        check_chains(samples, boltzmann, what="the samples")
    if method == "exact" or (method == "auto" and boltzmann.enumerated_units <= LARGEST):
        return exact(boltzmann)
    if method == "population":
        return anneal_population(boltzmann, chains, seed, base=base, implementation=implementation)[0]
    options: dict[str, Any] = {
        "seed": seed,
        "temperatures": temperatures,
        "chains": chains,
        "base": base,
        "schedule": schedule,
        "implementation": implementation,
    }
    return ais(boltzmann, **options) if method == "ais" else sandwich(boltzmann, samples, **options)
