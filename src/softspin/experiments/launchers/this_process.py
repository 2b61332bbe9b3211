"""Launcher that trains in this process, one run after another."""

from __future__ import annotations

from collections.abc import Sequence

from softspin import data as datasets
from softspin.data import Dataset
from softspin.errors import BusyError, OutOfTimeError, TerminatedError
from softspin.experiments.launchers import Ended, Report
from softspin.experiments.reporting import Reporter
from softspin.experiments.runs import RunSpec, check_device, train_run


class ThisProcess:
    """Launcher that trains in this process, one run after another."""

    def __init__(self) -> None:
        self._data: dict[str, Dataset] = {}
        self._report: Report = lambda progress: None
        self._next: RunSpec | None = None
        self._failed: RunSpec | None = None

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        """Load all data sets."""
        self._data = load_data(specs)
        self._report = report

    @property
    def is_free(self) -> bool:
        """Whether no run waits for training."""
        return self._next is None

    def start(self, spec: RunSpec) -> None:
        """Remember a run; `wait` trains it.

        Raises:
            DeviceError: The run before has failed, and its device no longer works.
        """
        if self._failed is not None:  # after some errors a GPU rejects all further work, so every run would fail
            check_device(self._failed.config.device)
        self._next, self._failed = spec, None

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        """Train the run."""
        spec, self._next = self._next, None
        if spec is None:
            return []
        try:
            rows = train_run(
                spec, self._data[spec.config.data], callback=Reporter(spec, self._report), deadline=deadline
            )
        except BusyError:
            return [Ended(spec, "busy")]
        except TerminatedError:
            raise
        except OutOfTimeError as error:
            return [Ended(spec, "stopped", reason=str(error))]
        if not all(row.ok for row in rows):
            self._failed = spec
        return [Ended(spec, "done", rows)]

    def stop(self) -> Sequence[Ended]:
        """Forget a run that has not begun; one in training is stopped by a signal to this process."""
        self._next = None
        return []

    def close(self) -> None:
        """Nothing to free."""


def load_data(specs: Sequence[RunSpec]) -> dict[str, Dataset]:
    """Load the data sets of runs, by name.

    Args:
        specs: The runs.

    Returns:
        Data sets by name.

    Raises:
        DataError: One is missing or damaged.
    """
    return {name: datasets.load(name) for name in dict.fromkeys(spec.config.data for spec in specs)}
