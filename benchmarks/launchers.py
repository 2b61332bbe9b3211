"""Overhead of the local launcher for each run, and the speedup of two workers over one.

    python benchmarks/launchers.py [--commit HASH] [--out FILE] [--quick]

Overhead: a grid of 200 runs of 4 steps, one after another, by one worker process. Everything counts but the start of
the worker: driver, messages, training, checkpoints, test, rows. So it is an upper bound of what a launcher adds to a
run. Speedup: runs of equal length by one worker of one thread and by two of them, turn by turn. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from softspin.experiments.cells import Cell
from softspin.experiments.launchers.processes import Processes
from softspin.experiments.planning import CellPlan
from softspin.experiments.runs import RunSpec, new_run
from softspin.experiments.scheduler import Event, RunEnded, Scheduler
from softspin.timing.machine import processor

CELL = Cell("bars-and-stripes-3x3", "1-nonlinear", 1, "dvae#-power", "pa", 30.0)
TINY = ["device=cpu", "bits_per_group=6", "width=8", "chains=20", "sweeps=2", "batch_size=10", "validation_samples=5",
        "test_samples=20"]  # fmt: skip
RUNS, STEPS = 200, 4
ROUNDS, RUNS_A_ROUND, LONG_STEPS = 5, 4, 1_000


def specs(count: int, steps: int, folder: Path) -> list[RunSpec]:
    """Runs of one cell, each with its own seed."""
    return [
        new_run(CELL, CELL.config(steps=steps, settings=TINY), [seed], folder / f"{steps}") for seed in range(count)
    ]


def overhead(runs: int) -> dict[str, Any]:
    """Seconds of a run of a few steps in a grid, between the ends of two runs."""
    ends: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        planned = specs(runs, STEPS, Path(folder))
        plans = [CellPlan(spec.cell, spec.config, spec.config.seeds, (), (), (spec,)) for spec in planned]
        outcome = Scheduler(plans, Path(folder, "rows.jsonl"), Processes(1, device="cpu"), listen).run()
    assert outcome == "done"
    seconds = torch.tensor(ends).double().diff()
    mean = (ends[-1] - ends[0]) / (runs - 1)
    return {"what": "overhead", "runs": runs, "steps": STEPS, "mean_s": round(mean, 4), "seconds": quantiles(seconds)}


def speedup(rounds: int) -> dict[str, Any]:
    """Time of the same number of equal runs by one worker and by two, each with one thread, after a run of warm-up."""
    times: dict[int, list[float]] = {1: [], 2: []}
    launchers = {workers: Processes(workers, device="cpu") for workers in times}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for workers, launcher in launchers.items():
                planned = specs(workers, STEPS, Path(folder, f"warm-up-{workers}"))
                launcher.prepare(planned, lambda progress: None)
                train(launcher, planned)
            for turn in range(rounds):
                for workers, launcher in launchers.items():
                    start = time.perf_counter()
                    train(launcher, specs(RUNS_A_ROUND, LONG_STEPS, Path(folder, f"{turn}-{workers}")))
                    times[workers].append(time.perf_counter() - start)
        finally:
            for launcher in launchers.values():
                launcher.close()
    ratios = torch.tensor(times[1]).double() / torch.tensor(times[2]).double()
    return {
        "what": "two workers of one thread against one",
        "runs": RUNS_A_ROUND,
        "steps": LONG_STEPS,
        "seconds": {str(workers): quantiles(torch.tensor(own)) for workers, own in times.items()},
        "times_faster": quantiles(ratios),
    }


def train(launcher: Processes, planned: Sequence[RunSpec]) -> None:
    """Train runs, as many at a time as the launcher can."""
    waiting, left = list(planned), len(planned)
    while left:
        while waiting and launcher.is_free:
            launcher.start(waiting.pop())
        for ended in launcher.wait(None):
            assert ended.status == "done", ended
            left -= 1


def quantiles(values: torch.Tensor) -> dict[str, float]:
    low, middle, high = values.double().quantile(torch.tensor([0.1, 0.5, 0.9]).double()).tolist()
    return {"median": round(middle, 4), "q10": round(low, 4), "q90": round(high, 4)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    where: dict[str, Any] = {
        "device": processor(),
        "cores": os.cpu_count(),
        "threads": 1,
    }
    where |= {"commit": options.commit, "torch": torch.__version__}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = []
    cases = ((overhead, 20 if options.quick else RUNS), (speedup, 1 if options.quick else ROUNDS))
    for measure, size in cases:
        where["load"] = round(os.getloadavg()[0], 2)
        rows.append(measure(size) | where)
        print(json.dumps(rows[-1]), flush=True)
        if options.out:  # after every case: a run that is cut off keeps what it has
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
