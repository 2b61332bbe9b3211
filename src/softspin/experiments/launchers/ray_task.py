"""The part of the Ray launcher that runs on the nodes of a cluster.

A task trains one run: it starts a worker process, the same as on one machine, and passes messages between it and the
mailbox of the driver. Training has a process of its own, because it stops with a checkpoint when its input ends,
whatever happened to the task. Ray kills the children of a worker that ends, but not their children. So the child,
`python -m softspin.experiments.launchers.ray_task guard`, only waits for the worker process.

If the node does not see the folder of the driver, the run trains in a temporary folder, and its files are sent to the
driver after each checkpoint. Both processes delete the folder at the end if the task has died.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from softspin import __version__
from softspin.errors import WorkerError
from softspin.experiments.launchers.run_files import ChangedFiles, take_token, write_files
from softspin.experiments.launchers.worker_process import WorkerProcess

COMMAND = ("-m", "softspin.experiments.launchers.ray_task", "guard")
POLL_SECONDS = 0.5
"""Seconds between two calls of the mailbox."""

Message = dict[str, Any]
Exchange = Callable[[Sequence[Message]], Sequence[Message]]
"""Sends messages to the driver, and returns those that it sent."""


class Mailbox:
    """Actor on the node of the driver that keeps messages until they are fetched."""

    def __init__(self) -> None:
        self._to_driver: list[tuple[int, Message]] = []
        self._to_runs: dict[int, list[Message]] = {}

    def exchange(self, run: int, messages: Sequence[Message]) -> list[Message]:
        """Called by the task of a run.

        Args:
            run: Number of the run.
            messages: Messages to the driver.

        Returns:
            Messages from the driver.
        """
        self._to_driver += [(run, message) for message in messages]
        return self._to_runs.pop(run, [])

    def post(self, run: int, message: Message) -> None:
        """Called by the driver.

        Args:
            run: Number of a run.
            message: Message to its task.
        """
        self._to_runs.setdefault(run, []).append(message)

    def collect(self) -> list[tuple[int, Message]]:
        """Called by the driver.

        Returns:
            New messages, with the numbers of their runs.
        """
        found, self._to_driver = self._to_driver, []
        return found


def train_on_node(mailbox: Any, run: int, request: Message) -> Message:
    """The task of a run.

    Args:
        mailbox: Handle of the mailbox.
        run: Number of the run.
        request: The run as plain data, the token of its folder, the driver's version and its variables.

    Returns:
        The end of the run, see :func:`softspin.experiments.worker.ended_to_json`, or an error.
    """
    import ray

    if request["softspin"] != __version__:
        return _error(
            f"node {os.uname().nodename} has softspin {__version__}, but the driver has {request['softspin']}; install "
            "the same version on all nodes"
        )
    return serve(request, lambda messages: ray.get(mailbox.exchange.remote(run, messages)))


def serve(request: Message, exchange: Exchange) -> Message:
    """Train a run in a worker process.

    Args:
        request: See :func:`train_on_node`.
        exchange: Line to the driver.

    Returns:
        The end of the run, or an error.
    """
    spec, environment = dict(request["spec"]), {**request["variables"], **os.environ}
    environment["OMP_PROC_BIND"] = "false"  # bound threads of several runs would share the first core
    inbox: queue.SimpleQueue[tuple[WorkerProcess, Any]] = queue.SimpleQueue()
    if take_token(Path(request["token"])):
        received = exchange([{"kind": "started", "shared": True}])
        with contextlib.closing(WorkerProcess(environment, inbox, command=COMMAND)) as process:
            return _pass_messages(process, spec, inbox, exchange, None, received)
    with tempfile.TemporaryDirectory(prefix="softspin-ray-", ignore_cleanup_errors=True) as place:
        answers = {message["kind"]: message for message in _ask_for_files(exchange)}
        if stop := answers.get("stop"):
            return {"kind": "ended", "status": stop["status"], "rows": [], "reason": "stopped before it began"}
        folder = Path(place) / Path(spec["folder"]).name
        spec["folder"] = str(folder)
        write_files(folder, answers["files"]["files"])
        files = ChangedFiles(folder)
        files.read(final=True)  # known to the driver
        with contextlib.closing(WorkerProcess(environment, inbox, command=(*COMMAND, place))) as process:
            ended = _pass_messages(process, spec, inbox, exchange, files, [])
        if not folder.exists():  # renamed, because a number was not finite
            files = ChangedFiles(next(Path(place).iterdir()))
        exchange([{"kind": "files", "files": files.read(final=True), "broken": not folder.exists()}])
        return ended


def _ask_for_files(exchange: Exchange) -> Sequence[Message]:
    """Tell the driver that its folder is not seen here, and wait for the files of the run, or for a stop."""
    received = exchange([{"kind": "started", "shared": False}])
    while not received:
        time.sleep(POLL_SECONDS)
        received = exchange([])
    return received


def _pass_messages(
    process: WorkerProcess,
    spec: Message,
    inbox: queue.SimpleQueue[tuple[WorkerProcess, Any]],
    exchange: Exchange,
    files: ChangedFiles | None,
    received: Sequence[Message],
) -> Message:
    """Pass messages in both directions until the run ends."""
    process.send(spec)
    messages: dict[str, Message] = {}  # by kind, or by text if a warning: only the last progress matters
    due = time.monotonic() + POLL_SECONDS
    while True:
        if any(message["kind"] == "stop" for message in received):
            process.send({"stop": True})
        with contextlib.suppress(queue.Empty):
            _, answer = inbox.get(timeout=POLL_SECONDS)
            if answer is None:
                answer = {"kind": "ended", "status": "died", "rows": [], "reason": process.death()}
            if answer["kind"] not in ("progress", "warning"):
                if messages:
                    exchange(list(messages.values()))
                return dict(answer)
            messages[answer.get("text", "progress")] = answer
        received = []
        if time.monotonic() >= due:
            changed = {} if files is None else files.read()
            if changed:
                messages["files"] = {"kind": "files", "files": changed, "broken": False}
            received = exchange(list(messages.values()))
            messages, due = {}, time.monotonic() + POLL_SECONDS


def _error(text: str) -> Message:
    return {"kind": "error", "type": WorkerError.__name__, "message": text}


def guard(*folders: str) -> None:
    """Wait for a worker process, and end as it does.

    Args:
        folders: Temporary folder of the run, if it has one.
    """
    command = [sys.executable, "-m", "softspin.experiments.launchers.ray_task", "train", *folders]
    with _deleted_by_orphans(folders):
        code = subprocess.run(command, check=False).returncode
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def train(*folders: str) -> None:
    """Train as a worker process.

    Args:
        folders: Temporary folder of the run, if it has one.
    """
    from softspin.experiments import worker  # imports torch, which a task itself does not need

    with _deleted_by_orphans(folders):
        worker.main()


@contextlib.contextmanager
def _deleted_by_orphans(folders: Sequence[str]) -> Iterator[None]:
    """Delete folders at the end, if the parent of this process has died, which would have deleted them."""
    parent = os.getppid()
    yield
    if os.getppid() != parent:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    {"guard": guard, "train": train}[sys.argv[1]](*sys.argv[2:])
