"""Bit-for-bit reproducible training on all x86-64 machines: the required environment, and digests of the state.

CPUs differ in the order of floating-point operations: torch and MKL choose their code by the CPU's instruction set, and
split sums over threads. `PINNED` selects the most generic code on one thread. These variables are read when torch is
loaded, so a separate process is needed. numba needs no setting: without fast-math it keeps the order of operations
(NUMBA_CPU_NAME=generic gives the same digests, with 8 s more compilation).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import softspin
from softspin.training import checkpoint

PINNED = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
}
TORCH = "2.13.0"
"""Version that computed the stored digests; others may sum in another order."""


def no_digests_here() -> str | None:
    """Reason why the stored digests do not apply to this machine, or None."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return f"the stored digests are those of Linux on x86_64, not of {sys.platform} on {platform.machine()}"
    if (found := torch.__version__.partition("+")[0]) != TORCH:
        return f"the stored digests were made with torch {TORCH}, this is {found}"
    return None


def run_pinned(script: Path, *arguments: object) -> Any:
    """Run a script in the pinned environment with the softspin imported here, and return the JSON that it prints."""
    folders = (Path(softspin.__file__).parents[1], Path(__file__).parent)
    environment = {**os.environ, **PINNED, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script.name} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def check_pinned() -> None:
    """Raise unless this process was started by `run_pinned`, or in the same environment."""
    for name, value in PINNED.items():
        if os.environ.get(name) != value:
            raise SystemExit(f"{name} must be {value}; run with: {' '.join(f'{k}={v}' for k, v in PINNED.items())}")


def tensor_digests(tensors: Iterable[Tensor]) -> list[str]:
    """SHA-256 of dtype, shape and bytes of each tensor, sorted: neither names nor their order matter."""
    return sorted(
        hashlib.sha256(f"{one.dtype} {tuple(one.shape)} ".encode() + one.contiguous().numpy().tobytes()).hexdigest()
        for one in tensors
    )


def state_digests(folder: Path) -> list[str]:
    """Digests of a run's checkpoint `last`: the model, Adam's moments, the sampler's state, and log Z.

    Counters and running means are excluded: their format may change, and they are covered by what depends on them.
    """
    tensors, _ = checkpoint.load(folder, "last")
    return tensor_digests(
        value for name, value in tensors.items() if name.startswith(("model.", "adam.", "sampler.")) or name == "log_z"
    )


def joint_digest(digests: Iterable[str]) -> str:
    """One digest of several."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
