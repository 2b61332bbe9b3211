"""A run among other processes: one at a time in a folder, and Ctrl-C that waits for the step."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from softspin import files
from softspin.errors import BusyError, RunError

LOCK = "lock"
STOPPING = "stopping once this step is done and saved, its validation included; Ctrl-C again stops at once, unsaved"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder (made if missing), for this process alone: two would overwrite each other's checkpoints."""
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.lock(folder / LOCK, timeout=files.ASK_SECONDS))
        except BlockingIOError:
            raise BusyError(f"another process is training in {folder}; wait for it, or stop it") from None
        except OSError as error:
            raise RunError(f"folder {folder} cannot be written: {error.strerror}") from error
        yield


def is_training(folder: Path) -> bool:
    """Whether a process is at work in a folder now."""
    return files.is_locked(folder / LOCK)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[list[int]]:
    """The first Ctrl-C is only noted in the list, so that an update is never cut in two; a second one stops at once.

    It is answered by a line on stderr: a validation that is under way may take minutes. Outside of the main thread,
    where Python lets nobody handle signals, this does nothing.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)
        with contextlib.suppress(OSError, RuntimeError):  # stderr may be closed, or in the middle of a line
            print(STOPPING, file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
