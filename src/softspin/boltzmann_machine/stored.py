"""A check of stored results: whether a Boltzmann machine contradicts the interval of log Z that comes with it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

from softspin.boltzmann_machine.run_files import BoltzmannResult
from softspin.distributions import Boltzmann
from softspin.evaluation.stored import contradicts, searched_bound
from softspin.samplers import LogZWarning
from softspin.samplers.primitives import split_replicas


def check_stored(boltzmann: Boltzmann, rows: Sequence[BoltzmannResult]) -> tuple[BoltzmannResult, ...]:
    """Check the log Z of a stored result by a lower bound from the states that a short search finds.

    Args:
        boltzmann: Boltzmann machine with one replica dimension.
        rows: Its result, a row for each replica.

    Returns:
        The rows. Where the bound is above the interval, log Z and log-likelihoods are corrected to the bound, unknown
        ends are None, and the row has a warning.

    Warns:
        LogZWarning: The bound is above the interval.
    """
    pairs = zip(rows, split_replicas(boltzmann), strict=True)
    return tuple(_checked(row, searched_bound(one)) for row, one in pairs)


def _checked(row: BoltzmannResult, bound: float) -> BoltzmannResult:
    high = row.log_z_high
    if high is None or not contradicts(bound, high):
        return row
    lower = bound - row.log_z
    text = f"the stored log Z is at most {high:.2f}, but states were found whose sum makes it at least {bound:.2f}"
    told = f"its test log-likelihood is at most {row.test - lower:.2f}, not {row.test:.2f}"
    warnings.warn(f"seed {row.seed}: {text}; {told}", LogZWarning, stacklevel=4)
    return dataclasses.replace(
        row, train=row.train - lower, valid=row.valid - lower, test=row.test - lower, test_low=None,
        test_high=row.test - lower, log_z=bound, log_z_low=bound, log_z_high=None,
        log_z_method="bound (states were found that the stored interval excludes)",
        warning=text if row.warning is None else f"{row.warning}; {text}",
    )  # fmt: skip
