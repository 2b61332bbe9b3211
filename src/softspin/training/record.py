"""What the steps of a run report: running means, the first step that was not finite, and log Z's correction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

TERMS = ("bound", "reconstruction", "kl", "sampler", "gradient")
"""What a step reports: three parts of the bound; the sampler's quality, see :meth:`softspin.samplers.Sampler.quality`;
the norm of the gradient.

Bound and KL are as good as log Z is: estimated by the sampler (pa), whose errors add up, or left as it is (others),
until it is annealed, see :meth:`Record.correct_log_z`."""


class Record:
    """Sums over the steps since the last report, on the device, for R replicas."""

    def __init__(self, replicas: int, device: torch.device) -> None:
        self.sums = torch.zeros(replicas, len(TERMS), dtype=torch.float64, device=device)
        self.first_nonfinite = torch.full((replicas, len(TERMS)), -1, dtype=torch.int64, device=device)
        """The first step at which each term was not finite, or -1."""
        self.reported = 0
        """The step of the last report."""

    def add(self, terms: Tensor, step: Tensor) -> None:
        """The terms `(R, 5)` of a step; nothing is read on the host."""
        self.sums += terms
        first = (self.first_nonfinite < 0) & ~torch.isfinite(terms)
        self.first_nonfinite.copy_(torch.where(first, step, self.first_nonfinite))

    def correct_log_z(self, error: Tensor, kl_weight: Tensor, since: int, step: int) -> None:
        """Correct the means for an error of log Z `(R,)`, assuming that it grew linearly since step `since`."""
        first = max(since, self.reported)
        share = ((first + step) / 2 - since) / max(step - since, 1)
        total = (step - first) * share * error.to(self.sums)
        self.sums[:, TERMS.index("bound")] -= kl_weight * total
        self.sums[:, TERMS.index("kl")] += total

    def report(self, step: int) -> dict[str, Tensor]:
        """Means over the steps since the last report, `(R,)` each, by the names in `TERMS`."""
        count = max(step - self.reported, 1)
        means = (self.sums / count).cpu()
        self.sums.zero_()
        self.reported = step
        return {name: means[:, i] for i, name in enumerate(TERMS)}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {
            "sums": self.sums,
            "first_nonfinite": self.first_nonfinite,
            "reported": torch.tensor(self.reported),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what a checkpoint kept; the tensors are already copied."""
        self.reported = int(state["reported"])
