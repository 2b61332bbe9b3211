"""Where a number comes from: program, commit, device. For rows that others will quote."""

from __future__ import annotations

import functools
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
    """The commit of the source tree that is running, with + if it was changed since; None outside of one."""
    here = Path(__file__).resolve().parent
    try:
        top = _git(here, "rev-parse", "--show-toplevel")
        if Path(top) / "src" / "softspin" != here:
            return None
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git(here, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(device: torch.device) -> Provenance:
    """What makes a result here and now."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return Provenance(
        softspin=__version__, commit=commit(), torch=str(torch.__version__), device=f"{device.type} {name}"
    )


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one that is new enough."""
    if name == "auto":
        if torch.cuda.is_available():
            device = torch.device("cuda")
            if (old := _too_old(device)) is None:
                return device
            warnings.warn(f"running on the CPU: {old}", stacklevel=1)  # once, whoever asks
        return torch.device("cpu")
    device = torch.device(name)
    if device.type != "cuda":
        return device
    if not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise DeviceError(f"device '{name}' was asked for, but torch finds no such GPU here; use auto or cpu")
    if (old := _too_old(device)) is not None:
        raise DeviceError(f"device '{name}' was asked for, but {old}; use auto or cpu")
    return device


def _too_old(device: torch.device) -> str | None:
    """Why our kernels do not compile for a GPU, or None: they multiply whole numbers and TF32 on tensor cores."""
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) >= MIN_COMPUTE_CAPABILITY:
        return None
    name = torch.cuda.get_device_name(device)
    needed = ".".join(map(str, MIN_COMPUTE_CAPABILITY))
    return f"{name} has compute capability {major}.{minor}; the kernels need {needed} or more"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
