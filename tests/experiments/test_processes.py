"""Grids with several worker processes: same rows as one process, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.command import Call, caller
from experiments.pausing import PATIENCE, children, pause_at_checkpoints, unread_input, wait_until
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table

from softspin.errors import DataWarning, UnknownNameError
from softspin.experiments import grid
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.launchers import Ended, Progress
from softspin.experiments.launchers.processes import STOPPING, Processes
from softspin.experiments.rows import read_rows
from softspin.experiments.runs import RunSpec, new_run
from softspin.experiments.worker import ended_from_json, ended_to_json
from softspin.records import ResultRow

STEPS = 120
"""Long enough that a run can be killed in the middle."""
LONG = [*SETTINGS, "evaluate_every=20", "checkpoint_every=20", "batch_size=50"]
"""Fewer validations and checkpoints than in short runs, and a batch size of which each run warns."""
WARNING = "batch_size = 50 is larger than the training set; each step uses all 14 images"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    return read_cells(write_table(tmp_path_factory.mktemp("table") / "t.toml", POWER, BROKEN, EXP))


@pytest.fixture(scope="module")
def serial(cells: list[Cell], tmp_path_factory: pytest.TempPathFactory) -> list[ResultRow]:
    """Rows of a grid in one process."""
    place = tmp_path_factory.mktemp("serial")
    options = {"seeds": [0, 1], "steps": STEPS, "settings": LONG, "folder": place / "runs"}
    with pytest.warns(DataWarning, match=WARNING):
        assert grid.run(cells, place / "rows.jsonl", **options) == "failed"  # type: ignore[arg-type]
    return in_order(place / "rows.jsonl")


def in_order(path: Path) -> list[ResultRow]:
    rows = sorted(read_rows(path), key=lambda row: (row.cell or "", row.seed))
    return [timeless(row) for row in rows]


def checkpoints(folder: Path) -> int:
    return len(list(folder.rglob("last.json")))


def manifests(folder: Path) -> set[bytes]:
    """Contents of the manifests of the last checkpoints."""
    return {path.read_bytes() for path in folder.rglob("last.json")}


def proceed(workers: list[int]) -> None:
    for pid in workers:
        os.kill(pid, signal.SIGCONT)


class Command:
    """`softspin grid` with two workers, in a process of its own."""

    def __init__(self, table: Path, place: Path, *words: str) -> None:
        sets = [word for setting in LONG for word in ("--set", setting)]
        self.rows, self.runs = place / "rows.jsonl", place / "runs"
        self.words = [
            "grid", str(table), "--steps", str(STEPS), "--seeds", "0-1", *sets,
            "--rows", str(self.rows), "--folder", str(self.runs), "--workers", "2", *words,
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        words = [sys.executable, "-m", "softspin", *self.words]
        return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(write_table(tmp_path / "t.toml", POWER, EXP), tmp_path)
    yield made
    for path in Path("/proc").glob("[0-9]*/cmdline"):  # nothing may be left
        try:
            assert str(tmp_path).encode() not in path.read_bytes(), path
        except OSError:
            continue


def test_rows_equal_those_of_one_process_also_if_a_worker_is_killed(
    cells: list[Cell], serial: list[ResultRow], tmp_path: Path
) -> None:
    launcher = Processes(2, device="cpu")
    killed: list[RunSpec] = []
    resumed: list[tuple[Path, int]] = []

    def kill_one(event: object) -> None:
        progress = getattr(event, "progress", None)
        # A run also has a checkpoint of step 0; a slow worker may not be further.
        if isinstance(progress, Progress) and not killed and progress.spec._replace(resume=True).step:
            worker = next(one for one, spec in launcher._busy.items() if spec == progress.spec)
            killed.append(progress.spec)
            os.kill(worker.process.pid, signal.SIGKILL)
        if type(event).__name__ == "RunResumed":
            resumed.append((event.spec.folder, event.spec.step))  # type: ignore[attr-defined]

    options = {"seeds": [0, 1], "steps": STEPS, "settings": LONG, "folder": tmp_path / "runs"}
    rows = tmp_path / "rows.jsonl"
    with pytest.warns(UserWarning, match=WARNING) as shown:
        assert grid.run(cells, rows, **options, launcher=launcher, listener=kill_one) == "failed"  # type: ignore[arg-type]
    (warning,) = [str(one.message) for one in shown]
    assert warning in {f"{cell.id}: {WARNING}" for cell in cells}, "shown once, though several workers have sent it"
    assert in_order(rows) == serial
    assert [row.ok for row in serial] == [row.cell != BROKEN for row in serial]
    (spec,), ((folder, step),) = killed, resumed
    if folder == spec.folder:
        assert 0 < step <= STEPS, "it resumed from its checkpoint, at the latest that of the last step"
    else:
        assert step == 0, "it had finished its run, and was killed before the first step of the next"
    assert children(os.getpid()) == []


@pytest.mark.filterwarnings("default:.*batch_size = 50")
@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGTERM, 75, "terminated by SIGTERM"),
        # Another exception of the driver, which `test_scheduler.py` raises; its workers see no difference.
        pytest.param(signal.SIGINT, 130, "stopped", marks=pytest.mark.slow),
    ],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_driver_may_be_killed_or_stopped_and_the_same_command_finishes(
    command: Command, serial: list[ResultRow], call: Call, number: int, code: int, reason: str
) -> None:
    started = command.start()
    workers = pause_at_checkpoints(started.pid, command.runs)
    started.kill()
    started.communicate()
    proceed(workers)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "workers are left")
    before = manifests(command.runs)
    started = command.start()
    workers = pause_at_checkpoints(started.pid, command.runs, before)
    started.send_signal(number)
    wait_until(lambda: all(map(unread_input, workers)), "the workers were not asked to stop")
    proceed(workers)
    out, err = started.communicate(timeout=PATIENCE)
    assert started.returncode == code, out
    assert err.splitlines()[-1] == STOPPING.format(2)
    assert [line.split(": ", 2)[::2] for line in err.splitlines()[:-1]] == [["warning", WARNING]]
    assert ", from step " in out
    assert out.splitlines()[-1] == f"{reason}; 0 of 4 results in {command.rows}; run the same command to resume"
    ended = call(*command.words)
    assert (ended.code, ended.err.count("\n"), ended.err.count(WARNING)) == (0, 1, 1), ended
    assert in_order(command.rows) == [row for row in serial if row.ok]


@pytest.mark.filterwarnings("default:.*batch_size = 50")
def test_a_time_limit_stops_all_workers(command: Command, call: Call) -> None:
    ended = call(*command.words, "--minutes", "0")
    assert ended.code == 75, ended.out
    assert ended.err.splitlines()[-1] == STOPPING.format(1)
    assert "; 0 of 4 results in " in ended.out.splitlines()[-1]
    assert checkpoints(command.runs) <= 1


def test_errors_that_would_stop_all_cells_stop_the_grid(cells: list[Cell], tmp_path: Path) -> None:
    """The data set vanishes after the driver has seen it."""
    launcher = Processes(2, device="cpu")
    cell = Cell("no-such-data", "1-nonlinear", 1, "dvae#-power", "pa", 30.0)
    spec = new_run(cell, cell.config(steps=8, settings=SETTINGS), [0], tmp_path)
    try:
        launcher.start(spec)
        with pytest.raises(UnknownNameError, match="no-such-data"):
            launcher.wait(None)
    finally:
        launcher.close()


def test_a_run_and_its_end_survive_json(cells: list[Cell], serial: list[ResultRow], tmp_path: Path) -> None:
    spec = RunSpec(cells[0], cells[0].config(seeds=(0, 3), steps=8, settings=SETTINGS), tmp_path, resume=True)
    assert RunSpec.from_json(spec.to_json()) == spec
    ended = Ended(spec, "done", serial[:2], "")
    assert ended_from_json(spec, ended_to_json(ended)) == ended
