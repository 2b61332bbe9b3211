"""Training whose every bit is the same on all x86-64 machines: the environment it needs, and digests of its state.

What differs from one CPU to another is the order of floating-point operations. torch and MKL choose their code by the
CPU's instruction set, and split sums over threads. `PINNED` makes both take the plainest code on one thread. These
variables are read when torch is loaded, hence a process of its own. numba needs no setting: without fast-math it keeps
the order of operations (the digests with NUMBA_CPU_NAME=generic are the same, for 8 s of compilation more).
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
"""The version that made the stored digests; another one may add up in another order."""


def no_digests_here() -> str | None:
    """Why the stored digests do not hold on this machine, or None."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return f"the stored digests are those of Linux on x86_64, not of {sys.platform} on {platform.machine()}"
    if (found := torch.__version__.partition("+")[0]) != TORCH:
        return f"the stored digests were made with torch {TORCH}, this is {found}"
    return None


def run_pinned(script: Path, *arguments: object) -> Any:
    """The JSON that a script prints, run with the code that is imported here in an environment that fixes all bits."""
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
    """Of a run's checkpoint `last`: the model, Adam's moments, the sampler's state, and log Z.

    Counters and running means are left out: they may be stored otherwise, and what depends on them is here.
    """
    tensors, _ = checkpoint.load(folder, "last")
    return tensor_digests(
        value for name, value in tensors.items() if name.startswith(("model.", "adam.", "sampler.")) or name == "log_z"
    )


def joint_digest(digests: Iterable[str]) -> str:
    """One digest for all."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
