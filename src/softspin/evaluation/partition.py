"""log Z of a model's prior: exact where that is cheap, annealed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softspin.evaluation.draws import replica_seeds
from softspin.model import DiscreteVAE
from softspin.samplers import LogZ
from softspin.samplers.log_z import ais, exact
from softspin.samplers.log_z import sandwich as both_ways
from softspin.samplers.primitives import split_replicas

EXACT = 20
"""Units up to which log Z is enumerated, of an RBM's smaller side: 2 seconds on two cores, a GPU is faster."""


def log_z_for(
    model: DiscreteVAE,
    *,
    temperatures: int,
    chains: int,
    seed: int | Sequence[int] = 0,
    sandwich: bool = True,
) -> LogZ:
    """log Z of every replica's machine, tensors `(R,)`.

    Exact where a side has at most 20 units, or of another graph all colours but the largest; else annealed forward (a
    lower bound, as selection during training uses it), or with `sandwich` in both directions, as a final result should
    be. One seed serves all replicas unless each has its own. They are annealed one after another, so that no result
    depends on the neighbours.
    """
    results: list[LogZ] = []
    each = zip(split_replicas(model.prior(validate=False)), replica_seeds(seed, model.replicas), strict=True)
    for boltzmann, own in each:
        if boltzmann.enumerated_units <= EXACT:
            results.append(exact(boltzmann))
        else:
            anneal = both_ways if sandwich else ais
            results.append(anneal(boltzmann, seed=own, temperatures=temperatures, chains=chains))
    numbers = zip(*(result[:5] for result in results), strict=True)
    return LogZ._make((*(torch.stack(each) for each in numbers), results[0].method, results[0].kind))
