"""Launcher that trains in this process, one run after another."""

from __future__ import annotations

from collections.abc import Sequence

from softspin import api
from softspin.config import Config
from softspin.data import Dataset
from softspin.data.keys import PARTS
from softspin.errors import BusyError, OutOfTimeError, TerminatedError
from softspin.experiments.launchers import Ended, Report
from softspin.experiments.reporting import Reporter
from softspin.experiments.runs import RunSpec, check_device, train_run
from softspin.parts import LIKELIHOODS

DataKey = tuple[str, bool, str]
"""Name of a data set, whether gray levels are binarized, and the condition."""


class ThisProcess:
    """Launcher that trains in this process, one run after another."""

    def __init__(self) -> None:
        self._data: dict[DataKey, Dataset] = {}
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
                spec, self._data[data_key(spec.config)], callback=Reporter(spec, self._report), deadline=deadline
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


def data_key(config: Config) -> DataKey:
    """The key of the data of a config in the result of :func:`load_data`."""
    return config.data, bool(LIKELIHOODS.get(config.likelihood).binary), config.condition


def load_data(specs: Sequence[RunSpec]) -> dict[DataKey, Dataset]:
    """Load the data sets of runs, and check their values; those of the test images only if a run is tested.

    Args:
        specs: The runs.

    Returns:
        Data sets by :func:`data_key`.

    Raises:
        DataError: One is missing or damaged.
        SupportError: A value is outside the support of the likelihood.
    """
    found: dict[DataKey, Dataset] = {}
    checked: set[tuple[object, ...]] = set()
    for config, tested in ((spec.config, spec.tested) for spec in specs):
        if data_key(config) not in found:
            found[data_key(config)] = api.load_data(config)
        kind, data = LIKELIHOODS.get(config.likelihood), found[data_key(config)]
        settings = (config.data, config.likelihood, *(str(config.options[name]) for name in kind.settings))
        parts = [part for part in PARTS if (part != "test" or tested) and (part, *settings) not in checked]
        if not kind.binary and parts:
            api.check_values(kind(config, data.spec), data, parts)
            checked |= {(part, *settings) for part in parts}
    return found
