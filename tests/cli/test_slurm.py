"""`softspin grid --launcher slurm`: jobs on a fake cluster, one task of which is stopped and queued again."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli.command import Call
from experiments.fake_slurm import Cluster, Ended, read
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table

from softspin.errors import TerminatedError
from softspin.experiments import launchers
from softspin.experiments.launchers.this_process import ThisProcess
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import failed_rows
from softspin.experiments.slurm import task
from softspin.experiments.slurm.jobs import Job, Submitted, find_jobs
from softspin.records import ResultRow
from softspin.training.process import locked

HOSTILE = 'it\'s a "table" $HOME `id` %j #x; ü'
"""Name of a folder with characters that mean something to a shell, or to SLURM."""
SHORT = ["--seeds", "0-1", *(word for setting in SETTINGS for word in ("--set", setting)), "--steps", "8"]
LONG = [*SHORT, "--steps", "60", "--set", "checkpoint_every=5", "--set", "evaluate_every=30"]
"""Long enough to be stopped in the middle."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / HOSTILE
    (place / "experiments").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path / "cluster")
    monkeypatch.setenv("PATH", str(made.bin), prepend=":")
    return made


def command(*cells: str) -> list[str]:
    write_table(Path("experiments/own.toml"), *cells)
    return ["grid", "own"]


def rows(path: str = "experiments/rows.jsonl") -> list[ResultRow]:
    return read_rows(Path(path))


def only_job() -> Job:
    (job,) = find_jobs(Path("runs/grid"))
    return job


def test_an_array_with_a_stopped_task_gives_the_rows_of_the_serial_grid(call: Call, cluster: Cluster) -> None:
    words = [*command(POWER, EXP), *LONG]
    assert call(*words, "--rows", "serial.jsonl", "--folder", "serial").code == 0
    sent = call(*words, "--launcher", "slurm", "--submit", "--sbatch", "--partition=gpu", "--minutes", "50.5")
    assert sent.code == 0, sent.err
    assert "runs to train: 2; tasks: 2; scripts: runs/grid/slurm/job-1\n" in sent.out
    assert "submitted: array 101, then collector 102\nwatch:   squeue --jobs=101,102\n" in sent.out
    job = only_job()
    assert job.read_submitted() == Submitted("101", "102")
    again = call(*words, "--launcher", "slurm", "--submit")
    assert again.out == "runs in the queue already: 2\nruns to train: 0; there is nothing to submit\n"
    early = call(*words, "--collect")
    assert (early.code, rows()) == (75, [])
    assert "[1] skipped: not finished, at step 0 of 60\n" in early.out

    tasks = {spec.cell.id: (f"101_{index}", spec) for index, (spec,) in enumerate(job.read_plan().tasks)}
    (stopped, spec), (other, _) = tasks[POWER], tasks[EXP]
    starts: list[str] = []

    def stop_once(task: str, process: subprocess.Popen[bytes]) -> None:
        starts.append(task)
        if starts.count(stopped) == 1 and task == stopped:
            wait_for(spec.folder / "last.json", process)
            process.send_signal(signal.SIGTERM)

    ended = cluster.run(stop_once)
    log = (job.folder / "logs" / f"{stopped}.log").read_text()
    assert sorted(ended[:-1]) == sorted([Ended(stopped, 0, 75), Ended(stopped, 1, 0), Ended(other, 0, 0)]), log
    assert ended[-1] == Ended("102", 0, 0), "the collector is last"
    assert f"queued again as SLURM job {stopped.replace('_', '00')}\n" in log
    resumed = re.search(r"restarts: 1\n(?:.*\n)+?.*, from step (\d+)\n", log)
    assert resumed is not None, log
    assert 5 <= int(resumed[1]) <= 60

    assert [*map(timeless, rows())] == [*map(timeless, rows("serial.jsonl"))]
    before = Path("experiments/rows.jsonl").read_bytes()
    assert call(*words, "--collect").code == 0
    assert Path("experiments/rows.jsonl").read_bytes() == before
    assert "there is nothing to submit" in call(*words, "--launcher", "slurm", "--submit").out


