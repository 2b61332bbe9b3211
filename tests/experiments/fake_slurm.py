"""A cluster of one machine: `sbatch`, `squeue` and `scontrol` on PATH, and a scheduler that runs what was submitted.

The commands only read and write files of one folder. `Cluster.run` starts the tasks as SLURM would: a copy of the
script, in the folder of `--chdir`, with SLURM's variables, its output appended to `--output`; after `scontrol requeue`
the task starts again, and `afterany` waits for all tasks of the array.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

COMMANDS = """#!/bin/sh
exec {python} {script} {state} {name} "$@"
"""


class Ended(NamedTuple):
    """A start of a task, or of a job without tasks."""

    task: str
    restarts: int
    code: int


class Cluster:
    """The fake cluster.

    Args:
        state: Folder of its files.
    """

    def __init__(self, state: Path) -> None:
        self.state, self.bin = state, state / "bin"
        self.bin.mkdir(parents=True)
        for name in ("sbatch", "squeue", "scontrol"):
            words = {"python": sys.executable, "script": __file__, "state": str(state), "name": name}
            (self.bin / name).write_text(COMMANDS.format(**{key: shlex.quote(word) for key, word in words.items()}))
            (self.bin / name).chmod(0o755)

    def run(self, watch: Callable[[str, subprocess.Popen[bytes]], object], slots: int = 2) -> list[Ended]:
        """Run everything that was submitted; `watch` is called with each task that was started."""
        ended: list[Ended] = []
        while jobs := [job for job in read(self.state) if job["waiting"]]:
            ready = [job for job in jobs if not any(other["id"] in job["after"] for other in jobs)]
            assert ready, "a dependency that is never met"
            tasks = [(job, task) for job in ready for task in job["waiting"]][:slots]
            processes = [(job, task, self._start(job, task)) for job, task in tasks]
            for _, task, (process, _) in processes:
                watch(task, process)
            for job, task, (process, log) in processes:
                ended.append(Ended(task, job["restarts"].get(task, 0), process.wait()))
                log.close()
                self._end(job["id"], task)
        return ended

    def _start(self, job: dict[str, Any], task: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        array, _, index = task.partition("_")
        own = {"SLURM_JOB_ID": task.replace("_", "00"), "SLURM_RESTART_COUNT": str(job["restarts"].get(task, 0))}
        if index:
            own |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index}
        if cpus := job["options"].get("--cpus-per-task"):
            own["SLURM_CPUS_PER_TASK"] = cpus
        output = job["options"]["--output"].replace("%A", array).replace("%a", index).replace("%j", array)
        log = Path(job["chdir"], output).open("ab")  # noqa: SIM115 - closed when the task has ended
        script = self.state / f"{job['id']}.sh"
        environment = {**os.environ, **own}
        command = ["bash", str(script)]
        return subprocess.Popen(command, cwd=job["chdir"], env=environment, stdout=log, stderr=log), log

    def _end(self, job: str, task: str) -> None:
        """Remove a task from the queue, unless it was requeued."""
        values = json.loads((self.state / f"{job}.json").read_text())
        request = self.state / f"requeue-{task.replace('_', '00')}"
        if request.exists():
            request.unlink()
            values["restarts"][task] = values["restarts"].get(task, 0) + 1
        else:
            values["waiting"].remove(task)
        (self.state / f"{job}.json").write_text(json.dumps(values))


def read(state: Path) -> list[dict[str, Any]]:
    """All jobs, in the order in which they were submitted."""
    return [json.loads(path.read_text()) for path in sorted(state.glob("*.json"))]


# The commands -------------------------------------------------------------------------------------


def sbatch(state: Path, words: Sequence[str]) -> str:
    """Queue a script."""
    *given, script = words
    text = Path(script).read_text()
    options: dict[str, str] = {}
    for line in text.splitlines()[1:]:
        if line and not line.startswith("#"):
            break  # SLURM, too, reads no directives after the first command
        if line.startswith("#SBATCH "):
            (option,) = shlex.split(line.removeprefix("#SBATCH "))
            options.update([option.partition("=")[::2]])
    options |= dict(word.partition("=")[::2] for word in given)
    if options.get("--partition") == "wrong":
        sys.exit("sbatch: error: invalid partition specified: wrong\nsbatch: error: Batch job submission failed")
    job = str(101 + len(read(state)))
    first, last = map(int, re.findall(r"\d+", options["--array"])[:2]) if "--array" in options else (0, 0)
    tasks = [f"{job}_{index}" for index in range(first, last + 1)] if "--array" in options else [job]
    after = []
    if dependency := options.get("--dependency"):
        found = re.fullmatch(r"afterany:(\d+)", dependency)
        assert found is not None, dependency
        after = [found[1]]
    values = {"id": job, "waiting": tasks, "after": after, "chdir": options["--chdir"], "options": options}
    (state / f"{job}.json").write_text(json.dumps({**values, "restarts": {}}))
    (state / f"{job}.sh").write_text(text)
    return job if "--parsable" in options else f"Submitted batch job {job}"


def squeue(state: Path, words: Sequence[str]) -> str:
    """List the tasks of a job that have not ended."""
    (wanted,) = (word.partition("=")[2] for word in words if word.startswith("--jobs="))
    (job,) = (one for one in read(state) if one["id"] == wanted)
    if not job["waiting"]:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    return "\n".join(job["waiting"])


def scontrol(state: Path, words: Sequence[str]) -> str:
    """Ask for a task to be queued again."""
    action, job = words
    assert action == "requeue"
    (state / f"requeue-{job}").touch()
    return ""


if __name__ == "__main__":
    _, place, name, *arguments = sys.argv
    print({"sbatch": sbatch, "squeue": squeue, "scontrol": scontrol}[name](Path(place), arguments))
