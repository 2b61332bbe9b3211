"""Calls of SLURM's own commands: sbatch, squeue and scontrol."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from softspin.errors import WorkerError
from softspin.experiments.slurm.jobs import ARRAY, COLLECT, Job, Submitted

SECONDS = 120.0
"""How long a command of SLURM may take."""
UNKNOWN_JOB = "Invalid job id"
"""Answer of squeue about a job that ended a while ago."""


def submit_command(job: Job) -> str:
    """The commands that submit a job, as one line of bash.

    Args:
        job: The job.

    Returns:
        The line.
    """
    array, collect = (shlex.join(["sbatch", "--parsable", *_arguments(job, name)]) for name in (ARRAY, COLLECT))
    after = collect.replace("--parsable", '--dependency="afterany:${array%%;*}"', 1)
    return f"array=$({array}) && {after}"


def submit(job: Job) -> Submitted:
    """Submit the array, and the collector that runs after it.

    Args:
        job: The job.

    Returns:
        Their identifiers.

    Raises:
        WorkerError: There is no sbatch, or it failed.
    """
    if shutil.which("sbatch") is None:
        raise WorkerError(f"there is no sbatch on PATH; on a machine of the cluster, run: {submit_command(job)}")
    array, cluster = _sbatch(_arguments(job, ARRAY))
    submitted = Submitted(array, None, cluster)
    job.write_submitted(submitted)
    try:
        collector, _ = _sbatch([f"--dependency=afterany:{array}", *_arguments(job, COLLECT)])
    except WorkerError as error:
        raise WorkerError(
            f"the array was submitted as job {array}, but not its collector ({error}); when it has ended, run the same "
            "command with --collect instead of --submit"
        ) from None
    submitted = submitted._replace(collector=collector)
    job.write_submitted(submitted)
    return submitted


def tasks_in_queue(submitted: Submitted) -> set[int]:
    """Tasks of an array that wait or run.

    Args:
        submitted: The job.

    Returns:
        Their indices.

    Raises:
        WorkerError: squeue failed.
    """
    where = [f"--clusters={submitted.cluster}"] if submitted.cluster else []
    words = ["squeue", *where, "--noheader", "--array", f"--jobs={submitted.array}", "--format=%i"]
    try:
        answer = _call(words)
    except WorkerError as error:
        if UNKNOWN_JOB in str(error):
            return set()
        raise
    return {int(index) for index in re.findall(rf"^\s*{re.escape(submitted.array)}_(\d+)\s*$", answer, re.MULTILINE)}


def requeue(job: str) -> None:
    """Queue this task again.

    Args:
        job: Its identifier.

    Raises:
        WorkerError: scontrol failed.
    """
    _call(["scontrol", "requeue", job])


def parse_identifier(answer: str) -> tuple[str, str | None]:
    """Identifier and cluster from the answer of `sbatch --parsable`.

    >>> parse_identifier("1234"), parse_identifier("1234;alps")
    (('1234', None), ('1234', 'alps'))

    Args:
        answer: What sbatch printed; some sites print notes before it.

    Returns:
        The identifier, and the name of the cluster if there are several.

    Raises:
        WorkerError: There is no identifier.
    """
    found = re.search(r"^(\d+)(?:;(\S+))?$", answer.strip(), re.MULTILINE)
    if found is None:
        raise WorkerError(f"sbatch printed no job identifier, but {_line(answer)!r}")
    return found[1], found[2]


def _sbatch(arguments: Sequence[str]) -> tuple[str, str | None]:
    return parse_identifier(_call(["sbatch", "--parsable", *arguments]))


def _arguments(job: Job, script: str) -> list[str]:
    """Logs are relative to the folder of the job: in a directive, a path would need the quoting of sbatch."""
    folder = job.folder.absolute()
    return [f"--chdir={folder}", str(folder / script)]


def _call(words: Sequence[str]) -> str:
    try:
        ended = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise WorkerError(f"there is no {words[0]} on PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"{words[0]} failed: {_line(str(error))}") from None
    if ended.returncode:
        said = _line(ended.stderr or ended.stdout) or f"exit code {ended.returncode}"
        raise WorkerError(f"{words[0]} failed: {said}")
    return ended.stdout


def _line(text: str) -> str:
    return " ".join(text.split())
