"""Where a number comes from: program, commit, device. For rows that others will quote."""

from __future__ import annotations

import functools
import platform
import subprocess
from pathlib import Path

import torch

from softspin import __version__
from softspin.errors import DeviceError


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


def provenance(device: torch.device) -> dict[str, str | None]:
    """Plain data that says what made a result."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "softspin": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "device": f"{device.type} {name}",
    }


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise DeviceError(f"device '{name}' was asked for, but torch finds no such GPU here; use auto or cpu")
    return device


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
