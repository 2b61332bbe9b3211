"""The faults of `soak.py`: what can happen to a process that trains, to its folder, and to its disk."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from softspin.cli import app as command
from softspin.cli import main

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
HANG_SECONDS = 300.0
RESUME_RBM = ["rbm", "fit", "--resume", "--folder"]


class LossError(Exception):
    """Something that a fault must never cause."""


def is_run(folder: Path) -> bool:
    """Whether a folder has the run of a model, or of a Boltzmann machine on its own."""
    return any((folder / name).exists() for name in ("run.json", "boltzmann.json"))


class Child:
    """A forked process that runs a command of softspin. Fork, because a new process takes seconds to import torch.

    Args:
        words: The command.
        prepare: Called in the process first.
    """

    def __init__(self, words: list[str], prepare: Callable[[], None] = lambda: None) -> None:
        self.words, self.code = words, None
        self._output, inside = os.pipe()  # not a file, which could not be written on a full disk
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._output)
            _run(words, inside, prepare)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.close(inside)

    code: int | None
    """Exit code, or minus the signal; None while it runs."""

    def wait(self, seconds: float = HANG_SECONDS, *, must_end: bool = True) -> bool:
        """Wait for its end; returns whether it has ended."""
        give_up = time.monotonic() + seconds
        while self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= give_up:
                if must_end:
                    os.kill(self.pid, signal.SIGKILL)
                    raise LossError(f"{' '.join(self.words)} did not end in {seconds:g} s")
                return False
            else:
                time.sleep(0.002)
        return True

    def text(self) -> str:
        """All of its output, after its end."""
        with os.fdopen(self._output, "rb") as file:
            return file.read().decode(errors="replace")

    def check(self, *codes: int) -> None:
        """Raise LossError unless it ended with 0 or one of these codes, and an error in one line."""
        text = self.text()
        what = f"{' '.join(self.words)} ended with {self.code}: {text[-2000:]}"
        if self.code not in (0, *codes) or "Traceback" in text:
            raise LossError(what)
        if self.code == 1 and sum(line.startswith("error: ") for line in text.splitlines()) != 1:
            raise LossError(what)


def _run(words: list[str], output: int, prepare: Callable[[], None]) -> None:
    """What the forked process does, to its end."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
    code = 1
    try:
        prepare()
        command.run = _unblocked(command.run)
        sys.argv = ["softspin", *words]
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _unblocked(run: Callable[[], None]) -> Callable[[], None]:
    """Ctrl-C before the first line of the command would be a traceback of this script."""

    def unblocked() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        run()

    return unblocked


class Fault(ABC):
    """One kind of fault.

    Args:
        rng: Source of random times and sizes.
        disk: The disk of the runs.
    """

    what: str
    """Description for the documentation."""
    codes: tuple[int, ...] = ()
    """Exit codes, other than 0 of a process that ended in time."""

    def __init__(self, rng: random.Random, disk: Path) -> None:
        self.rng, self.disk = rng, disk

    def prepare(self) -> None:
        """Called in the process that trains."""
        return

    def before(self, folder: Path) -> bool:
        """Called before the process starts; returns whether that was the fault."""
        return False

    @abstractmethod
    def strike(self, child: Child, folder: Path) -> None:
        """Called at a random time, if the process still runs."""

    def after(self, child: Child, folder: Path) -> Path:
        """Called after the end of the process; repairs what a person would, and returns where the run is now."""
        return folder


class Signal(Fault):
    number: int

    def strike(self, child: Child, folder: Path) -> None:
        os.kill(child.pid, self.number)


class Kill(Signal):
    what, codes, number = "the process is killed (SIGKILL)", (-9,), signal.SIGKILL


class Terminate(Signal):
    what, codes, number = "the process is terminated, as by SLURM (SIGTERM)", (75, -15), signal.SIGTERM


class Interrupt(Signal):
    what, codes, number = "the user presses Ctrl-C (SIGINT)", (130,), signal.SIGINT


class FullDisk(Fault):
    what, codes = "the disk is full from some time on", (1,)

    def strike(self, child: Child, folder: Path) -> None:
        try:
            with (self.disk / "filler").open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096:
                    pass
        except OSError:
            pass

    def after(self, child: Child, folder: Path) -> Path:
        (self.disk / "filler").unlink(missing_ok=True)
        return folder


class LargestFile(Fault):
    what, codes = "no file can grow beyond a random size, as with a quota", (1,)

    def before(self, folder: Path) -> bool:
        self.size = self.rng.choice((0, 100, self.rng.randrange(20_000)))
        return True

    def prepare(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))

    def strike(self, child: Child, folder: Path) -> None:
        pass


class Move(Fault):
    what, codes = "the run directory is moved", (1,)

    def strike(self, child: Child, folder: Path) -> None:
        if folder.exists():
            folder.rename(self._new(folder))

    def after(self, child: Child, folder: Path) -> Path:
        new = self._new(folder)
        if not new.exists():
            return folder
        if folder.exists() and is_run(new):
            raise LossError(f"{folder} was moved to {new}, but there is a new one: {sorted(folder.iterdir())}")
        return new if is_run(new) else folder

    @staticmethod
    def _new(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}m")


class ReadOnly(Fault):
    what, codes = "the run directory becomes read-only", (1,)

    def prepare(self) -> None:
        if os.geteuid() == 0:
            drop_overrides()

    def strike(self, child: Child, folder: Path) -> None:
        if folder.exists():
            folder.chmod(0o555)

    def after(self, child: Child, folder: Path) -> Path:
        if folder.exists():
            folder.chmod(0o755)
        return folder


class Second(Fault):
    what, codes = "a second process trains in the same directory", (1,)

    def strike(self, child: Child, folder: Path) -> None:
        """Whichever comes second to the lock ends with an error, or resumes what the other has finished."""
        if is_run(folder):
            is_vae = (folder / "run.json").exists()
            second = Child(["train", "--resume", str(folder)] if is_vae else [*RESUME_RBM, str(folder)])
            second.wait()
            second.check(1)


class FlippedBit(Fault):
    what, codes = "a bit of run.json, result.json or a checkpoint flips", (1,)

    def before(self, folder: Path) -> bool:
        found = [path for path in sorted(folder.glob("*")) if path.suffix in (".json", ".safetensors")]
        found = [path for path in found if path.stat().st_size]
        if not found or not is_run(folder):
            return False
        shutil.rmtree(self._copy(folder), ignore_errors=True)
        shutil.copytree(folder, self._copy(folder))
        path = self.rng.choice(found)
        content = bytearray(path.read_bytes())
        content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(content)
        return True

    def strike(self, child: Child, folder: Path) -> None:
        pass

    def after(self, child: Child, folder: Path) -> Path:
        copy = self._copy(folder)
        if child.code == 1 and copy.exists():
            shutil.rmtree(folder)
            copy.rename(folder)
        shutil.rmtree(copy, ignore_errors=True)
        return folder

    @staticmethod
    def _copy(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}-copy")


ALL: tuple[type[Fault], ...] = (
    Kill, Terminate, Interrupt, FullDisk, LargestFile, Move, ReadOnly, Second, FlippedBit,
)  # fmt: skip


def drop_overrides() -> None:
    """Let the permissions of files hold for root, too, in this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    data[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def mount_disk(folder: Path, size: str) -> bool:
    """Mount a small disk in memory; returns False where that is not allowed."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "softspin-soak", str(folder)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
