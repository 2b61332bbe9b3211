"""Atomic file writes, and locks between processes.

A reader never sees a partially written file. Content is written to a temporary file in the same folder, flushed to the
disk, and renamed over the target. After an error the temporary file is removed and the target is unchanged. Each write
has a temporary file of its own, so that several processes may write one target: the last one wins. A killed process may
leave its temporary file; later writes of the same target remove it after an hour.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import secrets
import time
import warnings
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout, UnixFileLock, WindowsFileLock

OWNER = "SOFTSPIN_OWNER"
"""Environment variable with a name for claims on file systems without locks, see :func:`lock_or_claim`."""
CLAIM_SECONDS = 60.0
"""How long to wait for a claim where a lock would be waited for without limit: a killed process leaves its claim."""
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of file systems without locks."""
LEFTOVER_SECONDS = 3600.0
"""Age from which a temporary file counts as left by a killed process; no write takes so long."""
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

    Args:
        path: The file to replace.

    Returns:
        The path of a temporary file that no one else uses, such as `runs/.result.json.5f0c9a17.part`.
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def remove_leftovers(path: Path) -> None:
    """Remove temporary files for this target that killed processes left more than an hour ago.

    Args:
        path: The file that was to be replaced.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFTOVER_SECONDS:
                left.unlink()


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
        with temporary.open("xb") as file:  # not through a link
            yield file
            _sync(file)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # of a full disk the system does not say which file, else the temporary one
        raise
    remove_leftovers(path)


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


def append_whole(file: FileIO, content: bytes) -> None:
    """Append to an unbuffered file in one call, so that a killed process leaves all of it or nothing.

    Args:
        file: File that is open for appending.
        content: What to append.

    Raises:
        OSError: It cannot be written, as on a full disk; the file is then as before.
    """
    before = os.fstat(file.fileno()).st_size
    try:
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(before)
        raise


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


def reject_link(path: Path) -> None:
    """Raise for a symbolic link: a folder of another person could have one that leads to a file of ours.

    Args:
        path: A file that is opened for writing.

    Raises:
        OSError: It is a symbolic link.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a symbolic link; delete it", str(path))


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
    reject_link(path)
    guard = FileLock(path, timeout=-1 if timeout is None else timeout, poll_interval=0.02)
    try:
        guard.acquire()
    except Timeout:
        if not isinstance(guard, UnixFileLock | WindowsFileLock):  # the fallback of filelock, see below
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path)) from None
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


@contextlib.contextmanager
def lock_or_claim(path: Path, *, timeout: float | None = None) -> Iterator[None]:
    """Hold a lock; on a file system without locks, a claim in the name of `$SOFTSPIN_OWNER`.

    A claim is a file with the name of its owner, next to the lock file. Unlike a lock, it survives a kill. Then only
    the same owner may take it over. So the name must belong to one process at a time, like that of a SLURM task, which
    SLURM restarts only after its end.

    Args:
        path: The lock file, see :func:`lock`.
        timeout: Seconds to wait; None waits without limit for a lock, and a minute for a claim.

    Yields:
        None.

    Raises:
        BlockingIOError: Another holder did not release it in time.
        OSError: The file cannot be written, or there are neither locks nor the name of an owner.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock(path, timeout=timeout))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            owner = os.environ.get(OWNER)
            if not owner:
                advice = f"use another one, or set {OWNER} to a name that no other process has"
                raise OSError(errno.ENOLCK, f"its file system has no locks; {advice}", str(path)) from None
            held.enter_context(_claim(path.with_name(f"{path.name}.claim"), owner, timeout))
        yield


@contextlib.contextmanager
def _claim(path: Path, owner: str, timeout: float | None) -> Iterator[None]:
    give_up = time.monotonic() + (CLAIM_SECONDS if timeout is None else timeout)
    while True:
        try:
            write_synced(path, owner.encode(), exclusive=True)
            break
        except FileExistsError:
            holder = _read_claim(path)
            if holder == owner:
                break
            if holder is not None and time.monotonic() >= give_up:
                text = f"it is claimed by '{holder}'; if that no longer runs, delete {path}"
                warnings.warn(f"{path.parent}: {text}", stacklevel=2)
                raise BlockingIOError(errno.EAGAIN, text, str(path)) from None
            time.sleep(0.02)
    try:
        warnings.warn(
            f"{path.parent} is on a file system without locks; {owner} has claimed it by a file", stacklevel=2
        )
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _read_claim(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # just released
        return None
