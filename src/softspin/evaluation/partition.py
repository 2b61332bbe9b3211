"""log Z of the prior of a model: exact where that is cheap, annealed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.conditions import Condition
from softspin.distributions import Boltzmann
from softspin.distributions.enumeration import LARGEST
from softspin.errors import SupportError
from softspin.evaluation.draws import replica_seeds
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.log_z import SANDWICH_RUNS, ais, exact
from softspin.samplers.log_z import sandwich as sandwich_ais
from softspin.samplers.primitives import split_replicas

Progress = Callable[[str, int, int], None]
"""Called with the name of a phase, the number of its parts that are done, and their total number."""

EXACT = 20
"""Largest number of units to enumerate in every validation, of an RBM's smaller side: 2 seconds on two cores."""
ROUNDING = 0.01
"""Nats by which rounding may change the energy of a state. With more, neither log Z nor a likelihood means anything."""
FEWEST_CHAINS = 32
"""Fewest chains of a forward AIS for one value of a condition."""


def log_z_for(
    model: DiscreteVAE,
    *,
    temperatures: int,
    chains: int,
    seed: int | Sequence[int] = 0,
    sandwich: bool = True,
    states: Tensor | None = None,
    progress: Progress | None = None,
    values: Sequence[int] | None = None,
) -> LogZ:
    """log Z of the prior of every replica; of a conditional model, log Z(c) of every value of the condition.

    Exact if at most 24 units must be enumerated, or 20 without `sandwich`: the smaller side of an RBM, or on another
    graph all color classes but the largest; of independent bits none. Otherwise by forward AIS (a lower bound, used for
    model selection during training), or with `sandwich` by AIS in both directions with its guards, for final results.
    Replicas are annealed one after another, so that no result depends on the other replicas.

    The chains of a forward AIS are divided among the values of the condition, because it is their mean that selects a
    model. For final results each value has all of them.

    Args:
        model: Trained model.
        temperatures: Number of annealing steps.
        chains: Number of annealing chains.
        seed: One seed for all replicas, or one per replica.
        sandwich: Whether to anneal in both directions.
        states: States from which to search for those that annealing misses, such as codes of images, `(R, N, D)`.
        progress: Called before each annealing run with its name, the number of runs done and their total number.
        values: Numbers of the values of the condition, of which log Z is needed; by default all.

    Returns:
        log Z, tensors `(R,)`; of a conditional model `(R, V)`, NaN for values that are not needed.
    """
    path: dict[str, Any] = {"temperatures": temperatures, "chains": chains}
    seeds = replica_seeds(seed, model.replicas)
    prior = model.prior(validate=False)
    if model.condition is not None:
        wanted = range(model.condition.count) if values is None else values
        return _log_z_of_values(model, wanted, seeds, sandwich, states, progress, **path)
    found = log_z_of_replicas(prior, **path, seeds=seeds, sandwich=sandwich, states=states, progress=progress)
    return without_rounded(found, prior)


