"""Files that are replaced in one step, and locks between processes.

A reader never sees half a file: content goes to a temporary file beside the target, is flushed to the disk, and takes
the target's place by one rename. After an error the temporary file is removed and the old content is still there. A
killed process may leave the temporary file; the next write overwrites it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout, UnixFileLock, WindowsFileLock

ASK_SECONDS = 0.1
"""How long to wait for a lock before it counts as held: :func:`is_locked` takes it for a moment to ask."""


def temporary_path(path: Path) -> Path:
    """Where the new content of a file is written first: in the same folder, so that a rename is atomic.

    >>> temporary_path(Path("runs/result.json")).as_posix()
    'runs/.result.json.part'
    """
    return path.with_name(f".{path.name}.part")


@contextlib.contextmanager
def atomic_writer(path: Path, *, parents: bool = False) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when the block ends, and is removed if the block raises.

    Args:
        path: The file to replace.
        parents: Make missing folders.

    Raises:
        OSError: The disk does not take it; the old file is then unchanged.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            yield file
            _sync(file)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_bytes(path: Path, content: bytes, *, parents: bool = False) -> None:
    """Replace a file by these bytes, see :func:`atomic_writer`."""
    with atomic_writer(path, parents=parents) as file:
        file.write(content)


def write_text(path: Path, text: str, *, parents: bool = False) -> None:
    """Replace a file by this text in UTF-8, see :func:`atomic_writer`."""
    write_bytes(path, text.encode(), parents=parents)


def write_json(path: Path, content: Any, *, parents: bool = False) -> None:
    """Replace a file by strict JSON, see :func:`atomic_writer`; ValueError for NaN or infinity."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", parents=parents)


def write_synced(path: Path, content: bytes, *, exclusive: bool = False) -> None:
    """Write a file in its place and flush it to the disk; the caller decides when a name points to it.

    Args:
        path: The file.
        content: All of it.
        exclusive: FileExistsError if the file exists.
    """
    with path.open("xb" if exclusive else "wb") as file:
        file.write(content)
        _sync(file)


def move_file(source: Path, target: Path) -> None:
    """Flush a finished file of the same file system to the disk, and let it replace the target in one step."""
    with source.open("rb+") as file:
        _sync(file)
    os.replace(source, target)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system has such a call; Windows has none."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def lock(path: Path, *, timeout: float | None = None) -> Iterator[None]:
    """Hold the lock of a lock file, made if missing, for this process and thread alone.

    The operating system holds the lock and releases it with the process, however that ends. The file stays.

    Args:
        path: The lock file, not the file that it protects. Its folder exists.
        timeout: Seconds to wait; None for as long as it takes.

    Raises:
        BlockingIOError: Another process, or another place in this one, has held it all the time.
        OSError: The lock file cannot be opened, or its file system has no locks.
    """
    guard = FileLock(path, timeout=-1 if timeout is None else timeout, poll_interval=0.02)
    try:
        guard.acquire()
    except Timeout:
        raise BlockingIOError(errno.EAGAIN, "the lock is held by another process", str(path)) from None
    except NotImplementedError:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path)) from None
    try:
        # Where the file system has no locks, filelock takes the existence of the file for one. Nobody would remove
        # that after a kill.
        if not isinstance(guard, UnixFileLock | WindowsFileLock):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path))
        yield
    finally:
        guard.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock now; False where the lock file is missing or cannot be opened for writing."""
    if not path.exists():
        return False
    try:
        with lock(path, timeout=ASK_SECONDS):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
