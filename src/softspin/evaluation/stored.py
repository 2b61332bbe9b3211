"""A check of stored results: whether the prior contradicts the interval of log Z that comes with it."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from softspin.data.condition_inputs import read_condition
from softspin.distributions import Boltzmann
from softspin.model import DiscreteVAE
from softspin.random import KeyDomain
from softspin.records import ResultRow
from softspin.samplers import LogZWarning
from softspin.samplers.bounds import state_bound
from softspin.samplers.primitives import replica_rng_states, split_replicas
from softspin.samplers.search import find_states

ASCENTS = 64
"""Number of ascents: a tenth of a second for 400 units."""
MARGIN = 1e-3
"""Nats that a bound must exceed the interval by, so that rounding of the stored numbers is no contradiction."""


@torch.no_grad()
def check_stored(model: DiscreteVAE, rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """Check the log Z of a stored result by a lower bound from the states that a short search finds.

    Args:
        model: The model.
        rows: Its result, a row for each replica.

    Returns:
        The rows. Where the bound is above the interval, log Z and NLL are corrected to the bound, upper ends are None,
        and the row has a warning.

    Warns:
        LogZWarning: The bound is above the interval.
    """
    if model.condition is not None:
        return tuple(_checked(row, _mean_bound(model, row, replica)) for replica, row in enumerate(rows))
    return tuple(
        _checked(row, float(state_bound(one, find_states(one, _rng_state(one), count=ASCENTS).z)))
        for row, one in zip(rows, split_replicas(model.prior(validate=False)), strict=True)
    )


def _mean_bound(model: DiscreteVAE, row: ResultRow, replica: int) -> float:
    """Mean over images of a lower bound on log Z(c); -inf if the row does not have the values of the condition."""
    condition, found = model.condition, row.log_z_of_values or {}
    assert condition is not None
    try:
        given = condition.table.encode(read_condition(found["value"]))
        images = torch.tensor(found["images"], dtype=torch.float64)
        shares = torch.zeros(condition.count, dtype=torch.float64)
        shares.index_add_(0, condition.nearest(given.to(condition.values)).cpu(), images / images.sum())
    except (KeyError, TypeError, ValueError, RuntimeError):  # a row may be untrusted
        return -math.inf
    every = split_replicas(condition.spread(model.prior(validate=False)))
    own = every[replica * condition.count : (replica + 1) * condition.count]
    each = [
        share * float(state_bound(one, find_states(one, _rng_state(one), count=ASCENTS).z))
        for one, share in zip(own, shares.tolist(), strict=True)
        if share > 0
    ]
    return sum(each)


def _rng_state(boltzmann: Boltzmann) -> Tensor:
    return replica_rng_states(boltzmann, 0, KeyDomain.SEARCH)


def _checked(row: ResultRow, bound: float) -> ResultRow:
    high = row.log_z_high
    if row.nll is None or row.log_z is None or high is None or not bound > high + MARGIN * (1 + abs(high)):
        return row
    nll = row.nll - row.log_z + bound
    text = f"the stored log Z is at most {high:.2f}, but states were found whose sum makes it at least {bound:.2f}"
    warnings.warn(
        f"seed {row.seed}: {text}; its NLL is at least {nll:.2f}, not {row.nll:.2f}", LogZWarning, stacklevel=4
    )
    method = "bound (states were found that the stored interval excludes)"
    return dataclasses.replace(
        row, nll=nll, nll_low=nll, nll_high=None, log_z=bound, log_z_low=bound, log_z_high=None, log_z_method=method,
        warning=text if row.warning is None else f"{row.warning}; {text}",
    )  # fmt: skip
