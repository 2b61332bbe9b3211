"""The two scripts of a SLURM job, in bash: an array that trains, and a collector that appends rows after it."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from softspin import __version__, files
from softspin.compile_cache import VARIABLES
from softspin.errors import ConfigError
from softspin.experiments.slurm.jobs import ARRAY, COLLECT, LOGS, Job
from softspin.files import OWNER

MARGIN_MINUTES = 10
"""Minutes for start, last validation and checkpoint, on top of the minutes of training."""
SIGNAL_SECONDS = 120
"""Seconds between SIGTERM and the time limit of SLURM."""
EXPORTED = ("PYTHONPATH", "XDG_CACHE_HOME", *VARIABLES)
"""Variables that tasks get besides those of softspin; sbatch passes all variables, unless a site has changed that."""
GPU_OPTIONS = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
COLLECTOR_OPTIONS = (
    "--account", "-A", "--partition", "-p", "--qos", "-q", "--reservation", "--clusters", "-M", "--wckey",
    "--mail-type", "--mail-user", "--comment",
)  # fmt: skip
"""Options of the user that also hold for the collector; the others ask for what only training needs."""


class Resources(NamedTuple):
    """What a task asks SLURM for."""

    runs: int = 1
    """Runs that a task trains at a time."""
    gpus: int = 1
    options: tuple[str, ...] = ()
    """Options of sbatch that the user gave; they replace ours."""


def check_options(options: Iterable[str]) -> tuple[str, ...]:
    """Check options of sbatch.

    Args:
        options: Each like `--partition=gpu`.

    Returns:
        The options.

    Raises:
        ConfigError: One is not an option in one line.
    """
    checked = tuple(option.strip() for option in options)
    for option in checked:
        if not option.startswith("-") or re.search(r"[\0-\x1f\x7f]", option):
            raise ConfigError(f"--sbatch {option!r} is not an option of sbatch in one line, such as --partition=gpu")
    return checked


def write_scripts(job: Job, tasks: int, resources: Resources, minutes: float | None, collect: Sequence[str]) -> None:
    """Write both scripts into the folder of a job.

    Args:
        job: The job.
        tasks: Number of tasks.
        resources: What each task asks for.
        minutes: Minutes of training in a task, before it is queued again; None for the limit of the cluster.
        collect: Arguments of `softspin` that collect the rows.
    """
    for name, text in (
        (ARRAY, array_script(job, tasks, resources, minutes)),
        (COLLECT, collect_script(resources, collect)),
    ):
        files.write_bytes(job.folder / name, os.fsencode(text))  # a path may have bytes that are not UTF-8


def array_script(job: Job, tasks: int, resources: Resources, minutes: float | None) -> str:
    """Script of the array.

    SLURM sends SIGTERM to the batch script before its time limit. So the script replaces itself by Python, which saves
    a checkpoint and queues the task again.

    Args:
        job: The job.
        tasks: Number of tasks.
        resources: What each task asks for.
        minutes: Minutes of training in a task; None for the limit of the cluster.

    Returns:
        The script.
    """
    runs = resources.runs
    ours = {
        "--job-name": "softspin",
        "--array": f"0-{tasks - 1}",
        "--output": f"{LOGS}/%A_%a.log",
        "--open-mode": "append",
        "--requeue": "",
        "--signal": f"B:TERM@{SIGNAL_SECONDS}",
        "--ntasks": "1",
        "--cpus-per-task": str(2 * runs if resources.gpus else runs),  # with a GPU, one writes checkpoints
    }
    if minutes is not None:
        ours["--time"] = str(math.ceil(minutes) + MARGIN_MINUTES)
    if resources.gpus and not any(_name(option) in GPU_OPTIONS for option in resources.options):
        ours["--gres"] = f"gpu:{resources.gpus}"
    task = ["slurm-task", str(job.folder.absolute())]
    return _script(
        f"Trains the runs of plan.json, {runs} at a time in each task.",
        _directives(ours, resources.options),
        [
            'if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then',
            f"    export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK > {runs} ? SLURM_CPUS_PER_TASK / {runs} : 1))",
            "fi",
            f'export {OWNER}="slurm-${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"',
        ],
        f'{_python(task)} "$SLURM_ARRAY_TASK_ID"',
    )


def collect_script(resources: Resources, words: Sequence[str]) -> str:
    """Script of the collector.

    Args:
        resources: What tasks ask for; the collector gets the options about the account and the partition.
        words: Arguments of `softspin`.

    Returns:
        The script.
    """
    ours = {
        "--job-name": "softspin-collect",
        "--output": f"{LOGS}/collect-%j.log",
        "--open-mode": "append",
        "--ntasks": "1",
        "--cpus-per-task": "1",
        "--mem": "4G",
        "--time": "30",
    }
    options = [option for option in resources.options if _name(option) in COLLECTOR_OPTIONS]
    return _script(
        "Appends the rows of all tasks. Exit code 75: some are not finished; 1: some failed.",
        _directives(ours, options),
        [f'export {OWNER}="slurm-${{SLURM_JOB_ID}}"'],
        _python(words),
    )


def _script(about: str, directives: Iterable[str], lines: Iterable[str], command: str) -> str:
    head = ["#!/bin/bash", f"# {about} Written by softspin {__version__}; may be edited before it is submitted."]
    variables = [f"export {name}={shlex.quote(value)}" for name, value in exported(os.environ).items()]
    start = [f"cd -- {shlex.quote(str(Path.cwd()))} || exit 1", *variables]
    return "\n".join([*head, *directives, "", *start, *lines, f"exec {command}", ""])


def exported(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of this process that the scripts set again.

    Args:
        environment: Variables of this process.

    Returns:
        Those of softspin, and a few others.
    """
    names = [name for name in environment if name.startswith("SOFTSPIN_") and name != OWNER]
    return {name: environment[name] for name in (*sorted(names), *EXPORTED) if name in environment}


def _directives(ours: Mapping[str, str], options: Iterable[str]) -> list[str]:
    given = {_name(option) for option in options}
    own = [f"{name}={value}" if value else name for name, value in ours.items() if not {name, SHORT.get(name)} & given]
    return [f"#SBATCH {option}" for option in (*own, *options)]


SHORT = {
    "--job-name": "-J", "--array": "-a", "--output": "-o", "--ntasks": "-n", "--cpus-per-task": "-c", "--time": "-t",
}  # fmt: skip
"""Short forms of options of sbatch that we give."""


def _name(option: str) -> str:
    """Name of an option of sbatch.

    >>> _name("--partition=gpu"), _name("-p gpu"), _name("-pgpu"), _name("--requeue")
    ('--partition', '-p', '-p', '--requeue')
    """
    return re.split(r"[=\s]", option)[0] if option.startswith("--") else option[:2]


def _python(words: Sequence[str]) -> str:
    return shlex.join([sys.executable, "-m", "softspin", *words])
