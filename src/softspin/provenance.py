"""Provenance of results (version, commit, device), and the choice of the device."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import warnings
from pathlib import Path

import torch

from softspin import __version__
from softspin.errors import DeviceError
from softspin.records import Provenance

MIN_COMPUTE_CAPABILITY = (8, 0)
"""Compute capability of the oldest GPUs that the kernels compile for: A100, RTX 30."""


@functools.cache
def commit() -> str | None:
    """The commit of the code that is running, with + if the code differs from it; None if it is unknown.

    In a git clone it is asked of git; in an installed wheel it was recorded when the wheel was built.
    """
    here = Path(__file__).resolve().parent
    try:
        top = _git(here, "rev-parse", "--show-toplevel")
        if Path(top).resolve() / "src" / "softspin" == here:
            changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
            return _git(here, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        pass
    return _built_from(here / "_build.json")


def _built_from(record: Path) -> str | None:
    """The commit that a build recorded, see `hatch_build.py`."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        return f"{found['commit']}{'+' if found['dirty'] else ''}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def provenance(device: torch.device) -> Provenance:
    """Provenance of results that this process computes.

    Args:
        device: The device that computes them.

    Returns:
        Versions, commit and device name.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return Provenance(
        softspin=__version__, commit=commit(), torch=str(torch.__version__), device=f"{device.type} {name}"
    )


def find_device(name: str) -> torch.device:
    """Choose a device. A GPU with a number becomes torch's current one, on which Triton starts kernels.

    Args:
        name: `"auto"` for a supported GPU if there is one, else the CPU; or a name that torch knows.

    Returns:
        The device.

    Raises:
        DeviceError: The GPU does not exist or is too old.
    """
    if name == "auto":
        if torch.cuda.is_available():
            device = torch.device("cuda")
            if (old := _too_old(device)) is None:
                return device
            warnings.warn(f"running on the CPU: {old}", stacklevel=1)  # stacklevel=1: once, from whichever caller
        return torch.device("cpu")
    device = torch.device(name)
    if device.type != "cuda":
        return device
    if not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        found = f"only {gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "no GPU"
        raise DeviceError(f"device '{name}' was requested, but torch finds {found}; use auto or cpu")
    if (old := _too_old(device)) is not None:
        raise DeviceError(f"device '{name}' was requested, but {old}; use auto or cpu")
    if device.index is not None:
        torch.cuda.set_device(device)
    return device


def _too_old(device: torch.device) -> str | None:
    """Reason why the kernels do not compile for a GPU, or None. They use integer and TF32 products of tensor cores."""
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) >= MIN_COMPUTE_CAPABILITY:
        return None
    name = torch.cuda.get_device_name(device)
    needed = ".".join(map(str, MIN_COMPUTE_CAPABILITY))
    return f"{name} has compute capability {major}.{minor}; the kernels need {needed} or more"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
