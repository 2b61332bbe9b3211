"""A process that trains runs, `python -m softspin.experiments.worker`, as its driver sees it."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from softspin.cores import unbound

COMMAND = ("-m", "softspin.experiments.worker")
END_SECONDS = 30.0
"""How long an idle worker may take to end before it is killed."""
MAX_STDERR = 300
"""Characters of the last output of a dead worker that are shown."""


class WorkerProcess:
    """A worker process and the thread that reads its answers.

    Args:
        environment: Its environment variables.
        inbox: Gets the process and each of its answers; None after the last one.
        place: Its number among the workers of a machine.
        command: Arguments of Python.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        inbox: queue.SimpleQueue[tuple[WorkerProcess, Any]],
        place: int = 0,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.place = place
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with unbound():
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal reaches the driver only
            )
        self._reader = threading.Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    def _read(self, inbox: queue.SimpleQueue[tuple[WorkerProcess, Any]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # the last line of a killed worker may be truncated
                inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line; a dead worker is noticed by its reader."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Close the input, which ends an idle worker, and wait for its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    def death(self) -> str:
        """Close the worker, which has ended, and say how."""
        code = self.process.wait()
        self._stderr.seek(0)
        text = " ".join(self._stderr.read().decode(errors="replace").split())[-MAX_STDERR:]
        self.close()
        if code < 0:
            with contextlib.suppress(ValueError):
                cause = " (out of memory?)" if code == -signal.SIGKILL else ""
                return f"the worker was killed by {signal.Signals(-code).name}{cause}"
        return f"the worker ended with exit code {code}" + (f": {text}" if text else "")
