"""Child processes, and worker processes of a grid that are paused at a checkpoint, where a test interrupts them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Seconds after which a test fails that waits for another process."""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition."""
    give_up = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < give_up, what
        time.sleep(0.005)
    return value


def unread_input(pid: int) -> int:
    """Number of bytes in the input of a process that it has not read."""
    pipe = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
    finally:
        os.close(pipe)


def pause(pid: int) -> None:
    """Stop a process and wait until all its threads have stopped: until then one may still read its input."""
    os.kill(pid, signal.SIGSTOP)
    states = Path(f"/proc/{pid}/task").glob
    wait_until(lambda: all(_state(path) in "TZ" for path in states("*/stat")), "a thread does not stop")


def _state(stat: Path) -> str:
    """Letter of the state of a thread; that of a zombie if it has ended."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def children(parent: int) -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(link)


def pause_at_checkpoints(driver: int, runs: Path, old: Iterable[bytes] = ()) -> list[int]:
    """Pause both workers of a driver, each when its run has a checkpoint that is not an old one; their process ids.

    The worker of a run is the child that holds its lock.
    """
    before, paused = set(old), {}

    def pause_new() -> bool:
        for path in runs.rglob("last.json"):
            if path.parent not in paused and path.read_bytes() not in before:
                for pid in children(driver):
                    if str(path.parent / "lock") in _open_files(pid):
                        pause(pid)
                        paused[path.parent] = pid
        return len(paused) == 2

    wait_until(pause_new, "there are no two checkpoints of runs in training")
    return list(paused.values())


def in_child(work: Callable[[], object]) -> int:
    """Start work in a child process; its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child
