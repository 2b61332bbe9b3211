"""Grids on a Ray cluster: equal rows, deaths of workers and nodes, stops, and what is left behind.

Training processes are paused by SIGSTOP at their first checkpoint, so that each test interrupts them where it means to.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from experiments.pausing import pause, unread_input, wait_until
from experiments.tables import BROKEN, EXP, POWER, SETTINGS, timeless, write_table

from softspin import files
from softspin.errors import ConfigError, DeviceError, MissingExtraError, WorkerError
from softspin.experiments import grid
from softspin.experiments.cells import Cell, read_cells
from softspin.experiments.launchers import ray as ray_launcher
from softspin.experiments.launchers import ray_cluster, ray_task
from softspin.experiments.launchers.choice import make_launcher
from softspin.experiments.launchers.ray import capacity, gpu_share
from softspin.experiments.rows import read_rows
from softspin.experiments.scheduler import Event, GridStopped, RunResumed, RunStarted
from softspin.records import ResultRow
from softspin.training import checkpoint

pytest.importorskip("ray")

STEPS = 60
IN_IPV6 = b"\0" * 10 + b"\xff\xff"
"""First bytes of an IPv4 address that is written as one of IPv6."""


class Process(NamedTuple):
    pid: int
    words: list[str]

    @property
    def trains(self) -> bool:
        return {"softspin.experiments.launchers.ray_task", "train"} <= set(self.words)


def processes(mark: str) -> list[Process]:
    """Living processes that have a text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if words != [""]:  # a zombie has none
                    found.append(Process(int(folder.name), words))
    return found


def pause_at_checkpoint(mark: str, folder: Path, old: bytes = b"") -> int:
    """Pause the training process of a folder when it has written a checkpoint that is not the old one."""

    def new_checkpoint() -> bool:
        return any(path.read_bytes() != old for path in folder.rglob("last.json"))

    wait_until(new_checkpoint, "no checkpoint")
    (pid,) = [process.pid for process in processes(mark) if process.trains]
    pause(pid)
    return pid


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Run something in a thread; its error is raised at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)
            os.kill(os.getpid(), signal.SIGINT)  # the grid may wait for what did not happen

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        if errors:
            raise errors[0]


