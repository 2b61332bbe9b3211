"""What Table 1 takes on several GPUs: an estimate by the time model and the measured overhead of a launcher."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from softspin.experiments.cells import find_table, read_cells
from softspin.timing import Estimate, Estimator

ROOT = Path(__file__).parents[2]
SEEDS = (0, 1, 2, 3, 4)
GPUS = (1, 8, 64)


def cost_table() -> str:
    """Hours of Table 1 on 1, 8 and 64 GPUs, one run of five seeds at a time on each."""
    times = _times()
    lines = ["| GPUs | time | interval | busy |", "|---|---|---|---|"]
    for gpus in GPUS:
        ends = {name: longest_first(own, gpus) for name, own in times.items()}
        busy = sum(times["seconds"]) / (gpus * ends["seconds"])
        low, high = _hours(ends["low"]), _hours(ends["high"])
        lines.append(f"| {gpus} | {_hours(ends['seconds'])} h | {low} to {high} h | {busy:.0%} |")
    return "\n".join(lines)


def cost_facts() -> str:
    """Where the numbers of the table come from."""
    times, (row,) = _times()["seconds"], _overheads()
    machine = Estimator(torch.device("cuda"), benchmark=True).machine
    return (
        f"{len(times)} runs of five seeds each; the shortest takes {_hours(min(times))} h, the longest "
        f"{_hours(max(times))} h on one {machine}. The overhead of a run is {row['mean_s']:.2f} s "
        f"(`benchmarks/launchers.py`, {row['device']}, commit {row['commit']})"
    )


def longest_first(seconds: Sequence[float], machines: int) -> float:
    """Time until the last job ends, if the longest job left goes to the first machine that is free.

    At most 4/3 of the shortest possible time (R. L. Graham, 1969, Bounds on multiprocessing timing anomalies).

    Args:
        seconds: Time of each job.
        machines: Number of machines.

    Returns:
        The time.
    """
    ends = [0.0] * machines
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _times() -> dict[str, list[float]]:
    """Estimated time of every run with its overhead, and both ends of the interval."""
    estimator, (row,) = Estimator(torch.device("cuda"), benchmark=True), _overheads()
    found: list[Estimate] = []
    for cell in read_cells(find_table("table1")):
        estimate = estimator.run(cell.config(seeds=SEEDS))
        assert estimate is not None, f"{cell.id} is not covered by the time model"
        found.append(estimate)
    return {name: [getattr(one, name) + row["mean_s"] for one in found] for name in ("seconds", "low", "high")}


def _overheads() -> list[dict[str, float | str]]:
    rows = json.loads((ROOT / "benchmarks/results/launchers.json").read_text())
    return [row for row in rows if row["what"] == "overhead"]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.0f}" if seconds >= 36_000 else f"{seconds / 3600:.1f}"
