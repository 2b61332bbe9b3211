"""log Z of the prior of a model: exact where that is cheap, annealed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softspin.evaluation.draws import replica_seeds
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.log_z import ais, exact
from softspin.samplers.log_z import sandwich as sandwich_ais
from softspin.samplers.primitives import split_replicas

EXACT = 20
"""Largest number of units to enumerate, of an RBM's smaller side: 2 seconds on two cores, less on a GPU."""


def log_z_for(
    model: DiscreteVAE,
    *,
    temperatures: int,
    chains: int,
    seed: int | Sequence[int] = 0,
    sandwich: bool = True,
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

    Returns:
        log Z, tensors `(R,)`.
    """
    results: list[LogZ] = []
    each = zip(split_replicas(model.prior(validate=False)), replica_seeds(seed, model.replicas), strict=True)
    for boltzmann, own in each:
        if boltzmann.enumerated_units <= EXACT:
            results.append(exact(boltzmann))
        else:
            anneal = sandwich_ais if sandwich else ais
            results.append(anneal(boltzmann, seed=own, temperatures=temperatures, chains=chains))
    numbers = zip(*(result[:5] for result in results), strict=True)
    return LogZ._make((*(torch.stack(each) for each in numbers), results[0].method, results[0].kind))
