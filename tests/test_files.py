"""Atomic file writes, and locks between processes."""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from full_disk import largest_file
from made_rows import made_row

import softspin
from softspin import files
from softspin.errors import BusyError, RowsError, RunError
from softspin.experiments.rows import append_rows, read_rows
from softspin.files import lock_or_claim
from softspin.training.process import locked

SOURCE = Path(softspin.__file__).parent
WRITERS: dict[str, Callable[[Path], None]] = {
    "bytes": lambda path: files.write_bytes(path, b"new"),
    "text": lambda path: files.write_text(path, "new"),
    "json": lambda path: files.write_json(path, "new"),
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writers_replace_the_content(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with pytest.raises(FileNotFoundError):
        files.write_text(path, "ü\n")
    files.write_text(path, "ü\n", parents=True)
    assert path.read_bytes() == "ü\n".encode()
    files.write_bytes(path, b"\0\n")
    assert path.read_bytes() == b"\0\n"
    files.write_json(path, {"a": [1, None]})
    assert json.loads(path.read_text()) == {"a": [1, None]}
    assert path.read_text().endswith("}\n")
    assert names(path.parent) == ["file"]


@writers
@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "pathlib.Path.open"])
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], call: str
) -> None:
    (tmp_path / "file").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(call, full)
        with pytest.raises(OSError, match="No space left") as caught:
            write(tmp_path / "file")
        assert caught.value.filename == str(tmp_path / "file")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_content_is_flushed_to_the_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync of {os.fstat(handle).st_size} bytes")
        sync(handle)

    def replaced(source: Path, target: Path) -> None:
        done.append(f"replace {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    files.write_bytes(tmp_path / "a", b"12345")
    files.write_synced(tmp_path / "b", b"123", exclusive=True)
    files.move_file(tmp_path / "b", tmp_path / "c")
    assert done == ["sync of 5 bytes", "replace a", "sync of 3 bytes", "sync of 3 bytes", "replace c"]
    with pytest.raises(FileExistsError):
        files.write_synced(tmp_path / "a", b"", exclusive=True)


def interrupted_after(_: int) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_block_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), files.atomic_writer(tmp_path / "file") as file:
        interrupted_after(file.write(b"half of"))
    assert (names(tmp_path), (tmp_path / "file").read_text()) == (["file"], "old")


def test_nan_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "file", float("nan"))
    assert names(tmp_path) == []


def replacements(source: str) -> list[str]:
    """Renames over another file: os.replace(a, b), path.replace(b)."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "replace" and not c.keywords]
    return [ast.unparse(c) for c in named if len(c.args) == 1 or ast.unparse(c.func) == "os.replace"]


def test_no_other_module_replaces_files_itself() -> None:
    """Checkpoints and shared models replace several files in a specific order."""
    allowed = {"files.py", "training/checkpoint.py", "sharing/files.py"}
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if replacements(path.read_text())}
    assert found == allowed
    assert replacements("half.replace(path)\nos.replace(a, b)\n'x'.replace('a', 'b')\nreplace(c, x=1)") == [
        "half.replace(path)",
        "os.replace(a, b)",
    ]


# Locks ----------------------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from softspin.files import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


def test_a_lock_is_exclusive_and_released_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not files.is_locked(path)
    assert names(tmp_path) == [], "is_locked creates no file"
    with held_by_another_process(path) as child:
        assert files.is_locked(path)
        with pytest.raises(BlockingIOError), files.lock(path, timeout=0):
            pytest.fail("two hold it")
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert not files.is_locked(path)
        with files.lock(path, timeout=0):
            assert files.is_locked(path)
    assert path.exists()


def test_is_locked_does_not_take_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with files.lock(path):
        assert [files.is_locked(path) for _ in range(2)] == [True, True]
        with pytest.raises(BlockingIOError), files.lock(path, timeout=0):
            pytest.fail("two hold it")
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: files.is_locked(path), range(40))), (
            "concurrent calls of is_locked do not see each other"
        )


def test_waiting_for_a_lock_succeeds(tmp_path: Path) -> None:
    path, inside, maximum = tmp_path / "lock", [0], [0]

    def enter(_: int) -> None:
        with files.lock(path):
            inside[0] += 1
            maximum[0] = max(maximum[0], inside[0])
            inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(20)))
    assert maximum == [1]


def test_an_error_in_the_block_propagates_and_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), files.lock(tmp_path / "lock"):
        raise FileNotFoundError("mine")
    assert not files.is_locked(tmp_path / "lock")


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is the existence of a file would survive a kill."""

    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    with (
        pytest.warns(UserWarning, match="flock not supported"),
        pytest.raises(OSError, match="No locks available"),
        files.lock(tmp_path / "lock"),
    ):
        pytest.fail("the lock is the existence of a file")


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system whose server has no lock daemon."""

    def missing(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    monkeypatch.delenv(files.OWNER, raising=False)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_an_owner_claims_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, claim = tmp_path / "lock", tmp_path / "lock.claim"
    with pytest.raises(OSError, match="has no locks; use another one, or set SOFTSPIN_OWNER to"), lock_or_claim(path):
        pytest.fail("no lock and no owner")
    monkeypatch.setenv(files.OWNER, "task 3")
    without_locks = pytest.warns(UserWarning, match="without locks; task 3 has claimed it by a file")
    with pytest.raises(KeyboardInterrupt), without_locks, lock_or_claim(path):
        interrupted_after(len(claim.read_text()) - len("task 3"))
    assert not claim.exists()
    claim.write_text("task 3")  # the task was killed, and is started again
    with without_locks, lock_or_claim(path, timeout=0):
        assert claim.exists()
    assert not claim.exists()
    for holder in ("task 4", ""):
        claim.write_text(holder)
        text = f"it is claimed by '{holder}'; if that no longer runs, delete {claim}"
        refused = pytest.raises(BlockingIOError, match=text)
        with pytest.warns(UserWarning, match=text), refused, lock_or_claim(path, timeout=0):
            pytest.fail("two hold it")
        assert claim.read_text() == holder


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore:.*without locks", "ignore:.*it is claimed by 'task 3'")
def test_without_locks_runs_and_rows_are_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "cannot be written: its file system has no locks; .* SOFTSPIN_OWNER"
    with pytest.raises(RunError, match=advice), locked(tmp_path / "run"):
        pytest.fail("neither locked nor claimed")
    with pytest.raises(RowsError, match=advice):
        append_rows(tmp_path / "rows.jsonl", [])
    monkeypatch.setenv(files.OWNER, "task 3")
    with locked(tmp_path / "run"):
        assert names(tmp_path / "run") == ["lock", "lock.claim"]
        monkeypatch.setenv(files.OWNER, "task 4")
        with pytest.raises(BusyError, match="another process is training"), locked(tmp_path / "run"):
            pytest.fail("two train")
    append_rows(tmp_path / "rows.jsonl", [made_row()])
    assert len(read_rows(tmp_path / "rows.jsonl")) == 1
    assert not list(tmp_path.rglob("*.claim"))


def test_a_lock_file_from_elsewhere_does_not_look_held_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback of filelock would take the file itself for the lock."""

    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    (tmp_path / "lock").touch()
    monkeypatch.setattr(fcntl, "flock", missing)
    with (
        pytest.warns(UserWarning, match="flock not supported"),
        pytest.raises(OSError, match="No locks available"),
        files.lock(tmp_path / "lock", timeout=0.1),
    ):
        pytest.fail("there are no locks")


