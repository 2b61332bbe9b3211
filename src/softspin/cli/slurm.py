"""`softspin grid --launcher slurm` and the tasks of its jobs."""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json, warn_of_rejection
from softspin.cli.grid_display import GridDisplay
from softspin.cli.options import NOT_FINISHED
from softspin.experiments.runs import RunSpec
from softspin.experiments.slurm.collect import Outcomes
from softspin.experiments.slurm.jobs import LOGS, Job
from softspin.experiments.slurm.planning import find_missing, write_job
from softspin.experiments.slurm.queue import submit, submit_command
from softspin.experiments.slurm.scripts import Resources
from softspin.experiments.slurm.task import run_task
from softspin.training.process import termination_raises

EXIT_CODES = {"done": 0, "failed": 1, "unfinished": NOT_FINISHED}


def send_to_slurm(
    specs: Sequence[RunSpec],
    outcomes: Outcomes,
    folder: Path,
    resources: Resources,
    minutes: float | None,
    collect: Sequence[str],
    *,
    submitting: bool,
    json: bool,
) -> None:
    """Write a job for the missing runs and, if wanted, submit it.

    Args:
        specs: Planned runs.
        outcomes: Rows of earlier jobs.
        folder: Folder of the runs.
        resources: What each task asks for.
        minutes: Minutes of training in a task, before it is queued again.
        collect: Arguments of `softspin` that collect the rows.
        submitting: Whether to submit the job.
        json: Whether to print JSON instead of text.
    """
    missing = find_missing(specs, outcomes, folder)
    by_hand = shlex.join(["softspin", *collect])
    line: dict[str, object] = {"ended": len(missing.ended), "queued": len(missing.queued), "runs": len(missing.to_run)}
    lines = []
    if missing.ended:
        lines.append(f"runs that have ended, whose rows are to be collected: {len(missing.ended)}\n  {by_hand}")
    if missing.queued:
        lines.append(f"runs in the queue already: {len(missing.queued)}")
    if not missing.to_run:
        _print(line, [*lines, "runs to train: 0; there is nothing to submit"], json=json)
        return
    warn_of_rejection()
    job = write_job(missing.to_run, folder, resources, minutes, collect)
    tasks = len(job.read_plan().tasks)
    line |= {"folder": str(job.folder), "tasks": tasks, "command": submit_command(job), "collect": by_hand}
    lines.append(f"runs to train: {len(missing.to_run)}; tasks: {tasks}; scripts: {job.folder}")
    if not submitting:
        _print(line, [*lines, f"submit:  {submit_command(job)}", f"collect: {by_hand}"], json=json)
        return
    submitted = submit(job)
    lines += [
        f"submitted: array {submitted.array}, then collector {submitted.collector}",
        f"watch:   squeue --jobs={submitted.array},{submitted.collector}",
        f"logs:    tail -F {shlex.quote(str(job.folder / LOGS))}/*",
        f"collect: {by_hand}",
    ]
    _print(line | submitted._asdict(), lines, json=json)


def _print(line: dict[str, object], lines: Sequence[str], *, json: bool) -> None:
    if json:
        say_json({"kind": "slurm", **line})
    else:
        say("\n".join(lines))


def slurm_task(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Folder of the job.", show_default=False)],
    index: Annotated[int, typer.Argument(metavar="INDEX", help="Index of the task.", show_default=False)],
) -> None:
    """Train the runs of one task of a SLURM job. The script of the job calls this.

    Exit code 1: a run failed. Exit code 75: the runs were stopped with a checkpoint.
    """
    started = time.monotonic()
    name = os.environ.get("SLURM_JOB_ID", "none")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    say(f"task {index} of {job.name} on {socket.gethostname()}; SLURM job {name}, restarts: {restarts}")
    try:
        with termination_raises():
            end = run_task(Job(job), index, lambda rows, specs: GridDisplay(rows, specs, False), started)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if end.note:
        say(end.note)
    if code := EXIT_CODES[end.outcome]:
        raise typer.Exit(code)
