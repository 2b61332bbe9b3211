"""GPUs and cores of this machine, and how workers share them."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

import torch

from softspin.cores import CORES
from softspin.errors import ConfigError
from softspin.provenance import find_device

WORKERS_PER_GPU = 8
"""Largest number of workers on a GPU that `auto` tries."""
GIB_PER_WORKER = 4
"""Memory of a GPU that `auto` leaves to each worker; a run of the paper needs about 2 GiB."""


class Machine(NamedTuple):
    """GPUs and cores for workers."""

    gpus: tuple[str, ...]
    """Identifiers for CUDA_VISIBLE_DEVICES; empty if the runs train on the CPU."""
    cores: tuple[int, ...]
    """Cores that this process may use."""

    @classmethod
    def find(cls, device: str) -> Machine:
        """The machine as a setting `device` uses it.

        Args:
            device: Setting of the runs: auto, cpu, cuda or cuda:N.

        Returns:
            The machine.
        """
        found = find_device(device)
        if found.type != "cuda":
            return cls((), CORES)
        listed = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        gpus = tuple(name.strip() for name in listed.split(","))
        return cls(gpus if found.index is None else gpus[found.index : found.index + 1], CORES)

    def most_workers(self, gpus_per_run: float | None) -> int:
        """Largest sensible number of workers.

        Args:
            gpus_per_run: Share of a GPU for each run; None to decide by memory.

        Returns:
            The number.

        Raises:
            ConfigError: The share is not in (0, 1], or there is no GPU.
        """
        if gpus_per_run is None:
            return len(self.gpus) * _workers_by_memory() if self.gpus else len(self.cores)
        if not self.gpus:
            raise ConfigError("gpus_per_run needs a GPU; on a CPU give the number of workers")
        return len(self.gpus) * runs_per_gpu(gpus_per_run)

    def places(self, workers: int) -> list[dict[str, str]]:
        """Environment variables of each worker: its GPU and its threads.

        A worker with one thread, or with a GPU, is placed by the operating system. Threads of a worker with more of
        them are bound to cores of their own, because on some small machines they would all run on one core otherwise.

        Args:
            workers: Number of workers.

        Returns:
            Variables of each worker.
        """
        threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, len(self.cores) // workers))
        places = []
        for number in range(workers):
            own = {"OMP_NUM_THREADS": str(threads)}
            if len(self.gpus) > 1:
                own["CUDA_VISIBLE_DEVICES"] = self.gpus[number % len(self.gpus)]
            if self.gpus or threads == 1 or workers * threads > len(self.cores):
                own["OMP_PROC_BIND"] = "false"
            else:
                mine = self.cores[number * threads : (number + 1) * threads]
                own |= {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{core}}}" for core in mine)}
            places.append(own)
        return places


def runs_per_gpu(gpus_per_run: float) -> int:
    """Number of runs that share a GPU.

    >>> runs_per_gpu(0.5), runs_per_gpu(0.1), runs_per_gpu(0.7)
    (2, 10, 1)

    Args:
        gpus_per_run: Share of a GPU for each run.

    Returns:
        The number.

    Raises:
        ConfigError: The share is not in (0, 1].
    """
    if not 0 < gpus_per_run <= 1:
        raise ConfigError(f"gpus_per_run = {gpus_per_run:g} is not in (0, 1]; a run uses at most one GPU")
    return int(1 / gpus_per_run + 1e-9)  # 1 / 0.1 may be rounded down


def _workers_by_memory() -> int:
    """Workers for the smallest GPU, by its memory; asked of the driver, since torch would create a CUDA context."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        gib = min(int(line) for line in answer.split()) // 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return 1
    return max(1, min(WORKERS_PER_GPU, gib // GIB_PER_WORKER))
