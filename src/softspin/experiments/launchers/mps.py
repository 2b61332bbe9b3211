"""CUDA MPS, NVIDIA's Multi-Process Service: kernels of several processes run side by side on a GPU.

Without it, processes take turns. The daemon runs under a guard process, which is this file as a script, and which quits
the daemon when its own input ends. So no daemon is left, even if the grid is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
QUIT_SECONDS = 30.0


class Mps:
    """The service of a grid, started on first use if it is installed and not already running."""

    def __init__(self) -> None:
        self._guard: subprocess.Popen[str] | None = None
        self._variables: dict[str, str] | None = None

    def environment(self) -> dict[str, str]:
        """Start the service on first use.

        Returns:
            Environment variables of its clients; empty if MPS is not installed, or someone else runs it.
        """
        if self._variables is None:
            self._variables = {}
            if shutil.which(CONTROL) is not None and not _is_running():
                self._guard = subprocess.Popen(
                    [sys.executable, "-P", __file__],  # a script, because the package would import torch
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                assert self._guard.stdout is not None
                if folder := self._guard.stdout.readline().strip():
                    self._variables = _variables(folder)
        return self._variables

    def close(self) -> None:
        """Stop the service, if it was started here."""
        if self._guard is not None:
            assert self._guard.stdin is not None
            assert self._guard.stdout is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._guard.stdout.close()
            self._guard = None


def _is_running() -> bool:
    """Whether an MPS daemon of this user, or one that the environment names, answers already."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return (folder / "control").exists() and _control("get_server_list", {}) == 0


def _variables(folder: str) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}


def _control(command: str, variables: dict[str, str]) -> int:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            [CONTROL], input=f"{command}\n", env={**os.environ, **variables}, text=True, capture_output=True,
            timeout=QUIT_SECONDS, check=False,
        ).returncode  # fmt: skip
    return 1


def guard() -> None:
    """Run the daemon until the input ends; prints its folder once it is up, or nothing if it does not start."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the end of the grid ends the service
    with tempfile.TemporaryDirectory(prefix="softspin-mps-", ignore_cleanup_errors=True) as folder:
        variables = _variables(folder)
        for path in variables.values():
            os.mkdir(path)
        started = subprocess.run([CONTROL, "-d"], env={**os.environ, **variables}, capture_output=True, check=False)
        print(folder if started.returncode == 0 else "", flush=True)
        sys.stdin.read()
        if started.returncode == 0:
            _control("quit", variables)


if __name__ == "__main__":
    guard()