def test_a_failed_cell_is_a_row_and_is_collected_once(call: Call) -> None:
    words = [*command(BROKEN, POWER), *SHORT]
    assert call(*words, "--rows", "serial.jsonl", "--folder", "serial").code == 1
    written = call(*words, "--launcher", "slurm", "--json").json
    assert (written["runs"], written["tasks"], written["folder"]) == (2, 2, "runs/grid/slurm/job-1")
    tasks = only_job().read_plan().tasks
    codes = {spec.cell.id: call("slurm-task", written["folder"], index).code for index, (spec,) in enumerate(tasks)}
    assert codes == {BROKEN: 1, POWER: 0}
    assert rows() == [], "only the collector appends rows"
    printed = call(*words, "--launcher", "slurm").out.splitlines()
    assert printed[0] == "runs that have ended, whose rows are to be collected: 2"
    assert printed[-1] == "runs to train: 0; there is nothing to submit"
    collect = [word for word in shlex.split(printed[1]) if word != "softspin"]
    for _ in range(2):
        assert call(*collect).code == 1
        assert [*map(timeless, rows())] == [*map(timeless, rows("serial.jsonl"))]
    # Failed runs are retried by a new job. Neither its rows nor the old ones are appended twice.
    again = call(*words, "--retry", "--launcher", "slurm", "--json").json
    assert (again["runs"], again["folder"]) == (1, "runs/grid/slurm/job-2")
    assert call(*collect).code == 1
    assert len(rows()) == 4
    assert call("slurm-task", again["folder"], 0).code == 1
    for options in ([], ["--retry"], []):
        call(*collect[:-2], *options, *collect[-2:])
        assert [(row.cell, row.ok) for row in rows()] == [(BROKEN, False)] * 2 + [(POWER, True)] * 2 + [
            (BROKEN, False)
        ] * 2


def test_a_task_of_several_runs_skips_what_has_ended(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*command(POWER, EXP), *SHORT]
    assert call(*words, "--rows", "serial.jsonl", "--folder", "serial").code == 0
    folder = call(*words, "--launcher", "slurm", "--workers", "2", "--json").json["folder"]
    ((first, second),) = only_job().read_plan().tasks
    made: list[int] = []

    class Together(ThisProcess):
        """Instead of worker processes, which are tested elsewhere."""

        def __init__(self, workers: int, device: str) -> None:
            super().__init__()
            made.append(workers)

    monkeypatch.setattr(task, "Processes", Together)
    with locked(second.folder):
        ended = call("slurm-task", folder, 0)
    assert ended.code == 75
    assert ended.out.endswith("not queued again: other processes train the runs\n")
    assert call("slurm-task", folder, 0).code == 0
    assert made == [2], "one run was left"
    assert call("slurm-task", folder, 0).out.count("\n") == 1, "nothing was left"
    assert call(*words, "--collect").code == 0
    assert sorted(map(timeless, rows()), key=str) == sorted(map(timeless, rows("serial.jsonl")), key=str)
    assert first.cell.id != second.cell.id


