"""Scripts of SLURM jobs: directives, and quoting that survives bash."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from softspin.errors import WorkerError
from softspin.experiments.slurm.jobs import Job, Submitted
from softspin.experiments.slurm.planning import find_resources
from softspin.experiments.slurm.queue import parse_identifier, tasks_in_queue
from softspin.experiments.slurm.scripts import Resources, array_script, collect_script, exported

JOB = Job(Path("/runs/slurm/job-1"))
HOSTILE = 'it\'s a "path" $HOME `id` \\ %j #SBATCH --x\n#SBATCH --wrap=id\n!'


def directives(script: str) -> list[str]:
    """Options that SLURM reads: those before the first command."""
    head = script.split("\n\n", maxsplit=1)[0].splitlines()
    assert head[0] == "#!/bin/bash"
    return [line.removeprefix("#SBATCH ") for line in head if line.startswith("#SBATCH ")]


def test_the_array_asks_for_what_its_runs_need() -> None:
    found = directives(array_script(JOB, 8, Resources(runs=2, gpus=1), 50.5))
    assert found == [
        "--job-name=softspin", "--array=0-7", "--output=logs/%A_%a.log", "--open-mode=append", "--requeue",
        "--signal=B:TERM@120", "--ntasks=1", "--cpus-per-task=4", "--time=61", "--gres=gpu:1",
    ]  # fmt: skip
    on_cpu = directives(array_script(JOB, 1, Resources(runs=3, gpus=0), None))
    assert "--cpus-per-task=3" in on_cpu
    assert not [one for one in on_cpu if one.startswith(("--time", "--gres"))]


def test_options_of_the_user_replace_ours_and_the_collector_needs_no_gpu() -> None:
    options = ("--partition=gpu", "-t 90", "--gpus=h200:2", "--array=0-7%2", "-A me", "--mem=64G")
    resources = Resources(options=options)
    found = directives(array_script(JOB, 8, resources, 50))
    assert found[-6:] == list(options)
    assert not [one for one in found[:-6] if one.startswith(("--time", "--gres", "--array"))]
    found = directives(collect_script(resources, ["grid"]))
    assert found[-2:] == ["--partition=gpu", "-A me"]
    assert not [one for one in found if "gpus" in one or "64G" in one]


@pytest.mark.parametrize(
    ("device", "workers", "share", "runs", "gpus"),
    [
        ("auto", "1", None, 1, 1),
        ("cuda", "1", 0.5, 2, 1),
        ("cuda", "1", 0.1, 10, 1),
        ("cuda", "4", None, 4, 1),
        ("cuda", "4", 1.0, 4, 4),
        ("cuda", "5", 0.5, 5, 3),
        ("cpu", "3", None, 3, 0),
    ],
)
def test_runs_and_gpus_of_a_task(device: str, workers: str, share: float | None, runs: int, gpus: int) -> None:
    assert find_resources(device, workers, share, []) == Resources(runs, gpus)


def test_quoting_survives_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folder, interpreter, variables and arguments arrive as they are; a line of a path is no directive."""
    place = tmp_path / HOSTILE
    place.mkdir()
    python = place / "py'thon $x"
    python.write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$SOFTSPIN_DATA" "$OMP_NUM_THREADS" "$SOFTSPIN_OWNER" "$@"\n')
    python.chmod(0o755)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("SOFTSPIN_DATA", HOSTILE)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    slurm = {"SLURM_ARRAY_JOB_ID": "101", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "104"}
    array = array_script(Job(Path("jobs", HOSTILE)), 8, Resources(2, 0), None)
    collect = collect_script(Resources(), ["grid", "--", HOSTILE])
    task = ["-m", "softspin", "slurm-task", str(place / "jobs" / HOSTILE), "3"]
    for script, cpus, expected in (
        (array, "", [HOSTILE, "", "slurm-101_3", *task]),
        (array, "7", [HOSTILE, "3", "slurm-101_3", *task]),
        (array, "1", [HOSTILE, "1", "slurm-101_3", *task]),
        (collect, "1", [HOSTILE, "", "slurm-104", "-m", "softspin", "grid", "--", HOSTILE]),
    ):
        assert not [one for one in directives(script) if "wrap" in one]
        subprocess.run(["bash", "-n"], input=os.fsencode(script), check=True)
        environment = {**os.environ, **slurm, "SLURM_CPUS_PER_TASK": cpus}
        ended = subprocess.run(
            ["bash"], input=os.fsencode(script), env=environment, check=True, cwd="/", stdout=subprocess.PIPE
        )
        assert os.fsdecode(ended.stdout).split("\0") == [str(place), *expected, ""]


def test_the_variables_of_softspin_are_passed_on_but_not_the_owner() -> None:
    given = {"SOFTSPIN_DATA": "a", "SOFTSPIN_OWNER": "b", "PYTHONPATH": "c", "HOME": "d", "TRITON_CACHE_DIR": "e"}
    assert exported(given) == {"SOFTSPIN_DATA": "a", "PYTHONPATH": "c", "TRITON_CACHE_DIR": "e"}


def test_identifiers_are_parsed() -> None:
    assert parse_identifier("1234\n") == ("1234", None)
    assert parse_identifier("1234;alps\n") == ("1234", "alps")
    assert parse_identifier("note: 3 days of maintenance\n1234\n") == ("1234", None)
    with pytest.raises(WorkerError, match="sbatch printed no job identifier, but 'Submitted batch job 12'"):
        parse_identifier("Submitted batch\njob 12")


def test_tasks_in_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(text: str, code: int) -> None:
        lines = ["#!/bin/sh", 'echo "$*" >> asked', f"printf %s {shlex.quote(text)}"]
        lines += [f"printf %s {shlex.quote(text)} >&2; exit {code}"] * (code > 0)
        (tmp_path / "squeue").write_text("\n".join(lines))
        (tmp_path / "squeue").chmod(0o755)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    submitted = Submitted("12", "13", "alps")
    answer("12_3\n12_10\n 112_4\n", 0)
    assert tasks_in_queue(submitted) == {3, 10}
    asked = Path("asked").read_text().splitlines()
    assert asked == ["--clusters=alps --noheader --array --jobs=12 --format=%i"]
    answer("slurm_load_jobs error: Invalid job id specified", 1)
    assert tasks_in_queue(submitted) == set()
    answer("slurm_load_jobs error:\nUnable to contact slurm controller", 1)
    with pytest.raises(WorkerError, match="squeue failed: slurm_load_jobs error: Unable to contact slurm controller"):
        tasks_in_queue(submitted)
