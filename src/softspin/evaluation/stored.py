"""A check of stored results: whether the prior contradicts the interval of log Z that comes with it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.conditions import Condition
from softspin.data.condition_inputs import read_for
from softspin.distributions import Boltzmann
from softspin.errors import SoftspinError
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
        _checked(row, searched_bound(one))
        for row, one in zip(rows, split_replicas(model.prior(validate=False)), strict=True)
    )


@torch.no_grad()
def searched_bound(boltzmann: Boltzmann) -> float:
    """A lower bound on log Z from the states that a short search finds.

    Args:
        boltzmann: Boltzmann machine without replicas.

    Returns:
        The bound.
    """
    rng_state = replica_rng_states(boltzmann, 0, KeyDomain.SEARCH)
    return float(state_bound(boltzmann, find_states(boltzmann, rng_state, count=ASCENTS).z))


def contradicts(bound: float, high: float) -> bool:
    """Whether a lower bound on log Z is above the upper end of a stored interval."""
    return bound > high + MARGIN * (1 + abs(high))


def _mean_bound(model: DiscreteVAE, row: ResultRow, replica: int) -> float:
    """Mean over images of a lower bound on log Z(c); the smallest if the row does not say how many have each value."""
    condition = model.condition
    assert condition is not None
    every = split_replicas(condition.spread(model.prior(validate=False)))
    own = every[replica * condition.count : (replica + 1) * condition.count]
    shares = _shares(condition, row.log_z_of_values or {})
    if shares is None:
        return min(searched_bound(one) for one in own)
    return sum(share * searched_bound(one) for one, share in zip(own, shares.tolist(), strict=True) if share > 0)


def _shares(condition: Condition, found: Mapping[str, Any]) -> Tensor | None:
    """Fraction of the images with each value of the condition, `(V,)`; None if a row, perhaps untrusted, lacks it."""
    try:
        given = condition.table.encode(read_for(condition.table, found["value"]))
        images = torch.tensor(found["images"], dtype=torch.float64)
        if not bool((images.isfinite() & (images > 0)).all()) or len(images) != len(given):
            return None
        shares = torch.zeros(condition.count, dtype=torch.float64)
        return shares.index_add_(0, condition.nearest(given.to(condition.values)).cpu(), images / images.sum())
    except (SoftspinError, LookupError, TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _checked(row: ResultRow, bound: float) -> ResultRow:
    high = row.log_z_high
    if row.nll is None or row.log_z is None or high is None or not contradicts(bound, high):
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