def _log_z_of_values(
    model: DiscreteVAE,
    wanted: Sequence[int],
    seeds: Sequence[int],
    sandwich: bool,
    states: Tensor | None,
    progress: Progress | None,
    *,
    temperatures: int,
    chains: int,
) -> LogZ:
    """log Z(c) of some values of the condition, `(R, V)`."""
    condition, count = model.condition, len(wanted)
    assert condition is not None
    every = condition.spread(model.prior(validate=False))
    index = torch.tensor([r * condition.count + v for r in range(model.replicas) for v in wanted]).to(every.bias.device)
    every = every.with_parameters(every.bias[index], every.couplings[index])
    found = log_z_of_replicas(
        every,
        temperatures=temperatures,
        chains=chains if sandwich else max(FEWEST_CHAINS, chains // count),
        seeds=[seed + (value << 40) for seed in seeds for value in wanted],
        sandwich=sandwich,
        exact_units=(LARGEST if sandwich else EXACT) - math.ceil(math.log2(max(1, count))),
        states=None if states is None else states.repeat_interleave(count, 0),
        progress=progress,
        names=[_value_name(condition, value) for _ in seeds for value in wanted],
    )
    found = without_rounded(found, every)

    def placed(numbers: Tensor) -> Tensor:
        like = numbers.new_full((len(seeds) * condition.count,), torch.nan) if numbers.is_floating_point() else (
            numbers.new_zeros(len(seeds) * condition.count)
        )  # fmt: skip
        return like.index_copy(0, index.to(numbers.device), numbers).reshape(len(seeds), condition.count)

    flagged = None if found.flagged is None else placed(torch.as_tensor(found.flagged))
    return LogZ._make((*(placed(each) for each in found[:5]), found.method, found.kind, flagged))


def _value_name(condition: Condition, value: int) -> str:
    return f"condition {condition.table.texts(condition.table.raw_values()[[value]])[0]}"


def mean_log_z(log_z: LogZ, shares: Tensor) -> LogZ:
    """Mean of log Z(c) over images. Its interval is that with all log Z(c) at their lower or upper limits.

    Errors of the values are added, as if they were fully correlated, so the standard error is an upper bound.

    Args:
        log_z: log Z of each value, `(R, V)`; values that do not occur may be NaN.
        shares: Fraction of the images with each value, `(V,)`.

    Returns:
        The mean, tensors `(R,)`.
    """
    occurs = shares > 0

    def mean(numbers: Tensor) -> Tensor:
        return (numbers[:, occurs] * shares[occurs].to(numbers)).sum(-1)

    flagged = None if log_z.flagged is None else torch.as_tensor(log_z.flagged)[:, occurs].any(-1)
    size = log_z.effective_sample_size[:, occurs].amin(-1)
    return log_z._replace(
        value=mean(log_z.value),
        standard_error=mean(log_z.standard_error),
        effective_sample_size=size,
        lower=mean(log_z.lower),
        upper=mean(log_z.upper),
        flagged=flagged,
    )


def log_z_of_replicas(
    boltzmann: Boltzmann,
    *,
    temperatures: int,
    chains: int,
    seeds: Sequence[int],
    sandwich: bool = True,
    guarded: bool = True,
    exact_units: int | None = None,
    base: Tensor | None = None,
    states: Tensor | None = None,
    progress: Progress | None = None,
    names: Sequence[str] | None = None,
) -> LogZ:
    """log Z of every replica of a Boltzmann machine, as :func:`log_z_for`.

    Args:
        boltzmann: Boltzmann machine with one replica dimension R.
        temperatures: Number of annealing steps.
        chains: Number of annealing chains.
        seeds: One seed per replica.
        sandwich: Whether to anneal in both directions.
        guarded: Whether the sandwich has its guards.
        exact_units: Largest number of units to enumerate; by default 24, or 20 without `sandwich`.
        base: Biases at which annealing starts, `(R, D)`; by default "centred", see
            :func:`softspin.samplers.primitives.base_biases`.
        states: States from which to search for those that annealing misses, `(R, N, D)`.
        progress: Called before each annealing run with its name, the number of runs done and their total number.
        names: Names of the replicas for `progress`; by default their numbers.

    Returns:
        log Z, tensors `(R,)`.
    """
    results: list[LogZ] = []
    path: dict[str, Any] = {"temperatures": temperatures, "chains": chains}
    largest = exact_units if exact_units is not None else LARGEST if sandwich else EXACT
    replicas = split_replicas(boltzmann)
    for replica, (one, own) in enumerate(zip(replicas, seeds, strict=True)):
        path["base"] = "centred" if base is None else base[replica]
        if one.enumerated_units <= largest:
            _tell(progress, ("enumeration",), replica, len(replicas), names)("enumeration")
            results.append(exact(one))
        elif sandwich:
            starts = None if states is None else states[replica]
            tell = _tell(progress, SANDWICH_RUNS, replica, len(replicas), names)
            results.append(sandwich_ais(one, seed=own, progress=tell, starts=starts, guarded=guarded, **path))
        else:
            _tell(progress, SANDWICH_RUNS[:1], replica, len(replicas), names)(SANDWICH_RUNS[0])
            results.append(ais(one, seed=own, **path))
    numbers = zip(*(result[:5] for result in results), strict=True)
    flagged = [torch.as_tensor(bool(one.flagged), device=one.value.device) for one in results]
    first = results[0]
    return LogZ._make((*(torch.stack(each) for each in numbers), first.method, first.kind, torch.stack(flagged)))


def _tell(
    progress: Progress | None, runs: Sequence[str], replica: int, replicas: int, names: Sequence[str] | None
) -> Callable[[str], None]:
    """Report the runs of one replica as a part of those of all."""

    def tell(name: str) -> None:
        if progress is not None:
            which = f", replica {replica + 1} of {replicas}" if replicas > 1 else ""
            which = which if names is None else f", {names[replica]}"
            progress(f"log Z, {name}{which}", replica * len(runs) + runs.index(name), replicas * len(runs))

    return tell


def without_rounded(log_z: LogZ, boltzmann: Boltzmann, dtype: torch.dtype | None = None) -> LogZ:
    """log Z, infinite where parameters are so large that energies are rounded by more than 0.01 nat.

    Energies of 1e10 are rounded to multiples of 1,024 in float32. A likelihood, the difference of two of them, would be
    finite and meaningless.

    Args:
        log_z: log Z of every replica, `(R,)`.
        boltzmann: Boltzmann machine with one replica dimension R.
        dtype: Type in which energies are computed; by default that of the parameters.

    Returns:
        log Z with infinite value and ends for such replicas, and where it is NaN.
    """
    largest = torch.maximum(boltzmann.bias.abs().amax(-1), boltzmann.couplings.abs().amax((-2, -1)))
    largest = torch.maximum(largest.to(log_z.value), log_z.value.abs())
    limit = ROUNDING / torch.finfo(dtype or boltzmann.bias.dtype).eps
    bad = ~(largest <= limit)  # also NaN
    value, lower, upper = (each.masked_fill(bad, torch.inf) for each in (log_z.value, log_z.lower, log_z.upper))
    return log_z._replace(value=value, lower=lower, upper=upper)


def check_log_z(log_z: LogZ) -> None:
    """Raise SupportError unless log Z of all replicas is finite: parameters may be too large to add up."""
    each = log_z.value.reshape(len(log_z.value), -1).nansum(-1) if log_z.value.ndim > 1 else log_z.value
    for number, value in enumerate(each.tolist()):
        if not math.isfinite(value):
            raise SupportError(
                f"log Z of replica {number} is {value}: its parameters are too large for floating point; "
                "use another checkpoint, or train with a smaller learning_rate"
            )


def method_text(log_z: LogZ, replica: int) -> str:
    """How log Z of a replica was computed, for a result row."""
    if log_z.is_flagged(replica):
        return f"bounds (states were found that the {log_z.method} misses)"
    return log_z.method
