"""log Z by annealed importance sampling forward and in reverse, or exactly.

e^(AIS weight) is unbiased for Z, so its log is too low on average, and a likelihood computed with it too high.
Annealing in reverse from samples of the machine errs on the other side. The two together, :func:`sandwich`, are what
a report should quote. Neither sees a mode that neither the annealing nor the samples have visited.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments
from softspin.distributions import Boltzmann
from softspin.distributions.enumeration import LARGEST
from softspin.errors import SupportError, unknown_name
from softspin.kernels import Implementation
from softspin.numerics import softplus
from softspin.random import DrawDomain, KeyDomain, one_uniform
from softspin.samplers.population_log_z import anneal_population
from softspin.samplers.primitives import (
    anneal,
    base_biases,
    check_boltzmann,
    check_chains,
    check_count,
    check_implementation,
    replica_rng_states,
    worst_replica,
)
from softspin.samplers.resampling import mean_square_family, systematic
from softspin.samplers.result import NORMAL_95, LogZ, log_mean_error, log_mean_exp, weight_ess
from softspin.samplers.schedules import check_schedule, linear_schedule

METHODS = ("auto", "exact", "ais", "sandwich", "population")

ROUNDING = 1e-6
"""Of a log Z by float32 sweeps, relative: where all weights are equal, their spread is less than that."""


class SandwichWarning(UserWarning):
    """The reverse estimate lies clearly below the forward one: the samples are not those of the machine.

    No warning is no proof that they are, see :func:`reverse_ais`.
    """


@torch.no_grad()
def exact(boltzmann: Boltzmann) -> LogZ:
    """log Z by enumeration in float64: one side (on any graph: all but one colour class) of at most 24 units.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> exact(BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3))).value
    tensor(3.4657, dtype=torch.float64)
    """
    check_boltzmann(boltzmann)
    parameters = (x.detach().to(torch.float64) for x in (boltzmann.bias, boltzmann.couplings))
    precise = boltzmann.with_parameters(*parameters)
    value = precise.exact_log_z()
    many = torch.full_like(value, torch.inf)
    return LogZ(value, torch.zeros_like(value), many, value, value, method="exact", kind="exact")


@torch.no_grad()
def ais(
    boltzmann: Boltzmann,
    *,
    seed: int,
    temperatures: int = 10_000,
    chains: int = 1_000,
    base: str | Tensor = "centred",
    schedule: Tensor | None = None,
    implementation: Implementation = "auto",
) -> LogZ:
    """Forward AIS from independent units with biases `base` to the machine: a lower bound on log Z, in expectation.

    base: "centred", "bias", "uniform" or a tensor `(*replicas, D)`, see :func:`base_biases`. `schedule`, a tensor
    from 0 to 1, replaces the even one of `temperatures` steps. Memory is that of the chains.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> result = ais(boltzmann, seed=0, temperatures=20, chains=500)
    >>> bool((result.value - exact(boltzmann).value).abs() < 3 * result.standard_error)
    True
    """
    check_boltzmann(boltzmann)
    check_count("chains", chains)
    biases = base_biases(boltzmann, base)
    steps = check_schedule(linear_schedule(temperatures) if schedule is None else schedule)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.FORWARD_AIS)
    log_weights, _ = anneal(boltzmann, biases, steps, chains, rng_state, implementation=implementation)
    error = log_mean_error(weight_ess(log_weights), chains)
    value = softplus(biases.to(torch.float64)).sum(-1) + log_mean_exp(log_weights)
    return LogZ(
        value=value,
        standard_error=error,
        effective_sample_size=weight_ess(log_weights),
        lower=value - NORMAL_95 * error,
        upper=torch.full_like(value, torch.inf),
        method="ais",
        kind="lower bound",
    )


@renamed_arguments(kinship="family_correlation")
@torch.no_grad()
def reverse_ais(
    boltzmann: Boltzmann,
    samples: Tensor,
    *,
    seed: int,
    temperatures: int = 10_000,
    base: str | Tensor = "centred",
    schedule: Tensor | None = None,
    family_correlation: Tensor | float = 1.0,
    implementation: Implementation = "auto",
) -> LogZ:
    """AIS backwards from `samples` `(*replicas, chains, D)` of the machine to the base: an upper bound, in expectation.

    That, and its standard error, hold for independent samples of the machine; of a population, pass its mean square
    family size as `family_correlation` `(*replicas,)`. The schedule is the forward one, from 0 to 1.

    Samples that show only a part A of the states give log Z + log p(A) - log q(A), where q(A) is the share of the
    forward chains, before weighting, that end in A. So a missing mode biases the result downwards where annealing
    prefers A, upwards where it avoids A, and not at all where it ends in A as often as it should.
    """
    check_boltzmann(boltzmann)
    check_chains(samples, boltzmann, what="the samples")
    biases = base_biases(boltzmann, base)
    steps = check_schedule(linear_schedule(temperatures) if schedule is None else schedule)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.REVERSE_AIS)
    chains = samples.shape[-2]
    log_weights, _ = anneal(boltzmann, biases, steps.flip(0), chains, rng_state, samples, implementation)
    error = log_mean_error(weight_ess(log_weights), chains, family_correlation)
    value = softplus(biases.to(torch.float64)).sum(-1) - log_mean_exp(log_weights)
    return LogZ(
        value=value,
        standard_error=error,
        effective_sample_size=weight_ess(log_weights) / family_correlation,
        lower=torch.full_like(value, -torch.inf),
        upper=value + NORMAL_95 * error,
        method="reverse ais",
        kind="upper bound",
    )


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
) -> LogZ:
    """AIS in both directions: value and standard error of the forward run, `upper` from the reverse one.

    The forward value needs no samples and is what AIS papers quote, so it is the value. [lower, upper] runs from 1.96
    standard errors below it to 1.96 above the reverse, or above itself if that is higher. Without `samples` a second
    forward run makes them, its chains resampled by their weights, and the reverse run's error counts whose children
    they are; with them they are taken to be independent. Where the reverse lies clearly below the forward, which
    samples of the machine cannot do, it warns, and the interval covers both. That finds samples out only where
    annealing sees more than they do.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> result = sandwich(boltzmann, seed=0, temperatures=20, chains=500)
    >>> bool((result.lower < exact(boltzmann).value) & (exact(boltzmann).value < result.upper))
    True
    """
    path: dict[str, Any] = {
        "seed": seed,
        "temperatures": temperatures,
        "base": base,
        "schedule": schedule,
        "implementation": implementation,
    }
    check_count("chains", chains, least=2 if samples is None else 1)
    forward = ais(boltzmann, chains=chains, **path)
    family_correlation: Tensor | float = 1.0
    if samples is None:
        samples, family_correlation = _draws(boltzmann, chains, **path)
    reverse = reverse_ais(boltzmann, samples, family_correlation=family_correlation, **path)
    crossed = reverse.upper < forward.lower - ROUNDING * (1 + forward.value.abs())
    if bool(crossed.any()):
        worst, name = worst_replica(forward.lower - reverse.upper)
        warnings.warn(
            f"{name}reverse AIS gives log Z below {reverse.upper[worst].item():.2f}, forward AIS above "
            f"{forward.lower[worst].item():.2f}; the samples are not those of the machine, or too few",
            SandwichWarning,
            stacklevel=3,
        )
    lowest = torch.minimum(forward.lower, reverse.value - NORMAL_95 * reverse.standard_error)
    low = torch.where(crossed, lowest, forward.lower)
    high = torch.maximum(reverse.upper, forward.value + NORMAL_95 * forward.standard_error)
    return forward._replace(lower=low, upper=high, method="sandwich", kind="estimate")


def _draws(
    boltzmann: Boltzmann,
    chains: int,
    *,
    seed: int,
    temperatures: int,
    base: str | Tensor,
    schedule: Tensor | None,
    implementation: Implementation,
) -> tuple[Tensor, Tensor]:
    """Samples of the machine `(*replicas, chains, D)`, annealed and resampled, and their mean square family size."""
    steps = linear_schedule(temperatures) if schedule is None else schedule
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.AIS_SAMPLES)
    log_weights, z = anneal(
        boltzmann, base_biases(boltzmann, base), steps, chains, rng_state, implementation=implementation
    )
    weights = torch.exp(log_weights - log_weights.amax(-1, keepdim=True))
    parents = systematic(weights, one_uniform(rng_state, DrawDomain.RESAMPLE)[..., None])
    return z.gather(-2, parents[..., None].expand(z.shape)), mean_square_family(parents)


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
    """log Z by a method named in a configuration. "auto" is exact where that is possible and the sandwich elsewhere.

    All options are checked, whether the method needs them or not. A schedule or samples are refused by a method that
    has no use for them.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> estimate(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), seed=0).kind
    'exact'
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    for option, given, takers in (("schedule", schedule, ("ais", "sandwich")), ("samples", samples, ("sandwich",))):
        if given is not None and method not in ("auto", *takers):
            raise SupportError(f"method '{method}' takes no {option}; leave it out or use {' or '.join(takers)}")
    check_count("chains", chains, least=1 if method in ("exact", "ais") or samples is not None else 2)
    check_schedule(linear_schedule(temperatures) if schedule is None else schedule)
    base_biases(boltzmann, base)
    check_implementation(boltzmann, implementation)
    if samples is not None:
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
