"""The progress bar of a Boltzmann machine. Imported only where one is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softspin.training.bar import Bar
from softspin.training.progress import mean_text


class LikelihoodBar(Bar):
    """A progress bar with the log-likelihoods of training and validation data (means over replicas)."""

    def report(self, line: Mapping[str, Any]) -> None:
        train, valid = (f"{name} {mean_text(line[name])}" for name in ("train", "valid"))
        self.progress.update(self.task, bound=train, valid=valid)
