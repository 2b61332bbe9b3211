"""The measurement of a machine, kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path

import torch

from softspin import __version__, files
from softspin.files import cache_folder
from softspin.timing import probes
from softspin.timing.probes import Probes


def machine_name(device: torch.device) -> str:
    """Name of what determines the speed of a device: the GPU, or the CPU and the number of threads.

    Args:
        device: The device.

    Returns:
        The name.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'' if threads == 1 else 's'}"


def processor() -> str:
    """Name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def measure_machine(device: torch.device) -> Probes:
    """Measure a machine, which takes seconds, and keep the result in the cache.

    Args:
        device: Device of training.

    Returns:
        The measurement.
    """
    found = probes.measure(device)
    path = _path(device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {"machine": machine_name(device), "seconds": found._asdict()})
    except OSError:
        pass  # without a cache it is measured again
    return found


def known_machine(device: torch.device) -> Probes | None:
    """The kept measurement of a machine.

    Args:
        device: Device of training.

    Returns:
        The measurement, or None if there is none by these versions of softspin and torch.
    """
    try:
        return Probes(**json.loads(_path(device).read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(device: torch.device) -> Path:
    about = f"{machine_name(device)} {os.cpu_count()} {__version__} {torch.__version__}"
    return cache_folder() / "speed" / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"