def test_no_module_imports_unix_only_modules() -> None:
    unix = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not unix & {name.partition(".")[0] for name in imported}, path.relative_to(SOURCE)


def test_many_processes_may_write_one_target(tmp_path: Path) -> None:
    """Each has a temporary file of its own; the last one wins, whole."""
    target = tmp_path / "out.json"
    contents = [bytes([number]) * 100_000 for number in range(8)]
    with contextlib.ExitStack() as opened:
        writers = [opened.enter_context(files.atomic_writer(target)) for _ in contents]
        for writer, content in zip(writers, contents, strict=True):
            writer.write(content)
        assert len({writer.name for writer in writers}) == 8
    assert target.read_bytes() == contents[0], "contexts end in reverse order"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_old_leftovers_are_removed_and_new_ones_are_not(tmp_path: Path) -> None:
    target = tmp_path / "out[1].json"
    old, new, other = (
        tmp_path / name
        for name in (".out[1].json.0123abcd.part", ".out[1].json.89abcdef.part", ".out1.json.0123abcd.part")
    )
    for path in (old, new, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (0, 0))
    files.write_text(target, "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([target.name, new.name, other.name])


# Links and full disks ---------------------------------------------------------------------------------


def test_a_lock_does_not_follow_a_link(tmp_path: Path) -> None:
    """A run directory from another person could have one, and opening it could change a file elsewhere."""
    (tmp_path / "mine").write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match=r"run cannot be written: lock is a symbolic link; delete it"), locked(run):
        pass
    (run / "lock").unlink()
    (run / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(RunError, match="lock is a symbolic link"), locked(run):
        pass
    assert names(tmp_path) == ["mine", "run"]
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_temporary_file_does_not_follow_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its name were known."""
    (tmp_path / "mine").write_text("mine")
    for name in ("result.part", "result.json.part", ".result.json.00000000.part"):
        (tmp_path / name).symlink_to("mine")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    with pytest.raises(FileExistsError):
        files.write_text(tmp_path / "result.json", "new")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_full_disk_leaves_no_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"), locked(tmp_path / "new"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []
    (tmp_path / "old").mkdir()
    with pytest.raises(OSError, match="No space left"), locked(tmp_path / "old"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path / "old") == ["lock"]
    with contextlib.suppress(KeyboardInterrupt), locked(tmp_path / "run"):
        (tmp_path / "run" / "run.json").write_text("{}")
        raise KeyboardInterrupt
    assert names(tmp_path / "run") == ["lock", "run.json"]


@pytest.mark.parametrize("free", [0, 100])
def test_a_full_disk_leaves_no_part_of_a_row(tmp_path: Path, free: int) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [made_row(seed=0)])
    before = path.read_bytes()
    with largest_file(len(before) + free), pytest.raises(RowsError, match=r"cannot be written: (File too|No space)"):
        append_rows(path, [made_row(seed=1)])
    assert path.read_bytes() == before
    append_rows(path, [made_row(seed=1)])
    assert [row.seed for row in read_rows(path)] == [0, 1]
