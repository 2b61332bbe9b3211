"""The plan of a SLURM job: the missing runs without those that have ended or are in the queue, divided into tasks."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from softspin.errors import ConfigError
from softspin.experiments.launchers.choice import parse_workers
from softspin.experiments.launchers.machine import runs_per_gpu
from softspin.experiments.launchers.this_process import load_data
from softspin.experiments.reporting import step_seconds
from softspin.experiments.runs import RunSpec, remaining
from softspin.experiments.slurm.collect import Outcomes
from softspin.experiments.slurm.jobs import Job, Plan, find_jobs
from softspin.experiments.slurm.queue import tasks_in_queue
from softspin.experiments.slurm.scripts import Resources, check_options, write_scripts


class Missing(NamedTuple):
    """Runs without rows, by what is to be done."""

    to_run: list[RunSpec]
    ended: list[RunSpec]
    """Only the collection of their rows is left."""
    queued: list[RunSpec]
    """Another job will train them, or trains them now."""


def find_missing(specs: Sequence[RunSpec], outcomes: Outcomes, runs: Path) -> Missing:
    """Divide the planned runs of a grid.

    Args:
        specs: Planned runs.
        outcomes: Rows of earlier jobs.
        runs: Folder of the runs.

    Returns:
        The runs to train, and the others.

    Raises:
        WorkerError: squeue failed.
    """
    in_queue = _seeds_in_queue(runs)
    missing = Missing([], [], [])
    for spec in specs:
        rows = outcomes.of(spec)
        left = remaining(spec, rows) if rows else [spec]
        if not left:
            missing.ended.append(spec)
        for rest in left:
            (missing.queued if in_queue & _seeds(rest) else missing.to_run).append(rest)
    return missing


def _seeds_in_queue(runs: Path) -> set[tuple[Path, int]]:
    """Seeds of earlier jobs that wait or run. Without squeue there is no queue to ask."""
    if shutil.which("squeue") is None:
        return set()
    found: set[tuple[Path, int]] = set()
    for job in find_jobs(runs):
        submitted = job.read_submitted()
        waiting = tasks_in_queue(submitted) if submitted is not None else set()
        if waiting:
            tasks = job.read_plan().tasks
            found |= {seed for index in waiting if index < len(tasks) for spec in tasks[index] for seed in _seeds(spec)}
    return found


def _seeds(spec: RunSpec) -> set[tuple[Path, int]]:
    """Seeds of a run with the folder of their cell, which also stands for the steps and the variant."""
    return {(spec.folder.parent.absolute(), seed) for seed in spec.config.seeds}


def find_resources(device: str, workers: int | str, gpus_per_run: float | None, options: Sequence[str]) -> Resources:
    """What each task asks SLURM for.

    Args:
        device: Setting `device` of the runs; "auto" is a GPU here.
        workers: Runs of a task; 1 for as many as share a GPU.
        gpus_per_run: Share of a GPU for each run; None for a whole one, or the GPU divided by the workers.
        options: Options of sbatch.

    Returns:
        The resources.

    Raises:
        ConfigError: An option is invalid.
    """
    number = parse_workers(workers)
    if number is None:
        raise ConfigError("workers = auto needs a machine to measure; with SLURM give the number of runs of a task")
    if device.startswith("cuda:"):
        raise ConfigError(f"device = {device} is for one machine; SLURM chooses the GPU, so use cuda")
    if device == "cpu":
        if gpus_per_run is not None:
            raise ConfigError("gpus_per_run needs a GPU; on a CPU give the number of workers")
        return Resources(number, 0, check_options(options))
    together = 1 if gpus_per_run is None else runs_per_gpu(gpus_per_run)
    number = together if number == 1 else number
    gpus = 1 if gpus_per_run is None else math.ceil(number / together)
    return Resources(number, gpus, check_options(options))


def write_job(
    specs: Sequence[RunSpec], runs: Path, resources: Resources, minutes: float | None, collect: Sequence[str]
) -> Job:
    """Write the folder of a job: plan and scripts. Missing data sets are downloaded now, since nodes may be offline.

    Args:
        specs: Runs to train.
        runs: Folder of the runs.
        resources: What each task asks for.
        minutes: Minutes of training in a task, before it is queued again; None for the limit of the cluster.
        collect: Arguments of `softspin` that collect the rows.

    Returns:
        The job.

    Raises:
        DataError: A data set is missing.
        RunError: The folder cannot be written.
    """
    load_data(specs)
    device = "cuda" if resources.gpus else "cpu"
    # The longest runs start first, and runs of one task take about the same time.
    longest = sorted(specs, key=lambda spec: (spec.step - spec.config.steps) * step_seconds(spec.config))
    on_device = [spec._replace(config=spec.config.replace(device=device)) for spec in longest]
    size = resources.runs
    tasks = tuple(tuple(on_device[start : start + size]) for start in range(0, len(on_device), size))
    job = Job.create(runs, Plan(tasks, minutes))
    write_scripts(job, len(tasks), resources, minutes, collect)
    return job