def test_a_task_that_makes_no_progress_is_not_queued_forever(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminated(ThisProcess):
        def wait(self, deadline: float | None) -> Sequence[launchers.Ended]:
            raise TerminatedError("terminated by SIGTERM")

    folder = call(*command(POWER), *SHORT, "--launcher", "slurm", "--minutes", "0", "--json").json["folder"]
    requeued: list[str] = []
    monkeypatch.setattr(task, "requeue", requeued.append)
    assert call("slurm-task", folder, 0).out.endswith("not queued again: this is not a SLURM job\n")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert call("slurm-task", folder, 0).out.endswith("queued again as SLURM job 77\n")
    assert requeued == ["77"]
    monkeypatch.setattr(task, "ThisProcess", Terminated)
    ends = [call("slurm-task", folder, 0) for _ in range(3)]
    assert [one.code for one in ends] == [75] * 3
    assert requeued == ["77"] * 3
    assert ends[-1].out.endswith("not queued again: 3 starts made no progress; a longer time limit may help\n")
    assert only_job().outcome(0).starts == [(0, 0), (0, 1), (0, 2), (0, 2), (0, 2)]


def test_seeds_without_a_row_are_left_after_a_nonfinite_one(call: Call) -> None:
    call(*command(POWER), *SHORT, "--seeds", "0-2", "--launcher", "slurm")
    ((spec,),) = only_job().read_plan().tasks
    file = only_job().outcome(0)
    file.append(file.path, failed_rows(spec, ValueError("seed 1"))[1:2])
    (left,) = task.unfinished([spec], only_job().outcome(0))
    assert (left.config.seeds, left.folder.name, left.folder.parent) == ((0, 2), "seeds-0,2", spec.folder.parent)


def test_a_deleted_run_is_trained_again(call: Call) -> None:
    words = [*command(POWER), *SHORT]
    folder = call(*words, "--launcher", "slurm", "--json").json["folder"]
    assert call("slurm-task", folder, 0).code == 0
    assert call(*words, "--collect").code == 0
    Path("experiments/rows.jsonl").unlink()
    ((spec,),) = only_job().read_plan().tasks
    shutil.rmtree(spec.folder)
    assert call(*words, "--collect").code == 75
    assert call(*words, "--launcher", "slurm", "--json").json["runs"] == 1


def test_without_submit_the_command_is_printed_and_works(call: Call, cluster: Cluster) -> None:
    words = [*command(POWER), *SHORT]
    printed = next(line for line in call(*words, "--launcher", "slurm").out.splitlines() if "sbatch" in line)
    subprocess.run(["bash", "-c", printed.removeprefix("submit: ")], check=True, stdout=subprocess.DEVNULL)
    array, collector = read(cluster.state)
    assert (array["waiting"], collector["waiting"], collector["after"]) == (["101_0"], ["102"], ["101"])
    assert Path(array["chdir"]).samefile("runs/grid/slurm/job-1")


def test_a_profile_is_passed_to_the_tasks_and_to_the_collector(call: Call) -> None:
    words = [*command(POWER), *SHORT, "--profile", "softspin-1"]
    words += [f"--set={text}" for text in ("late_chains=none", "test_chains=20", "test_temperatures=30")]
    folder = call(*words, "--launcher", "slurm", "--json").json["folder"]
    ((spec,),) = only_job().read_plan().tasks
    assert (spec.config.gradient, spec.config.steps) == ("dreg", 8)
    assert call("slurm-task", folder, 0).code == 0
    collect = shlex.split(call(*words, "--launcher", "slurm").out.splitlines()[1])
    assert "--profile=softspin-1" in collect
    without = [word for word in collect if word not in ("softspin", "--profile=softspin-1")]
    assert (call(*without).code, rows()) == (75, []), "other settings have no run"
    assert call(*without[:1], "--profile=softspin-1", *without[1:]).code == 0
    assert [row.variant["gradient"] for row in rows()] == ["dreg", "dreg"]


def test_errors_of_sbatch_are_shown_in_one_line(call: Call, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*command(POWER), *SHORT, "--launcher", "slurm", "--submit"]
    ended = call(*words, "--sbatch", "--partition=wrong")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        "error: sbatch failed: sbatch: error: invalid partition specified: wrong sbatch: error: Batch job submission "
        "failed"
    )
    monkeypatch.setenv("PATH", "/nowhere")
    ended = call(*words)
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("error: there is no sbatch on PATH; on a machine of the cluster, run: array=$(sbatch --pars")
    assert "job-2/array.sbatch" in last


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--submit"], 2, "it needs --launcher slurm"),
        (["--sbatch=--qos=x", "--launcher=slurm", "--collect"], 2, "it needs --launcher slurm, without --collect"),
        (["--launcher=slurm", "--sbatch=gpu"], 1, "--sbatch 'gpu' is not an option of sbatch in one line, such as --p"),
        (["--launcher=slurm", "--sbatch=--a\nrm x"], 1, "is not an option of sbatch in one line"),
        (["--launcher=slurm", "--workers=auto"], 1, "workers = auto needs a machine to measure; with SLURM give the"),
        (["--launcher=slurm", "--gpus-per-run=0.5"], 1, "gpus_per_run needs a GPU"),
        (["--launcher=slurm", "--set=device=cuda", "--gpus-per-run=2"], 1, "gpus_per_run = 2 is not in (0, 1]"),
        (["--launcher=slurm", "--set=device=cuda:1"], 1, "device = cuda:1 is for one machine; SLURM chooses the GPU"),
        (["--launcher=slurn"], 1, "unknown launcher 'slurn'; did you mean 'slurm'?"),
    ],
)
def test_mistakes(call: Call, words: list[str], code: int, message: str) -> None:
    ended = call(*command(POWER), *SHORT, *words)
    assert ended.code == code
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", ended.err).split())
    assert not Path("runs").exists()


def test_a_task_that_does_not_exist(call: Call) -> None:
    folder = call(*command(POWER), *SHORT, "--launcher", "slurm", "--json").json["folder"]
    assert call("slurm-task", folder, 1).err == f"error: {folder} has the tasks 0 to 0, but no task 1\n"
    assert (
        call("slurm-task", "nothing", 0).err == "error: nothing/plan.json cannot be read: No such file or directory\n"
    )


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if path.exists():
            return
        assert process.poll() is None, "the task has ended"
        time.sleep(0.01)
    raise AssertionError(f"there is no {path}")
