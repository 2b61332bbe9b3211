"""log Z of the prior of a model: exact where that is cheap, annealed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softspin.evaluation.draws import replica_seeds
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.log_z import SANDWICH_RUNS, ais, exact
from softspin.samplers.log_z import sandwich as sandwich_ais
from softspin.samplers.primitives import split_replicas

Progress = Callable[[str, int, int], None]
"""Called with the name of a phase, the number of its parts that are done, and their total number."""

EXACT = 20
"""Largest number of units to enumerate, of an RBM's smaller side: 2 seconds on two cores, less on a GPU."""


def log_z_for(
    model: DiscreteVAE,
    *,
    temperatures: int,
    chains: int,
    seed: int | Sequence[int] = 0,
    sandwich: bool = True,
    progress: Progress | None = None,
) -> LogZ:
    """log Z of the prior of every replica.

    Exact if at most 20 units must be enumerated: the smaller side of an RBM, or on another graph all color classes but
    the largest. Otherwise by forward AIS (a lower bound, used for model selection during training), or with `sandwich`
    by AIS in both directions, for final results. Replicas are annealed one after another, so that no result depends on
    the other replicas.

    Args:
        model: Trained model.
        temperatures: Number of annealing steps.
        chains: Number of annealing chains.
        seed: One seed for all replicas, or one per replica.
        sandwich: Whether to anneal in both directions.
        progress: Called before each annealing run with its name, the number of runs done and their total number.

    Returns:
        log Z, tensors `(R,)`.
    """
    results: list[LogZ] = []
    each = zip(split_replicas(model.prior(validate=False)), replica_seeds(seed, model.replicas), strict=True)
    path: dict[str, Any] = {"temperatures": temperatures, "chains": chains}
    for replica, (boltzmann, own) in enumerate(each):
        if boltzmann.enumerated_units <= EXACT:
            _tell(progress, ("enumeration",), replica, model.replicas)("enumeration")
            results.append(exact(boltzmann))
        elif sandwich:
            tell = _tell(progress, SANDWICH_RUNS, replica, model.replicas)
            results.append(sandwich_ais(boltzmann, seed=own, progress=tell, **path))
        else:
            _tell(progress, SANDWICH_RUNS[:1], replica, model.replicas)(SANDWICH_RUNS[0])
            results.append(ais(boltzmann, seed=own, **path))
    numbers = zip(*(result[:5] for result in results), strict=True)
    return LogZ._make((*(torch.stack(each) for each in numbers), results[0].method, results[0].kind))


def _tell(progress: Progress | None, runs: Sequence[str], replica: int, replicas: int) -> Callable[[str], None]:
    """Report the runs of one replica as a part of those of all."""

    def tell(name: str) -> None:
        if progress is not None:
            which = f", replica {replica + 1} of {replicas}" if replicas > 1 else ""
            progress(f"log Z, {name}{which}", replica * len(runs) + runs.index(name), replicas * len(runs))

    return tell
