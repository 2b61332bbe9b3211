"""Launchers by name."""

from __future__ import annotations

from operator import index

from softspin.errors import ConfigError, unknown_name
from softspin.experiments.launchers import Launcher
from softspin.experiments.launchers.machine import Machine
from softspin.experiments.launchers.processes import Processes
from softspin.experiments.launchers.ray import RayLauncher
from softspin.experiments.launchers.this_process import ThisProcess

LAUNCHERS = ("local", "ray", "slurm")
"""Names of launchers."""


def make_launcher(
    name: str,
    workers: int | str = 1,
    *,
    device: str = "auto",
    gpus_per_run: float | None = None,
    address: str | None = None,
) -> Launcher:
    """Create a launcher.

    Args:
        name: One of `LAUNCHERS`.
        workers: Number of runs in training at a time, or "auto".
        device: Setting `device` of the runs.
        gpus_per_run: Share of a GPU for each run; None for no limit.
        address: Address of a Ray cluster; None for `$RAY_ADDRESS`, or else one that is started on this machine.

    Returns:
        The launcher.

    Raises:
        UnknownNameError: There is no such launcher.
        ConfigError: An option is invalid.
        MissingExtraError: Its package is not installed.
    """
    number = parse_workers(workers)
    if name == "local":
        if address is not None:
            raise ConfigError("an address needs the launcher ray")
        if number == 1 and gpus_per_run is None:
            return ThisProcess()
        return Processes(number, device=device, gpus_per_run=gpus_per_run)
    if name == "ray":
        return RayLauncher(number, device=device, gpus_per_run=gpus_per_run, address=address)
    if name == "slurm":
        raise ConfigError("the launcher slurm is part of the command softspin grid; tasks of its jobs do the training")
    raise unknown_name("launcher", name, LAUNCHERS)


def parse_workers(workers: int | str) -> int | None:
    """The number of workers; None for "auto".

    >>> parse_workers("4"), parse_workers("auto")
    (4, None)

    Args:
        workers: A number, or its text, or "auto".

    Returns:
        The number, or None.

    Raises:
        ConfigError: It is neither.
    """
    if workers == "auto":
        return None
    try:
        number = int(workers) if isinstance(workers, str) else index(workers)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise ConfigError(f"workers = {workers} is neither a positive number nor 'auto'")
    return number


def workers_at_once(workers: int | str, device: str) -> int:
    """Number of runs to plan for, so that all workers have one.

    Args:
        workers: A number, or its text, or "auto": the GPUs of this machine, or without them its cores.
        device: Setting `device` of the runs.

    Returns:
        The number.

    Raises:
        ConfigError: It is neither a positive number nor "auto".
    """
    if (number := parse_workers(workers)) is not None:
        return number
    machine = Machine.find(device)
    return len(machine.gpus or machine.cores)