class Nodes(NamedTuple):
    address: str
    mark: str
    temporary: Path
    """Folder of temporary files of all processes of the cluster."""
    process: subprocess.Popen[str]

    def lose_one(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("lose", file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "removed\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster of the user, with two nodes of one core each."""
    ray = ray_cluster.import_ray()
    mark = secrets.token_hex(16)
    place = Path(tempfile.mkdtemp(prefix="rt-", dir="/tmp"))  # paths of sockets must be short
    temporary = place / "tmp"
    temporary.mkdir()
    environment = {
        **os.environ, **ray_cluster.NO_TELEMETRY, **ray_cluster.LOOPBACK, **ray_cluster.PRIORITY, "TEST_MARK": mark,
        "TMPDIR": str(temporary), "RAY_TMPDIR": str(place), "RAY_AUTH_MODE": "disabled",
        "RAY_health_check_period_ms": "500",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)  # no addresses but loopback
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_nodes.py")), str(place / "ray")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            address = next(line.split()[1] for line in process.stdout if line.startswith("address "))
            yield Nodes(address, mark, temporary, process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    for left in processes(mark):  # those that a failed test has paused
        with contextlib.suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGCONT)
    wait_until(lambda: not processes(mark), "processes are left")
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    folder = tmp_path_factory.mktemp("cells")
    return {cell.id: cell for cell in read_cells(write_table(folder / "t.toml", POWER, EXP, BROKEN))}


@pytest.fixture(scope="module")
def serial(cells: dict[str, Cell], tmp_path_factory: pytest.TempPathFactory) -> dict[str, ResultRow]:
    """Rows of a grid in this process, by cell."""
    folder = tmp_path_factory.mktemp("serial")
    rows = folder / "rows.jsonl"
    chosen = [cells[POWER], cells[EXP]]
    assert grid.run(chosen, rows, seeds=[0], steps=STEPS, settings=SETTINGS, folder=folder / "runs") == "done"
    return {str(row.cell): timeless(row) for row in read_rows(rows)}


def on_ray(cells: list[Cell], folder: Path, address: str, workers: int | str = "auto") -> tuple[str, list[Event]]:
    """A grid on the cluster, and its events."""
    events: list[Event] = []
    outcome = grid.run(
        cells, folder / "rows.jsonl", seeds=[0], steps=STEPS, settings=SETTINGS, folder=folder / "runs", launcher="ray",
        workers=workers, address=address, listener=events.append,
    )  # fmt: skip
    return outcome, events


def results(folder: Path) -> dict[str, ResultRow]:
    """The rows by cell; each has only one."""
    rows = [timeless(row) for row in read_rows(folder / "rows.jsonl")]
    assert len({row.cell for row in rows}) == len(rows)
    return {str(row.cell): row for row in rows}


def hidden_files(folder: Path) -> list[str]:
    return [path.name for path in (folder / "runs").rglob(".*")]


def test_rows_equal_those_of_one_process_and_a_failed_cell_fails_alone(
    nodes: Nodes, cells: dict[str, Cell], serial: dict[str, ResultRow], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    outcome, events = on_ray(list(cells.values()), tmp_path, nodes.address)
    assert outcome == "failed"
    rows = results(tmp_path)
    broken = rows.pop(BROKEN)
    assert rows == serial
    assert (broken.status, "not finite" in str(broken.error)) == ("failed", True)
    assert [event.spec.cell.id for event in events if isinstance(event, RunStarted)] == [POWER, EXP, BROKEN]
    assert hidden_files(tmp_path) == []
    assert list(nodes.temporary.glob("softspin-*")) == []
    assert signal.getsignal(signal.SIGTERM) is before
    assert not ray_cluster.import_ray().is_initialized()


def test_ctrl_c_saves_a_checkpoint_and_a_killed_worker_is_resumed(
    nodes: Nodes, cells: dict[str, Cell], serial: dict[str, ResultRow], tmp_path: Path
) -> None:
    def interrupt() -> None:
        pid = pause_at_checkpoint(nodes.mark, tmp_path)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: unread_input(pid), "the worker was not asked to stop")
        finally:  # so that a failure ends the test
            os.kill(pid, signal.SIGCONT)

    # Background jobs of a shell ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
            on_ray([cells[POWER]], tmp_path, nodes.address)
    finally:
        signal.signal(signal.SIGINT, before)
    assert read_rows(tmp_path / "rows.jsonl") == []
    (manifest,) = tmp_path.rglob("last.json")
    step = checkpoint.load_meta(manifest.parent, "last")["step"]
    assert 0 < step < STEPS
    assert not [process for process in processes(nodes.mark) if process.trains]

    saved = manifest.read_bytes()
    with meanwhile(lambda: os.kill(pause_at_checkpoint(nodes.mark, tmp_path, old=saved), signal.SIGKILL)):
        outcome, events = on_ray([cells[POWER]], tmp_path, nodes.address)
    starts = [event.step for event in events if isinstance(event, RunStarted)]
    assert (outcome, starts[0], starts[0] < starts[1] < STEPS) == ("done", step, True)
    (resumed,) = [event for event in events if isinstance(event, RunResumed)]
    assert resumed.reason == "the worker was killed by SIGKILL (out of memory?)"
    assert results(tmp_path) == {POWER: serial[POWER]}
    assert hidden_files(tmp_path) == []


def test_warnings_of_a_worker_reach_the_driver_before_its_end() -> None:
    sent: list[ray_task.Message] = []

    def exchange(messages: Sequence[ray_task.Message]) -> list[ray_task.Message]:
        sent.extend(messages)
        return []

    class Silent:
        def send(self, message: ray_task.Message) -> None:
            """Its answers are in the inbox already."""

    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    warnings = [{"kind": "warning", "text": text} for text in ("a", "b", "a")]
    progress = [{"kind": "progress", "step": step} for step in (1, 2)]
    ended = {"kind": "ended", "status": "done", "rows": [], "reason": ""}
    for answer in (progress[0], *warnings, progress[1], ended):
        inbox.put((None, answer))
    assert ray_task._pass_messages(Silent(), {}, inbox, exchange, None, []) == ended  # type: ignore[arg-type]
    assert sent == [progress[1], *warnings[:2]]


def test_runs_that_have_not_begun_are_cancelled_at_the_deadline(
    nodes: Nodes, cells: dict[str, Cell], tmp_path: Path
) -> None:
    events: list[Event] = []
    assert grid.run(
        [cells[EXP]], tmp_path / "rows.jsonl", seeds=[0], steps=STEPS, settings=SETTINGS, folder=tmp_path / "runs",
        launcher="ray", address=nodes.address, deadline=0.0, listener=events.append,
    ) == "unfinished"  # fmt: skip
    assert isinstance(events[-1], GridStopped)
    assert hidden_files(tmp_path) == []
    assert not [process for process in processes(nodes.mark) if process.trains]


def test_a_lost_node_without_a_common_folder(
    nodes: Nodes, cells: dict[str, Cell], serial: dict[str, ResultRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is resumed from the last checkpoint that was sent, on the other node."""
    monkeypatch.setattr(ray_launcher, "write_token", lambda folder: tmp_path / "on" / "another" / "machine")
    steps: list[int] = []

    def lose_a_node() -> None:
        paused: set[int] = set()

        def pause_all() -> bool:
            for process in processes(nodes.mark):
                if process.trains and process.pid not in paused and list(Path(process.words[-2]).rglob("last.json")):
                    os.kill(process.pid, signal.SIGSTOP)
                    paused.add(process.pid)
            return len(paused) == 2 and len(list(tmp_path.rglob("last.json"))) == 2

        wait_until(pause_all, "no checkpoint was sent")
        steps.extend(checkpoint.load_meta(path.parent, "last")["step"] for path in tmp_path.rglob("last.json"))
        nodes.lose_one()
        for pid in paused:
            os.kill(pid, signal.SIGCONT)

    with meanwhile(lose_a_node):
        outcome, events = on_ray([cells[POWER], cells[EXP]], tmp_path, nodes.address)
    assert outcome == "done"
    (resumed,) = [event for event in events if isinstance(event, RunResumed)]
    assert "died" in resumed.reason or "killed" in resumed.reason
    starts = [event.step for event in events if isinstance(event, RunStarted)]
    assert starts[:2] == [0, 0]
    assert 0 < starts[2] < STEPS
    assert results(tmp_path) == serial
    for path in tmp_path.rglob("last.json"):
        assert checkpoint.load(path.parent, "last")[1]["step"] == STEPS
        assert len(list(path.parent.glob("*.safetensors"))) == 2
        assert {"run.json", "result.json", "journal.jsonl"} <= {other.name for other in path.parent.iterdir()}
    wait_until(lambda: not [process for process in processes(nodes.mark) if process.trains], "a worker is left")
    wait_until(lambda: not list(nodes.temporary.glob("softspin-*")), "its folder is left")


def test_a_cluster_of_this_machine_listens_on_loopback_and_ends_with_its_driver(tmp_path: Path) -> None:
    mark, environment = started_here(tmp_path)
    code = """
from softspin.experiments.launchers.ray_cluster import RayCluster
cluster = RayCluster(None, cpus=3, use_gpus=False)
print(cluster.resources()[0]["CPU"], flush=True)
input()
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "3.0\n"
    assert len(processes(mark)) > 4
    assert listening(mark) == {"127.0.0.1"}
    driver.kill()
    driver.communicate()
    wait_until(lambda: not processes(mark), "processes are left")
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
    assert list(tmp_path.rglob("*token*")) == []
    os.rmdir(environment["TMPDIR"])


def listening(mark: str) -> set[str]:
    """Addresses on which the processes of a cluster accept connections."""
    sockets = set()
    for process in processes(mark):
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:  # 0A: LISTEN
                words = bytes.fromhex(fields[1].split(":")[0])
                address = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))  # of little-endian words
                found.add(str(ipaddress.ip_address(address[-4:] if address[:-4] in (b"", IN_IPV6) else address)))
    return found


def started_here(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Mark and environment of a driver that starts its own cluster, with its own home and temporary files."""
    mark, home = secrets.token_hex(16), tmp_path / "home"
    home.mkdir()
    own = {
        "TEST_MARK": mark, "TMPDIR": tempfile.mkdtemp(prefix="rt-", dir="/tmp"), "HOME": str(home),
        "SOFTSPIN_CACHE": str(files.cache_folder()),
    }  # fmt: skip
    return mark, {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | own


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_cluster_that_is_started_here_leaves_nothing(
    number: signal.Signals, serial: dict[str, ResultRow], tmp_path: Path
) -> None:
    """Whether the driver is killed, interrupted or finishes; the same command resumes."""
    mark, environment = started_here(tmp_path)
    temporary = Path(environment["TMPDIR"])
    table = write_table(tmp_path / "t.toml", POWER)
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [
        sys.executable, "-m", "softspin", "grid", str(table), "--seeds", "0", "--steps", str(STEPS), *words,
        "--launcher", "ray", "--workers", "auto", "--device", "cpu",
    ]  # fmt: skip
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    pid = pause_at_checkpoint(mark, tmp_path)
    driver.send_signal(number)
    if number == signal.SIGINT:
        wait_until(lambda: unread_input(pid), "the worker was not asked to stop")
    else:
        driver.wait()
    os.kill(pid, signal.SIGCONT)
    assert driver.wait() == (130 if number == signal.SIGINT else -signal.SIGKILL)
    wait_until(lambda: not processes(mark), "processes are left")
    assert list(temporary.iterdir()) == []
    assert read_rows(tmp_path / "rows.jsonl") == []

    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ", from step " in ended.stdout
    assert results(tmp_path) == {POWER: serial[POWER]}
    wait_until(lambda: not processes(mark), "processes are left")
    assert list(temporary.iterdir()) == []
    assert list(tmp_path.rglob("*token*")) == []
    assert hidden_files(tmp_path) == []
    temporary.rmdir()


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, text in (
        ({"device": "cuda:1"}, "device = cuda:1 with the launcher ray; use cuda, because Ray chooses the GPU"),
        ({"device": "cpu", "gpus_per_run": 0.5}, "gpus_per_run needs a GPU; on a CPU give the number of workers"),
        ({"gpus_per_run": 2.0}, r"gpus_per_run = 2 is not in \(0, 1\]; a run uses at most one GPU"),
    ):
        with pytest.raises(ConfigError, match=text):
            make_launcher("ray", **options)
    for address, text in (
        ("ray://127.0.0.1:1", "is one of Ray Client; run softspin on a node and give host:port or auto"),
        ("here", "address 'here' is not of a Ray cluster; give host:port, such as 10.0.0.1:6379, or auto"),
    ):
        with pytest.raises(ConfigError, match=text):
            ray_cluster.RayCluster(address, cpus=1, use_gpus=False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(WorkerError, match=r"there is no Ray cluster at 127.0.0.1:1 \(Connection refused\); start one"):
        ray_cluster.RayCluster(None, cpus=1, use_gpus=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingExtraError, match="the launcher ray needs the package ray; in a clone of softspin, run: pip install"
    ):
        make_launcher("ray")


def test_reasons_of_failed_connections_are_one_line() -> None:
    mismatch = "Version mismatch: The cluster was started with:\n    Ray: 2.50.0\n    Python: 3.11.4\nThis process: ..."
    error = ConnectionError("Failed to connect")
    error.__cause__ = RuntimeError(mismatch)
    text = ray_cluster._reason(error)
    assert text.startswith("Version mismatch: The cluster was started with: Ray: 2.50.0 Python: 3.11.4")
    assert text.endswith("; install the versions of the cluster here")
    error.__cause__ = RuntimeError("AuthenticationError: token is missing\n")
    assert ray_cluster._reason(error).startswith("the authentication failed; set RAY_AUTH_MODE and RAY_AUTH_TOKEN")
    assert ray_cluster._reason(ConnectionError("first\nFailed to connect\n")) == "Failed to connect"


def test_resources_limit_the_number_of_runs() -> None:
    nodes: list[dict[str, float]] = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 4.0}, {"memory": 1.0}]
    assert capacity(nodes, cpus=1, gpus=0.0) == 8 + 2
    assert capacity(nodes, cpus=3, gpus=0.0) == 2
    assert capacity(nodes, cpus=1, gpus=1.0) == 1 + 2
    assert capacity(nodes, cpus=1, gpus=0.4) == 2 + 2
    assert capacity([], cpus=1, gpus=1.0) == 0
    assert [gpu_share("cpu", None, 8.0), gpu_share("auto", None, 0.0)] == [0.0, 0.0]
    assert [gpu_share("auto", None, 2.0), gpu_share("cuda", None, 2.0)] == [1.0, 1.0]
    assert gpu_share("auto", 0.25, 2.0) == 0.25
    with pytest.raises(DeviceError, match="device = cuda, but no node of the Ray cluster has a GPU; use device cpu"):
        gpu_share("cuda", None, 0.0)
    with pytest.raises(DeviceError, match=r"gpus_per_run = 0.5, but no node of the Ray cluster has a GPU"):
        gpu_share("auto", 0.5, 0.0)
