"""A worker process of a grid: it trains the runs that it reads from stdin, one after another.

Both directions are lines of JSON. The driver sends runs; `{"stop": true}` or the end of the input, as after the death
of the driver, stops the current run with a checkpoint. The worker answers with progress, warnings and the rows of each
run. It writes files only to the folders of its runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from softspin import errors
from softspin.compile_cache import ignore_advice
from softspin.data import Dataset
from softspin.errors import BusyError, DataWarning, OutOfTimeError, SoftspinError
from softspin.experiments.launchers import Ended, Progress
from softspin.experiments.launchers.this_process import DataKey, data_key, load_data
from softspin.experiments.reporting import Reporter
from softspin.experiments.runs import RunSpec, refresh, train_run
from softspin.records import ResultRow
from softspin.training.process import termination_raises

BUSY_SECONDS = 15.0
"""How long to wait for the lock of a run: the worker of a driver that was killed needs a moment to stop."""

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    """Entry point of `python -m softspin.experiments.worker`."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whatever prints to stdout must not damage the protocol
        lock = threading.Lock()

        def send(message: dict[str, Any]) -> None:
            with (
                lock,
                contextlib.suppress(BrokenPipeError),
            ):  # after the death of the driver, training must reach a stop
                print(json.dumps(message, allow_nan=False), file=answers, flush=True)

        def send_warning(message: Warning | str, *where: object, **more: object) -> None:
            send({"kind": "warning", "text": " ".join(str(message).split())})

        warnings.showwarning = send_warning
        ignore_advice()
        requests: queue.SimpleQueue[RunSpec | None] = queue.SimpleQueue()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then stops its workers
        threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()
        with contextlib.suppress(OutOfTimeError), termination_raises():  # stopped between two runs
            _serve(requests, send)


def _read(lines: Iterable[str], requests: queue.SimpleQueue[RunSpec | None]) -> None:
    """Queue the runs of the driver; a thread, because the main one trains."""
    for line in lines:
        values = json.loads(line)
        if "stop" in values:
            break
        requests.put(RunSpec.from_json(values))
    requests.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(requests: queue.SimpleQueue[RunSpec | None], send: Send) -> None:
    data: dict[DataKey, Dataset] = {}
    while (spec := requests.get()) is not None:
        try:
            key = data_key(spec.config)
            if key not in data:
                with warnings.catch_warnings(action="ignore", category=DataWarning):  # the driver has shown them
                    data |= load_data([spec])
            send(ended_to_json(train(spec, data[key], lambda progress: send(_progress_json(progress)))))
        except OutOfTimeError as error:
            send(ended_to_json(Ended(spec, "stopped", reason=str(error))))
        except (SoftspinError, OSError) as error:
            send({"kind": "error", "type": type(error).__name__, "message": str(error)})


def train(spec: RunSpec, data: Dataset, report: Callable[[Progress], object]) -> Ended:
    """Train or resume a run in this process.

    Args:
        spec: The run.
        data: Its data set.
        report: Called with its progress.

    Returns:
        The end of the run.

    Raises:
        SoftspinError: An error that other runs would have too, such as a full disk.
    """
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        spec = refresh(spec)
        try:
            return Ended(spec, "done", train_run(spec, data, callback=Reporter(spec, report)))
        except OutOfTimeError as error:
            return Ended(spec, "stopped", reason=str(error))
        except BusyError:
            if time.monotonic() > give_up:
                return Ended(spec, "busy")
            time.sleep(0.2)


def _progress_json(progress: Progress) -> dict[str, Any]:
    return {"kind": "progress", "step": progress.step, "bound": progress.bound, "nll": progress.nll}


def ended_to_json(ended: Ended) -> dict[str, Any]:
    """The end of a run as plain data, without its spec.

    Args:
        ended: The end of a run.

    Returns:
        Plain data for strict JSON.
    """
    rows = [row.to_json() for row in ended.rows]
    return {"kind": "ended", "status": ended.status, "rows": rows, "reason": ended.reason}


def ended_from_json(spec: RunSpec, message: Mapping[str, Any]) -> Ended:
    """The end of a run, from the answer of a worker.

    Args:
        spec: The run.
        message: Plain data of :func:`ended_to_json`, or an error.

    Returns:
        The end of the run.

    Raises:
        SoftspinError: The message is an error that other runs would have too.
    """
    if message["kind"] == "error":
        kind = getattr(errors, message["type"], SoftspinError)
        raise kind(message["message"])
    rows = [ResultRow.from_json(row) for row in message["rows"]]
    return Ended(spec, message["status"], rows, message["reason"])


if __name__ == "__main__":
    main()
