"""The lock of a run directory, and the handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from softspin import files
from softspin.errors import BusyError, RunError, TerminatedError
from softspin.parallel import World

LOCK = "lock"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
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
    made = not folder.exists()
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.lock_or_claim(folder / LOCK, timeout=files.ASK_SECONDS))
        except BlockingIOError:
            raise BusyError(f"another process is training in {folder}; wait for it, or stop it") from None
        except OSError as error:
            raise RunError(f"folder {folder} cannot be written: {error.strerror}") from error
        try:
            yield
        except BaseException:
            if made:
                _remove_unused(folder)
            raise


def _remove_unused(folder: Path) -> None:
    """Remove a folder without a run, as after a full disk."""
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()


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
    """Defer the first Ctrl-C or SIGTERM, so that an update is never interrupted; a second Ctrl-C stops at once.

    The first Ctrl-C prints a line to stderr, because a validation may take minutes. This does nothing outside of the
    main thread, where Python does not allow signal handlers.

    Yields:
        A list that gets the numbers of the signals.
    """
    noted: list[int] = []

    def note(number: int, frame: object) -> None:
        if noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        noted.append(number)
        if number == signal.SIGINT:
            with contextlib.suppress(OSError, RuntimeError):  # stderr may be closed, or in use by the interrupted code
                print(STOPPING, file=sys.stderr, flush=True)

    with _handled(note, *STOP_SIGNALS):
        yield noted


def noted_by_any(world: World, waiting: Sequence[int], late: bool = False) -> tuple[tuple[int, ...], bool]:
    """Agree on when to stop. Signals are read once: a later one would not have a checkpoint.

    Args:
        world: Processes of the run.
        waiting: Signals that this process has deferred.
        late: Whether this process is past its deadline.

    Returns:
        Signals to any process, and whether any is late.
    """
    here = tuple(waiting)
    *noted, late = world.any(*(number in here for number in STOP_SIGNALS), late)
    return tuple(number for number, is_noted in zip(STOP_SIGNALS, noted, strict=True) if is_noted), late


def stop_error(signals: Sequence[int], where: str) -> BaseException:
    """The exception for deferred signals; Ctrl-C takes precedence.

    Args:
        signals: The signals.
        where: When training stopped.

    Returns:
        The exception, for the caller to raise.
    """
    if signal.SIGINT in signals:
        return KeyboardInterrupt()
    return TerminatedError(f"terminated {where}, with a checkpoint")


@contextlib.contextmanager
def termination_raises() -> Iterator[None]:
    """Make SIGTERM raise TerminatedError, so that files are closed and exit codes are right.

    This does nothing outside of the main thread.

    Yields:
        None.
    """

    def terminate(number: int, frame: object) -> None:
        raise TerminatedError("terminated by SIGTERM")

    with _handled(terminate, signal.SIGTERM):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: int) -> Iterator[None]:
    """Install a signal handler for a while; not outside of the main thread, where Python does not allow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
