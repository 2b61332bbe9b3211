"""The collection of rows: a launcher that never trains, but reads what the tasks of SLURM jobs have reached."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from softspin.experiments.launchers import Ended, Report
from softspin.experiments.planning import keys_of
from softspin.experiments.rows import Key, identity, key_of
from softspin.experiments.runs import RunSpec, finished_rows, refresh
from softspin.experiments.slurm.jobs import find_jobs
from softspin.records import ResultRow


class Outcomes:
    """Rows of all jobs of a folder that are not in the file of rows yet, read on first use.

    Results count only if their run folders exist, so that a deleted run is trained again.

    Args:
        runs: Folder of the runs.
        existing_rows: All rows of the file.
    """

    def __init__(self, runs: Path, existing_rows: Iterable[ResultRow]) -> None:
        self._runs, self._existing_rows = runs, existing_rows

    @functools.cached_property
    def _rows(self) -> dict[Key, ResultRow]:
        collected = {identity(row) for row in self._existing_rows}
        found = [row for job in find_jobs(self._runs) for outcome in job.outcomes() for row in outcome.rows]
        found.sort(key=lambda row: (row.ok, row.date or ""))  # results last, so that they win
        return {key_of(row): row for row in found if identity(row) not in collected}

    def of(self, spec: RunSpec) -> list[ResultRow]:
        """Rows of a run: of all seeds if it is finished, else of those that failed.

        Args:
            spec: The run.

        Returns:
            The rows.
        """
        spec = refresh(spec)
        keys = keys_of(spec.cell, spec.config)
        own = {row.seed: row for key in keys.values() if (row := self._rows.get(key)) is not None}
        finished = finished_rows(spec)
        if finished is None:
            return [row for row in own.values() if not row.ok]
        return [own[row.seed] if row.seed in own and own[row.seed].ok else row for row in finished]

    def without_retried(self, existing_rows: Mapping[Key, ResultRow]) -> dict[Key, ResultRow]:
        """Rows of the file without the failures that a later job has retried.

        Args:
            existing_rows: Latest row of each key.

        Returns:
            The other rows.
        """
        return {key: row for key, row in existing_rows.items() if row.ok or key not in self._rows}


class Collector:
    """Launcher that never trains.

    Args:
        outcomes: Rows of the tasks.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._next: RunSpec | None = None

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        """Nothing to prepare."""

    @property
    def is_free(self) -> bool:
        """Whether no run waits to be read."""
        return self._next is None

    def start(self, spec: RunSpec) -> None:
        """Remember a run."""
        self._next = spec

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        """Read the rows of the run."""
        spec, self._next = self._next, None
        if spec is None:
            return []
        if rows := self._outcomes.of(spec):
            return [Ended(spec, "done", rows)]
        return [Ended(spec, "busy", reason=f"not finished, at step {spec.step:,} of {spec.config.steps:,}")]

    def stop(self) -> Sequence[Ended]:
        """Forget the run."""
        self._next = None
        return []

    def close(self) -> None:
        """Nothing to free."""
