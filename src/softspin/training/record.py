"""Running means of a run's metrics, the first non-finite step, and the correction for log Z."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

TERMS = ("bound", "reconstruction", "kl", "sampler", "gradient")
"""Metrics of a step: bound, reconstruction and KL; the quality of the sampler, see
:meth:`softspin.samplers.Sampler.quality`; the norm of the gradient.

Bound and KL are as accurate as log Z. That of independent bits is exact. Otherwise, between two AIS estimates, log Z is
tracked by the sampler (pa), whose errors accumulate, or kept constant (other samplers).
:meth:`Record.correct_log_z` corrects the means afterwards."""


class Failure(NamedTuple):
    """The first non-finite number of a run."""

    step: int
    """Number of the step, counted from 1."""
    term: str
    """One of `TERMS`."""
    replica: int


class Record:
    """Sums of metrics over the steps since the last report, on the device.

    Args:
        replicas: Number of replicas R.
        device: Device of the sums.
    """

    def __init__(self, replicas: int, device: torch.device) -> None:
        self.sums = torch.zeros(replicas, len(TERMS), dtype=torch.float64, device=device)
        self.first_nonfinite = torch.full((replicas, len(TERMS)), -1, dtype=torch.int64, device=device)
        """The first step at which each term was non-finite, or -1."""
        self.reported = 0
        """Step of the last report."""

    def add(self, terms: Tensor, step: Tensor) -> None:
        """Add the terms of a step, without synchronizing with the host.

        Args:
            terms: Terms `(R, 5)`, in the order of `TERMS`.
            step: Number of the step, a scalar.
        """
        self.sums += terms
        first = (self.first_nonfinite < 0) & ~torch.isfinite(terms)
        self.first_nonfinite.copy_(torch.where(first, step, self.first_nonfinite))

    def failure(self) -> Failure | None:
        """The first non-finite number, or None. Waits for the device."""
        steps = self.first_nonfinite.cpu()
        if bool((steps < 0).all()):
            return None
        steps = torch.where(steps < 0, torch.iinfo(torch.int64).max, steps)
        replica, term = divmod(int(steps.argmin()), len(TERMS))
        return Failure(int(steps.min()) + 1, TERMS[term], replica)

    def correct_log_z(self, error: Tensor, kl_weight: Tensor, since: int, step: int) -> None:
        """Correct the means for an error of log Z, assuming that it grew linearly.

        Args:
            error: Error of log Z at the current step, `(R,)`.
            kl_weight: Weight of the KL in the bound.
            since: Step at which log Z was last correct.
            step: Current step.
        """
        first = max(since, self.reported)
        share = ((first + step) / 2 - since) / max(step - since, 1)
        total = (step - first) * share * error.to(self.sums)
        self.sums[:, TERMS.index("bound")] -= kl_weight * total
        self.sums[:, TERMS.index("kl")] += total

    def report(self, step: int) -> dict[str, Tensor]:
        """Means over the steps since the last report; resets the sums.

        Args:
            step: Current step.

        Returns:
            Means `(R,)` by the names in `TERMS`.
        """
        count = max(step - self.reported, 1)
        means = (self.sums / count).cpu()
        self.sums.zero_()
        self.reported = step
        return {name: means[:, i] for i, name in enumerate(TERMS)}

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint, by name."""
        return {
            "sums": self.sums,
            "first_nonfinite": self.first_nonfinite,
            "reported": torch.tensor(self.reported),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the host state from a checkpoint; the tensors are already copied."""
        self.reported = int(state["reported"])
