"""Runs in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from softspin import data as datasets
from softspin.data import Dataset
from softspin.errors import BusyError
from softspin.experiments.launchers import Finished
from softspin.experiments.runs import RunSpec, check_device, train_run
from softspin.training.trainer import Callback


class ThisProcess:
    """A launcher that trains each run here, to its end, before the next one."""

    def __init__(self, callback: Callback | None = None) -> None:
        self.callback = callback
        self._data: dict[str, Dataset] = {}

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        """Load all data sets."""
        self._data = {name: datasets.load(name) for name in dict.fromkeys(spec.cell.data for spec in specs)}

    def launch(self, specs: Iterable[RunSpec], deadline: float | None = None) -> Iterator[Finished]:
        """Train one run after another."""
        for spec in specs:
            try:
                rows = train_run(spec, self._data[spec.cell.data], callback=self.callback, deadline=deadline)
            except BusyError:
                yield Finished(spec, None)
            else:
                yield Finished(spec, rows)

    def check(self, spec: RunSpec) -> None:
        """Raise if the device of a run does no more work."""
        check_device(spec.config.device)
