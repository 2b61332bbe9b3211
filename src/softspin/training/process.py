"""The lock of a run directory, and deferred handling of Ctrl-C."""

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
STOPPING = "stopping after this step, its validation and a checkpoint; Ctrl-C again stops at once, without saving"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run directory, created if missing: two processes would overwrite each other's checkpoints.

    Args:
        folder: Run directory.

    Yields:
        None.

    Raises:
        BusyError: Another process is training there.
        RunError: The folder cannot be written.
    """
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
    """Whether a process is training in a folder now.

    Args:
        folder: Run directory.

    Returns:
        True if its lock is held.
    """
    return files.is_locked(folder / LOCK)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[list[int]]:
    """Defer the first Ctrl-C, so that an update is never interrupted; a second one raises KeyboardInterrupt.

    The first one prints a line to stderr, because a validation may take minutes. This does nothing outside of the main
    thread, where Python does not allow signal handlers.

    Yields:
        A list that gets an entry at the first Ctrl-C.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)
        with contextlib.suppress(OSError, RuntimeError):  # stderr may be closed, or in use by the interrupted code
            print(STOPPING, file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
