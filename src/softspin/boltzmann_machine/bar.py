"""The progress bar of a Boltzmann machine. Imported only where one is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softspin.boltzmann_machine.display import split_text
from softspin.training.bar import Bar


class LikelihoodBar(Bar):
    """A progress bar with the log-likelihoods of training and validation data (means over replicas), with intervals."""

    def report(self, line: Mapping[str, Any]) -> None:
        self.progress.update(self.task, bound=split_text(line, "train"), valid=split_text(line, "valid"))
