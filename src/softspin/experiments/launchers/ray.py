"""Launcher that trains on a Ray cluster, one task for each run."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softspin import __version__
from softspin.errors import BusyError, ConfigError, DeviceError, SoftspinError, WorkerError
from softspin.experiments.launchers import Ended, Progress, Report
from softspin.experiments.launchers.machine import Machine
from softspin.experiments.launchers.processes import STOPPING
from softspin.experiments.launchers.ray_cluster import MAX_REASON, RayCluster, import_ray
from softspin.experiments.launchers.ray_task import Mailbox, Message, train_on_node
from softspin.experiments.launchers.run_files import ChangedFiles, take_token, write_files, write_token
from softspin.experiments.launchers.this_process import load_data
from softspin.experiments.reporting import WorkerWarnings
from softspin.experiments.runs import RunSpec, set_aside
from softspin.experiments.worker import ended_from_json
from softspin.files import OWNER
from softspin.training.process import locked

POLL_SECONDS = 0.5
"""Seconds between two looks into the mailbox."""
NODES_SECONDS = 5.0
"""Seconds between two looks at the nodes of the cluster, which come and go."""
MAILBOX_SECONDS = 120.0
"""How long the mailbox may take to start, on a busy machine."""


class _Run(NamedTuple):
    """A run whose task was submitted."""

    number: int
    spec: RunSpec
    token: Path
    lock: contextlib.ExitStack
    """Holds the lock of the folder if the task does not see it."""


class RayLauncher:
    """Launcher whose runs are tasks of a Ray cluster.

    Ray retries nothing: the scheduler resumes a run from its checkpoint after its worker or node has died.

    Args:
        workers: Largest number of runs at a time; None for as many as the resources of the cluster allow.
        device: Setting `device` of the runs.
        gpus_per_run: Share of a GPU for each run; None for a whole one.
        address: Address of a cluster; None for `$RAY_ADDRESS`, or for a cluster that is started here.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: An option is invalid.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        device: str = "auto",
        gpus_per_run: float | None = None,
        address: str | None = None,
    ) -> None:
        if device.startswith("cuda:"):
            raise ConfigError(f"device = {device} with the launcher ray; use cuda, because Ray chooses the GPU")
        if gpus_per_run is not None and device == "cpu":
            raise ConfigError("gpus_per_run needs a GPU; on a CPU give the number of workers")
        if gpus_per_run is not None and not 0 < gpus_per_run <= 1:
            raise ConfigError(f"gpus_per_run = {gpus_per_run:g} is not in (0, 1]; a run uses at most one GPU")
        self._ray = import_ray()
        self._most, self._device, self._address = workers, device, address
        self._gpus, self._cpus = gpus_per_run, 1
        self._cluster: RayCluster | None = None
        self._task: Any = None
        self._mailbox: Any = None
        self._runs: dict[Any, _Run] = {}
        self._started: set[int] = set()
        self._count = 0
        self._capacity, self._capacity_time = 1, -NODES_SECONDS
        self._report: Report = lambda progress: None
        self._warnings = WorkerWarnings()

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        """Load all data sets once, connect, and check that the cluster can train the runs."""
        self._report = report
        if not specs:
            return
        load_data(specs)
        cores = len(Machine.find("cpu").cores)
        self._cluster = RayCluster(self._address, cpus=cores, use_gpus=self._device != "cpu")
        resources = self._cluster.resources()
        self._gpus = gpu_share(self._device, self._gpus, sum(node.get("GPU", 0.0) for node in resources))
        if self._cluster.started_here and not self._gpus and self._most is not None:
            self._cpus = max(1, cores // self._most)
        ray = self._ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._task = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=0)(train_on_node)
        self._mailbox = ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()
        self._call("collect")

    @property
    def is_free(self) -> bool:
        """Whether fewer runs are submitted than there may be at a time."""
        return len(self._runs) < self._limit()

    def _limit(self) -> int:
        """Runs at a time. One is submitted even if no node can take it now: a cluster may be about to grow."""
        if self._cluster is not None and time.monotonic() - self._capacity_time >= NODES_SECONDS:
            assert self._gpus is not None
            with contextlib.suppress(self._ray.exceptions.RayError):  # a busy cluster is asked again later
                self._capacity = max(1, capacity(self._cluster.resources(), self._cpus, self._gpus))
            self._capacity_time = time.monotonic()
        return self._capacity if self._most is None else min(self._most, self._capacity)

    def start(self, spec: RunSpec) -> None:
        """Submit the task of a run."""
        self._count += 1
        token = write_token(spec.folder)
        variables = {name: value for name, value in os.environ.items() if name.startswith("SOFTSPIN_")}
        variables.pop(OWNER, None)  # names one process
        absolute = spec._replace(folder=spec.folder.absolute())
        request = {"softspin": __version__, "spec": absolute.to_json(), "token": str(token), "variables": variables}
        reference = self._task.remote(self._mailbox, self._count, request)
        self._runs[reference] = _Run(self._count, spec, token, contextlib.ExitStack())

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        """Wait for the end of a run, while messages are read."""
        limit = self._limit()
        while self._runs and limit == self._limit():
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return []
            if ended := self._next(min(left, POLL_SECONDS)):
                return ended
        return []

    def _next(self, seconds: float) -> list[Ended]:
        """Read messages, and handle runs that have ended by now."""
        done, _ = self._ray.wait(list(self._runs), timeout=seconds)
        for number, message in self._call("collect"):  # also the last files of runs that have ended
            for run in self._runs.values():
                if run.number == number:
                    self._handle(run, message)
        return [self._end(reference) for reference in done]

    def _handle(self, run: _Run, message: Message) -> None:
        """Handle a message of a run in training."""
        if message["kind"] == "progress":
            self._report(Progress(run.spec, message["step"], message["bound"], message["nll"]))
        elif message["kind"] == "warning":
            self._warnings.show(message["text"], run.spec)
        elif message["kind"] == "started":
            self._started.add(run.number)
            take_token(run.token)
            if not message["shared"]:
                self._send_files(run)
        elif message["kind"] == "files":
            write_files(run.spec.folder, message["files"])
            if message["broken"]:
                run.lock.close()
                set_aside(run.spec.folder)

    def _send_files(self, run: _Run) -> None:
        """Lock the folder of a run for a task that does not see it, and send its files."""
        try:
            run.lock.enter_context(locked(run.spec.folder))
        except BusyError:
            self._call("post", run.number, {"kind": "stop", "status": "busy"})
            return
        files = ChangedFiles(run.spec.folder).read(final=True)
        self._call("post", run.number, {"kind": "files", "files": files})

    def _end(self, reference: Any) -> Ended:
        run = self._runs.pop(reference)
        take_token(run.token)
        run.lock.close()
        errors = self._ray.exceptions
        try:
            return ended_from_json(run.spec, self._ray.get(reference))
        except errors.TaskCancelledError:
            return Ended(run.spec, "stopped", reason="stopped before it began")
        except errors.RayError as error:
            if "failed to import" in str(error) or "No module named" in str(error):
                raise WorkerError(
                    f"a node of the Ray cluster cannot import softspin; install softspin {__version__} on all nodes"
                ) from None
            return Ended(run.spec, "died", reason=_cause(error, errors))

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call the mailbox."""
        try:
            return self._ray.get(getattr(self._mailbox, method).remote(*arguments), timeout=MAILBOX_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise WorkerError(
                f"the Ray cluster no longer answers ({type(error).__name__}); run the same command again to resume"
            ) from None

    def stop(self) -> Sequence[Ended]:
        """Stop all runs with a checkpoint; those that have not begun are cancelled."""
        if self._runs:  # a validation may take minutes
            print(STOPPING.format(len(self._runs)), file=sys.stderr, flush=True)
        found = self._next(0.0) if self._runs else []
        for reference, run in self._runs.items():
            self._call("post", run.number, {"kind": "stop", "status": "stopped"})
            if run.number not in self._started:
                self._ray.cancel(reference)
        while self._runs:
            with contextlib.suppress(SoftspinError):  # the other runs must reach their checkpoints first
                found += self._next(POLL_SECONDS)
        return [one._replace(status="stopped") if one.status == "died" else one for one in found]

    def close(self) -> None:
        """Disconnect; runs still in training lose their task, and end by themselves. Ends a cluster started here."""
        for reference, run in self._runs.items():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            take_token(run.token)
            run.lock.close()
        self._runs = {}
        if self._mailbox is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._mailbox)
            self._mailbox = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def gpu_share(device: str, wanted: float | None, gpus: float) -> float:
    """Share of a GPU that each run gets.

    Args:
        device: Setting `device` of the runs.
        wanted: The share that was asked for; None for a whole GPU.
        gpus: Number of GPUs of the cluster.

    Returns:
        The share; 0 for runs on a CPU.

    Raises:
        DeviceError: The runs need a GPU, and the cluster has none.
    """
    if device == "cpu" or (device == "auto" and wanted is None and not gpus):
        return 0.0
    if not gpus:
        what = f"device = {device}" if wanted is None else f"gpus_per_run = {wanted:g}"
        raise DeviceError(f"{what}, but no node of the Ray cluster has a GPU; use device cpu, or add a node with one")
    return 1.0 if wanted is None else wanted


def capacity(nodes: Iterable[Mapping[str, float]], cpus: int, gpus: float) -> int:
    """Number of runs that a cluster can train at a time.

    >>> capacity([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 3.0, "GPU": 4.0}, {"CPU": 64.0}], cpus=1, gpus=0.5)
    7

    Args:
        nodes: Resources of each node.
        cpus: Cores of each run.
        gpus: Share of a GPU of each run, at most 1.

    Returns:
        The number.
    """
    number = 0
    for node in nodes:
        most = int(node.get("CPU", 0.0)) // cpus
        number += min(most, int(node.get("GPU", 0.0)) * int(1 / gpus + 1e-9)) if gpus else most
    return number


def _cause(error: BaseException, errors: Any) -> str:
    """Why a task has died, in a few words."""
    for kind, text in (
        (errors.NodeDiedError, "the node died"),
        (errors.OutOfMemoryError, "the node was out of memory, and Ray killed the worker"),
        (errors.WorkerCrashedError, "the Ray worker was killed"),
    ):
        if isinstance(error, kind):
            return text
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:MAX_REASON]
