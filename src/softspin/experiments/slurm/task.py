"""A task of a SLURM array: it trains its runs, writes its outcome file, and queues itself again if it was stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from softspin.errors import ConfigError, WorkerError
from softspin.experiments.launchers.processes import Processes
from softspin.experiments.launchers.this_process import ThisProcess
from softspin.experiments.planning import CellPlan
from softspin.experiments.runs import RunSpec, refresh, remaining
from softspin.experiments.scheduler import Event, Listener, Outcome, RunBusy, Scheduler
from softspin.experiments.slurm.jobs import Job, OutcomeFile
from softspin.experiments.slurm.queue import requeue

MAX_STARTS = 3
"""How often a task may start with the same progress before it no longer queues itself again."""

Display = Callable[[Path, Sequence[RunSpec]], AbstractContextManager[Listener]]


class TaskEnd(NamedTuple):
    """How a task ended."""

    outcome: Outcome
    note: str = ""
    """What happens next, if it is unfinished."""


def run_task(job: Job, index: int, display: Display, started: float) -> TaskEnd:
    """Train the runs of a task that have no rows yet.

    Args:
        job: The job.
        index: Index of the task in the array.
        display: Creates a listener, as a context manager, from the outcome file and the runs.
        started: Value of `time.monotonic` at the start of the task.

    Returns:
        How it ended.

    Raises:
        ConfigError: There is no such task.
        SoftspinError: An error that would stop all runs, such as a missing data set.
    """
    plan = job.read_plan()
    if not 0 <= index < len(plan.tasks):
        raise ConfigError(f"{job.folder} has the tasks 0 to {len(plan.tasks) - 1}, but no task {index}")
    file = job.outcome(index)
    specs = unfinished(plan.tasks[index], file)
    file.add_start(sum(spec.step for spec in specs))
    busy: set[Path] = set()

    outcome: Outcome = "done"
    if specs:
        launcher = ThisProcess() if len(specs) == 1 else Processes(len(specs), device=specs[0].config.device)
        plans = [CellPlan(spec.cell, spec.config, spec.config.seeds, (), (), (spec,)) for spec in specs]
        deadline = None if plan.minutes is None else started + 60 * plan.minutes
        with display(file.path, specs) as show:

            def listener(event: Event) -> None:
                if isinstance(event, RunBusy):
                    busy.add(event.spec.folder)
                show(event)

            outcome = Scheduler(plans, file.path, launcher, listener, file.append).run(deadline)
    if outcome == "unfinished":
        return TaskEnd(outcome, _queue_again(unfinished(plan.tasks[index], file), busy, file))
    return TaskEnd("done" if all(row.ok for row in file.rows) else "failed")


def unfinished(specs: Sequence[RunSpec], file: OutcomeFile) -> list[RunSpec]:
    """Runs of a task that lack rows, without the seeds that have some.

    Args:
        specs: All runs of the task.
        file: Its outcome file.

    Returns:
        The runs to make or to resume.
    """
    left = []
    for spec in specs:
        rows = file.rows_of(spec)
        left += [refresh(rest) for rest in (remaining(spec, rows) if rows else [spec])]
    return left


def _queue_again(left: Sequence[RunSpec], busy: Set[Path], file: OutcomeFile) -> str:
    """Queue the task again, unless it would not help; returns a note."""
    job = os.environ.get("SLURM_JOB_ID")
    if all(spec.folder in busy for spec in left):
        return "not queued again: other processes train the runs"
    if job is None:
        return "not queued again: this is not a SLURM job"
    progress = len(file.rows), sum(spec.step for spec in left)
    if file.starts.count(progress) >= MAX_STARTS:
        return f"not queued again: {MAX_STARTS} starts made no progress; a longer time limit may help"
    try:
        requeue(job)
    except WorkerError as error:
        return f"not queued again: {error}"
    return f"queued again as SLURM job {job}"
