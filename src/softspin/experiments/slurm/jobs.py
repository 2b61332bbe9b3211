"""The folder of a SLURM job: `plan.json`, two scripts, logs, and one outcome file for each task of the array."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softspin import __version__, files
from softspin.errors import RunError, SoftspinError
from softspin.experiments.runs import RunSpec
from softspin.records import ResultRow

FOLDER = "slurm"
"""Folder of all jobs, in the folder of the runs."""
PLAN, ARRAY, COLLECT, SUBMITTED = "plan.json", "array.sbatch", "collect.sbatch", "submitted.json"
LOGS, OUTCOMES = "logs", "outcomes"


class Plan(NamedTuple):
    """What the tasks of a job train."""

    tasks: tuple[tuple[RunSpec, ...], ...]
    """Runs of each task, which train at the same time."""
    minutes: float | None = None
    """Minutes after which a task stops with a checkpoint; None to train until SLURM stops it."""


class Submitted(NamedTuple):
    """Identifiers that SLURM gave to a job."""

    array: str
    collector: str | None
    cluster: str | None = None


class Job(NamedTuple):
    """A job and its files."""

    folder: Path

    @classmethod
    def create(cls, runs: Path, plan: Plan) -> Job:
        """Create the folder of a new job.

        Args:
            runs: Folder of the runs.
            plan: The plan.

        Returns:
            The job, without its scripts.

        Raises:
            RunError: The folder cannot be written.
        """
        place, number = runs / FOLDER, 1
        try:
            place.mkdir(parents=True, exist_ok=True)
            while True:
                job = cls(place / f"job-{number}")
                try:
                    job.folder.mkdir()
                    break
                except FileExistsError:
                    number += 1
            for name in (LOGS, OUTCOMES):
                (job.folder / name).mkdir()
            tasks = [[spec.to_json() for spec in task] for task in plan.tasks]
            content = {"softspin": __version__, "minutes": plan.minutes, "tasks": tasks}
            files.write_json(job.folder / PLAN, content)
        except OSError as error:
            raise RunError(f"job folder in {place} cannot be written: {error.strerror}") from error
        return job

    def read_plan(self) -> Plan:
        """Read the plan.

        Returns:
            The plan.

        Raises:
            RunError: It is missing or damaged.
        """
        values = _read_json(self.folder / PLAN)
        try:
            tasks = tuple(tuple(RunSpec.from_json(spec) for spec in task) for task in values["tasks"])
            return Plan(tasks, None if values["minutes"] is None else float(values["minutes"]))
        except (KeyError, TypeError, ValueError, AttributeError, SoftspinError) as error:
            raise RunError(f"{self.folder / PLAN} is not a plan: {error}; write a new job") from None

    def outcome(self, index: int) -> OutcomeFile:
        """The outcome file of a task, which may not exist yet."""
        return OutcomeFile(self.folder / OUTCOMES / f"{index}.json")

    def outcomes(self) -> list[OutcomeFile]:
        """The existing outcome files."""
        return [OutcomeFile(path) for path in sorted((self.folder / OUTCOMES).glob("[0-9]*.json"))]

    def write_submitted(self, submitted: Submitted) -> None:
        """Remember the identifiers that SLURM gave."""
        files.write_json(self.folder / SUBMITTED, submitted._asdict())

    def read_submitted(self) -> Submitted | None:
        """Identifiers that SLURM gave; None if the job was not submitted by softspin."""
        if not (self.folder / SUBMITTED).exists():
            return None
        values = _read_json(self.folder / SUBMITTED)
        try:
            return Submitted(**values)
        except TypeError:
            raise RunError(f"{self.folder / SUBMITTED} is damaged; delete it") from None


def find_jobs(runs: Path) -> list[Job]:
    """All jobs of a folder of runs, oldest first.

    Args:
        runs: Folder of the runs.

    Returns:
        The jobs.
    """
    numbered = [(int(path.parent.name[4:]), path.parent) for path in (runs / FOLDER).glob(f"job-[0-9]*/{PLAN}")]
    return [Job(folder) for _, folder in sorted(numbered)]


class OutcomeFile:
    """What a task has reached: rows of runs that have ended, and its progress at each start.

    Only the task writes it, and replaces it as a whole. So no lock is needed, and it can be read at any time.

    Args:
        path: The file.

    Raises:
        RunError: It is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[ResultRow] = []
        self.starts: list[tuple[int, int]] = []
        """Number of rows and sum of the checkpoints' steps at each start."""
        if path.exists():
            values = _read_json(path)
            try:
                self.rows = [ResultRow.from_json(row) for row in values["rows"]]
                self.starts = [(int(rows), int(steps)) for rows, steps in values["starts"]]
            except (KeyError, TypeError, ValueError, SoftspinError):
                raise RunError(f"{path} is damaged; delete it, and its failed runs are run again") from None

    def add_start(self, steps: int) -> None:
        """Note the progress at a start of the task.

        Args:
            steps: Sum of the steps of the last checkpoints.
        """
        self.starts.append((len(self.rows), steps))
        self._write()

    def append(self, path: Path, rows: Sequence[ResultRow]) -> None:
        """Add rows: the function `append` of a scheduler.

        Args:
            path: This file.
            rows: The rows.
        """
        assert path == self.path
        self.rows += rows
        self._write()

    def rows_of(self, spec: RunSpec) -> list[ResultRow]:
        """Rows of seeds of a run; also those that were run again without a failed seed."""
        return [row for row in self.rows if row.cell == spec.cell.id and row.seed in spec.config.seeds]

    def _write(self) -> None:
        content = {"starts": self.starts, "rows": [row.to_json() for row in self.rows]}
        try:
            files.write_json(self.path, content, parents=True)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror}") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} is not a JSON object")
    return values
