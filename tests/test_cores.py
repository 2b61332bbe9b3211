"""Workers may use all cores, although OpenMP binds the thread that imports torch to one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from softspin import cores

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(cores.CORES) < 2, reason="needs two cores that can be chosen"
)

START = """
import json, os, queue
from softspin.experiments.launchers.machine import Machine
from softspin.experiments.launchers.worker_process import WorkerProcess
worker = WorkerProcess(dict(os.environ), queue.SimpleQueue())
found = [sorted(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(worker.process.pid)), Machine.find("cpu").cores]
worker.close()
print(json.dumps(found))
"""


def bound_process(code: str) -> Any:
    """What a process prints whose OpenMP binds threads."""
    environment = {**os.environ, "OMP_PROC_BIND": "true", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def test_a_worker_may_use_all_cores() -> None:
    own, worker, counted = bound_process(START)
    assert len(own) == 1, "OpenMP no longer binds the thread that imports torch; then unbound() is not needed"
    assert worker == list(cores.CORES)
    assert counted == list(cores.CORES)


def test_the_thread_is_bound_again_afterwards() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cores.CORES[0]})
        with cores.unbound():
            assert os.sched_getaffinity(0) == set(cores.CORES)
        assert os.sched_getaffinity(0) == {cores.CORES[0]}
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("processes", "gpu", "expected"), [("1", False, "true"), ("2", False, "false"), ("1", True, "false")]
)
def test_threads_are_bound_in_single_processes_without_a_gpu(
    processes: str, gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    monkeypatch.setattr(cores, "GPU_DRIVER", tmp_path if gpu else tmp_path / "missing")
    cores.bind_threads()
    assert os.environ["OMP_PROC_BIND"] == expected
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    cores.bind_threads()
    assert os.environ["OMP_PROC_BIND"] == "close", "a user's choice is kept"
