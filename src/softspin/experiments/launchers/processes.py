"""Launcher that trains in several processes of this machine, on one or more GPUs or on the cores of a CPU."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Sequence
from typing import Any

from softspin.errors import SoftspinError
from softspin.experiments.launchers import Ended, Progress, Report
from softspin.experiments.launchers.autotune import Autotuner
from softspin.experiments.launchers.machine import Machine
from softspin.experiments.launchers.mps import Mps
from softspin.experiments.launchers.this_process import load_data
from softspin.experiments.launchers.worker_process import WorkerProcess
from softspin.experiments.reporting import RemainingTime, WorkerWarnings
from softspin.experiments.runs import RunSpec
from softspin.experiments.worker import ended_from_json

POLL_SECONDS = 1.0
"""Longest time that `wait` blocks at a time."""
STOPPING = "stopping after this step, its validation and a checkpoint ({} in training); Ctrl-C again stops at once"


class Processes:
    """Launcher with worker processes, each of which trains one run at a time.

    Args:
        workers: Number of processes; None finds it by measured throughput.
        device: Setting `device` of the runs.
        gpus_per_run: Share of a GPU that a run gets, which limits the number of processes; None for no limit.
    """

    def __init__(self, workers: int | None = None, *, device: str = "auto", gpus_per_run: float | None = None) -> None:
        machine = Machine.find(device)
        most = machine.most_workers(gpus_per_run) if workers is None else workers
        self._tuner = Autotuner(most) if workers is None else None
        self._places = machine.places(most)
        self._mps = Mps() if machine.gpus and most > 1 else None
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, RunSpec] = {}
        self._inbox: queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]] = queue.SimpleQueue()
        self._report: Report = lambda progress: None
        self._work = RemainingTime([])
        self._warnings = WorkerWarnings()

    def prepare(self, specs: Sequence[RunSpec], report: Report) -> None:
        """Load all data sets once, so that missing ones are downloaded once."""
        load_data(specs)
        self._report = report
        for spec in specs:
            self._work.add(spec)

    @property
    def workers(self) -> int:
        """Number of processes that may train now."""
        return len(self._places) if self._tuner is None else self._tuner.workers

    @property
    def is_free(self) -> bool:
        """Whether fewer runs are in training than there may be."""
        return len(self._busy) < self.workers

    def start(self, spec: RunSpec) -> None:
        """Hand a run to an idle worker, or to a new one."""
        if self._tuner is not None:
            self._tuner.disturbed()
        self._work.add(spec)
        worker = self._idle.pop() if self._idle else self._new_worker()
        self._busy[worker] = spec
        worker.send(spec.to_json())

    def _new_worker(self) -> WorkerProcess:
        taken = {worker.place for worker in (*self._busy, *self._idle)}
        place = next(number for number in range(len(self._places)) if number not in taken)
        mps = {} if self._mps is None else self._mps.environment()
        return WorkerProcess({**os.environ, **self._places[place], **mps}, self._inbox, place)

    def wait(self, deadline: float | None) -> Sequence[Ended]:
        """Wait for the end of a run, while progress is reported."""
        workers = self.workers
        while self._busy and workers == self.workers:
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return []
            if ended := self._next(min(left, POLL_SECONDS)):
                return [ended]
        return []

    def _next(self, seconds: float, *, stopping: bool = False) -> Ended | None:
        """Handle the next message of a worker; returns the end of a run."""
        try:
            worker, message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None
        if message is not None and self._shows(worker, message):
            return None
        spec = self._busy.pop(worker, None)
        if spec is None:
            if worker in self._idle:  # died between two runs
                self._idle.remove(worker)
                worker.close()
            return None
        if message is None:
            return Ended(spec, "died", reason=worker.death())
        self._work.end(spec)
        try:
            ended = ended_from_json(spec, message)
        except SoftspinError as error:
            worker.close()
            if stopping:  # the other runs must reach their checkpoints first
                return Ended(spec, "stopped", reason=str(error))
            raise
        # After some errors a GPU rejects all further work of a process, so a failure costs the worker its job.
        if ended.status == "stopped" or not all(row.ok for row in ended.rows):
            worker.close()
        else:
            self._idle.append(worker)
        return ended

    def _shows(self, worker: WorkerProcess, message: dict[str, Any]) -> bool:
        """Show a warning or the progress of a run; False for any other message."""
        spec = self._busy.get(worker)
        if message["kind"] == "warning":
            self._warnings.show(message["text"], spec)
        elif message["kind"] == "progress" and spec is not None:
            self._see(Progress(spec, message["step"], message["bound"], message["nll"]))
        else:
            return False
        return True

    def _see(self, progress: Progress) -> None:
        self._work.see(progress)
        if self._tuner is not None:
            self._tuner.see(str(progress.spec.folder), len(self._busy), self._work.done)
        self._report(progress)

    def stop(self) -> Sequence[Ended]:
        """Stop all runs with a checkpoint; what they had already sent is kept."""
        if self._busy:  # a validation may take minutes
            print(STOPPING.format(len(self._busy)), file=sys.stderr, flush=True)
        for worker in self._busy:
            worker.send({"stop": True})
        found = []
        while self._busy:
            if ended := self._next(POLL_SECONDS, stopping=True):
                found.append(ended)
        return [one._replace(status="stopped") if one.status == "died" else one for one in found]

    def close(self) -> None:
        """End idle workers; kill the others. MPS is stopped if it was started here."""
        for worker in self._busy:
            worker.process.kill()
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle, self._busy = [], {}
        if self._mps is not None:
            self._mps.close()
