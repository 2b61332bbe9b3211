"""Annealed importance sampling (AIS) of log Z, forward and in reverse.

e^(AIS weight) is an unbiased estimate of Z, so its log is too low on average. Reverse annealing from samples of the
Boltzmann machine errs on the other side.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments
from softspin.distributions import Boltzmann
from softspin.kernels import Implementation
from softspin.numerics import softplus
from softspin.random import KeyDomain
from softspin.samplers.primitives import (
    anneal,
    base_biases,
    check_boltzmann,
    check_chains,
    check_count,
    replica_rng_states,
)
from softspin.samplers.result import NORMAL_95, LogZ, log_mean_error, log_mean_exp, weight_ess
from softspin.samplers.schedules import check_schedule, linear_schedule


class Chains(NamedTuple):
    """The end of an annealing."""

    log_weights: Tensor
    """log of an unbiased estimate of Z by each chain, `(*replicas, C)`."""
    z: Tensor
    """The last states, or the first of reverse annealing, `(*replicas, C, D)`."""


class Path(NamedTuple):
    """An annealing path."""

    base: Tensor
    """Biases at inverse temperature 0, `(*replicas, D)`."""
    schedule: Tensor
    """Increasing inverse temperatures, `(T + 1,)`."""
    implementation: Implementation


def annealing_path(
    boltzmann: Boltzmann,
    temperatures: int,
    base: str | Tensor,
    schedule: Tensor | None,
    implementation: Implementation,
) -> Path:
    """The annealing path of a Boltzmann machine, checked."""
    check_boltzmann(boltzmann)
    steps = check_schedule(linear_schedule(temperatures) if schedule is None else schedule)
    return Path(base_biases(boltzmann, base), steps, implementation)


@renamed_arguments(machine="boltzmann")
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
    """Forward AIS from independent units to the Boltzmann machine: a lower bound on log Z in expectation.

    Memory is that of the chains.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> result = ais(boltzmann, seed=0, temperatures=20, chains=500)
    >>> bool((result.value - boltzmann.exact_log_z()).abs() < 3 * result.standard_error)
    True

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        seed: Seed of the random numbers.
        temperatures: Number of equal steps of the inverse temperature.
        chains: Number of chains per replica.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.
        schedule: Increasing inverse temperatures from 0 to 1, `(T + 1,)`, in place of `temperatures` equal steps.
        implementation: Implementation of the sweeps.

    Returns:
        The estimate, of kind "lower bound".

    References:
        R. M. Neal, 2001, Annealed Importance Sampling, arXiv:physics/9803008.
        R. Salakhutdinov and I. Murray, 2008, On the Quantitative Analysis of Deep Belief Networks, ICML.
    """
    path = annealing_path(boltzmann, temperatures, base, schedule, implementation)
    return forward_chains(boltzmann, path, chains, seed=seed)[0]


def forward_chains(
    boltzmann: Boltzmann, path: Path, chains: int, *, seed: int, domain: int = KeyDomain.FORWARD_AIS
) -> tuple[LogZ, Chains]:
    """The estimate of :func:`ais`, and its chains."""
    check_count("chains", chains)
    rng_state = replica_rng_states(boltzmann, seed, domain)
    log_weights, z = anneal(boltzmann, path.base, path.schedule, chains, rng_state, implementation=path.implementation)
    log_base = softplus(path.base.to(torch.float64)).sum(-1)
    error = log_mean_error(weight_ess(log_weights), chains)
    value = log_base + log_mean_exp(log_weights)
    found = LogZ(
        value=value,
        standard_error=error,
        effective_sample_size=weight_ess(log_weights),
        lower=value - NORMAL_95 * error,
        upper=torch.full_like(value, torch.inf),
        method="ais",
        kind="lower bound",
    )
    return found, Chains(log_base[..., None] + log_weights, z)


@renamed_arguments(machine="boltzmann", kinship="family_correlation")
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
    """Reverse AIS from samples of the Boltzmann machine to the base: an upper bound on log Z in expectation.

    The bound and its standard error hold for independent samples of the Boltzmann machine. For a population, pass its
    mean square family size as `family_correlation`.

    If the samples cover only a subset A of the states, the result is log Z + log p(A) - log q(A), where q(A) is the
    fraction of the forward chains, before weighting, that end in A. So a missing mode biases the result downwards if
    annealing prefers A, upwards if it avoids A, and not at all if it ends in A with the right frequency.

    Args:
        boltzmann: Boltzmann machine at inverse temperature 1.
        samples: Samples of it, `(*replicas, chains, D)`.
        seed: Seed of the random numbers.
        temperatures: Number of equal steps of the inverse temperature.
        base: "centred", "bias", "uniform" or biases `(*replicas, D)`, see :func:`base_biases`.
        schedule: The forward schedule, increasing from 0 to 1, `(T + 1,)`, in place of `temperatures` equal steps.
        family_correlation: Mean square family size of the samples, `(*replicas,)`; 1 for independent samples.
        implementation: Implementation of the sweeps.

    Returns:
        The estimate, of kind "upper bound".

    References:
        R. B. Grosse, Z. Ghahramani and R. P. Adams, 2015, Sandwiching the Marginal Likelihood Using Bidirectional Monte
        Carlo, arXiv:1511.02543.
    """
    path = annealing_path(boltzmann, temperatures, base, schedule, implementation)
    return reverse_chains(boltzmann, samples, path, seed=seed, family_correlation=family_correlation)[0]


def reverse_chains(
    boltzmann: Boltzmann, samples: Tensor, path: Path, *, seed: int, family_correlation: Tensor | float
) -> tuple[LogZ, Chains]:
    """The estimate of :func:`reverse_ais`, and its chains."""
    samples = boltzmann.as_states("the samples", samples)
    check_chains(samples, boltzmann, what="the samples")
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.REVERSE_AIS)
    chains = samples.shape[-2]
    log_weights, _ = anneal(
        boltzmann, path.base, path.schedule.flip(0), chains, rng_state, samples, path.implementation
    )
    error = log_mean_error(weight_ess(log_weights), chains, family_correlation)
    log_base = softplus(path.base.to(torch.float64)).sum(-1)
    value = log_base - log_mean_exp(log_weights)
    found = LogZ(
        value=value,
        standard_error=error,
        effective_sample_size=weight_ess(log_weights) / family_correlation,
        lower=torch.full_like(value, -torch.inf),
        upper=value + NORMAL_95 * error,
        method="reverse ais",
        kind="upper bound",
    )
    return found, Chains(log_base[..., None] - log_weights, samples)
