"""log Z of the prior of a model: exact where that is cheap, annealed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

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


def log_z_for(
    model: DiscreteVAE,
    *,
    temperatures: int,
    chains: int,
    seed: int | Sequence[int] = 0,
    sandwich: bool = True,
    states: Tensor | None = None,
    progress: Progress | None = None,
) -> LogZ:
    """log Z of the prior of every replica.

    Exact if at most 24 units must be enumerated, or 20 without `sandwich`: the smaller side of an RBM, or on another
    graph all color classes but the largest. Otherwise by forward AIS (a lower bound, used for model selection during
    training), or with `sandwich` by AIS in both directions with its guards, for final results. Replicas are annealed
    one after another, so that no result depends on the other replicas.

    Args:
        model: Trained model.
        temperatures: Number of annealing steps.
        chains: Number of annealing chains.
        seed: One seed for all replicas, or one per replica.
        sandwich: Whether to anneal in both directions.
        states: States from which to search for those that annealing misses, such as codes of images, `(R, N, D)`.
        progress: Called before each annealing run with its name, the number of runs done and their total number.

    Returns:
        log Z, tensors `(R,)`.
    """
    path: dict[str, Any] = {"temperatures": temperatures, "chains": chains}
    seeds = replica_seeds(seed, model.replicas)
    prior = model.prior(validate=False)
    return log_z_of_replicas(prior, **path, seeds=seeds, sandwich=sandwich, states=states, progress=progress)


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
            _tell(progress, ("enumeration",), replica, len(replicas))("enumeration")
            results.append(exact(one))
        elif sandwich:
            starts = None if states is None else states[replica]
            tell = _tell(progress, SANDWICH_RUNS, replica, len(replicas))
            results.append(sandwich_ais(one, seed=own, progress=tell, starts=starts, guarded=guarded, **path))
        else:
            _tell(progress, SANDWICH_RUNS[:1], replica, len(replicas))(SANDWICH_RUNS[0])
            results.append(ais(one, seed=own, **path))
    numbers = zip(*(result[:5] for result in results), strict=True)
    flagged = [torch.as_tensor(bool(one.flagged)) for one in results]
    first = results[0]
    return LogZ._make((*(torch.stack(each) for each in numbers), first.method, first.kind, torch.stack(flagged)))


def _tell(progress: Progress | None, runs: Sequence[str], replica: int, replicas: int) -> Callable[[str], None]:
    """Report the runs of one replica as a part of those of all."""

    def tell(name: str) -> None:
        if progress is not None:
            which = f", replica {replica + 1} of {replicas}" if replicas > 1 else ""
            progress(f"log Z, {name}{which}", replica * len(runs) + runs.index(name), replicas * len(runs))

    return tell


def check_log_z(log_z: LogZ) -> None:
    """Raise SupportError unless log Z of all replicas is finite: parameters may be too large to add up."""
    for number, value in enumerate(log_z.value.tolist()):
        if not math.isfinite(value):
            raise SupportError(
                f"log Z of replica {number} is {value}: its parameters are too large for floating point; "
                "use another checkpoint, or train with a smaller learning_rate"
            )


def method_text(log_z: LogZ, replica: int) -> str:
    """How log Z of a replica was computed, for a result row."""
    if log_z.flagged is not None and bool(torch.as_tensor(log_z.flagged).flatten()[replica]):
        return f"bounds (states were found that the {log_z.method} misses)"
    return log_z.method
