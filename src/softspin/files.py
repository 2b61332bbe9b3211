"""Atomic file writes, and locks between processes.

A reader never sees a partially written file. Content is written to a temporary file in the same folder, flushed to the
disk, and renamed over the target. After an error the temporary file is removed and the target is unchanged. A killed
process may leave the temporary file; the next write overwrites it.
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
"""Seconds to wait for a lock before it counts as held: :func:`is_locked` itself holds the lock for a moment."""


def cache_folder() -> Path:
    """The user's cache, for data sets and compiled code.

    Returns:
        `$SOFTSPIN_CACHE`, or `softspin` in `$XDG_CACHE_HOME` or `~/.cache`.
    """
    if own := os.environ.get("SOFTSPIN_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths are to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "softspin"


def temporary_path(path: Path) -> Path:
    """Temporary file for the new content of a file, in the same folder so that the rename is atomic.

    >>> temporary_path(Path("runs/result.json")).as_posix()
    'runs/.result.json.part'

    Args:
        path: The file to replace.

    Returns:
        The path of the temporary file.
    """
    return path.with_name(f".{path.name}.part")


@contextlib.contextmanager
def atomic_writer(path: Path, *, parents: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends; it is removed if the block raises.

    Args:
        path: The file to replace.
        parents: Create missing folders.

    Yields:
        The open temporary file.

    Raises:
        OSError: The file cannot be written; the old file is then unchanged.
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
    """Replace a file by these bytes, see :func:`atomic_writer`.

    Args:
        path: The file to replace.
        content: Its new content.
        parents: Create missing folders.
    """
    with atomic_writer(path, parents=parents) as file:
        file.write(content)


def write_text(path: Path, text: str, *, parents: bool = False) -> None:
    """Replace a file by this text in UTF-8, see :func:`atomic_writer`.

    Args:
        path: The file to replace.
        text: Its new content.
        parents: Create missing folders.
    """
    write_bytes(path, text.encode(), parents=parents)


def write_json(path: Path, content: Any, *, parents: bool = False) -> None:
    """Replace a file by strict JSON, see :func:`atomic_writer`.

    Args:
        path: The file to replace.
        content: Plain data.
        parents: Create missing folders.

    Raises:
        ValueError: The data contain NaN or infinity.
    """
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", parents=parents)


def write_synced(path: Path, content: bytes, *, exclusive: bool = False) -> None:
    """Write a file in place, not atomically, and flush it to the disk.

    Args:
        path: The file.
        content: Its whole content.
        exclusive: Raise if the file exists.

    Raises:
        FileExistsError: The file exists and `exclusive` is true.
    """
    with path.open("xb" if exclusive else "wb") as file:
        file.write(content)
        _sync(file)


def move_file(source: Path, target: Path) -> None:
    """Flush a file to the disk and rename it over the target, which is on the same file system.

    Args:
        source: The complete file.
        target: The file to replace.
    """
    with source.open("rb+") as file:
        _sync(file)
    os.replace(source, target)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, on systems that support it (Windows does not).

    Args:
        folder: The folder.
    """
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
    """Hold an exclusive lock between processes and threads.

    The operating system releases the lock when the process ends, even if it is killed. The lock file is not deleted.

    Args:
        path: The lock file, created if missing; not the file that it protects. Its folder must exist.
        timeout: Seconds to wait; None waits without limit.

    Yields:
        None.

    Raises:
        BlockingIOError: Another holder did not release the lock in time.
        OSError: The lock file cannot be opened, or its file system does not support locks.
    """
    guard = FileLock(path, timeout=-1 if timeout is None else timeout, poll_interval=0.02)
    try:
        guard.acquire()
    except Timeout:
        raise BlockingIOError(errno.EAGAIN, "the lock is held by another process", str(path)) from None
    except NotImplementedError:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path)) from None
    try:
        # On file systems without locks, filelock falls back to the existence of the file, which a killed process
        # would leave behind.
        if not isinstance(guard, UnixFileLock | WindowsFileLock):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path))
        yield
    finally:
        guard.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock now.

    Args:
        path: The lock file.

    Returns:
        True if it is held; False also if the lock file is missing or cannot be opened for writing.
    """
    if not path.exists():
        return False
    try:
        with lock(path, timeout=ASK_SECONDS):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
