"""Training steps on a CPU: compiled by torch.compile (`compile = on`), and not.

    python benchmarks/cpu_compile.py [--threads 1] [--rounds 40] [--out FILE]

Both are measured in one process, turn by turn. The first compiled step includes the compilation: with an empty cache,
and again with a warm one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cpu_step import quantiles, some_data

from softspin.config import Config
from softspin.model import build
from softspin.provenance import provenance
from softspin.training.engine import Engine

CASES: dict[str, dict[str, Any]] = {
    "2-nonlinear, mlp, K = 1": {},
    "2-nonlinear, mlp, K = 5": {"importance_samples": 5},
    "2-nonlinear, conv, K = 1": {"net": "conv", "channels": 32, "layers": 1, "width": 250},
}
CHAINS, SWEEPS, WARM_UP = 100, 10, 3


def row(case: str, rounds: int) -> dict[str, Any]:
    """Times of both steps, and the median of their ratios."""
    engines = {setting: engine(case, setting) for setting in ("off", "on")}
    cold = seconds(engines["on"].step)
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds + WARM_UP):
        for name, one in engines.items():
            spent = seconds(one.step)
            if turn >= WARM_UP:
                times[name].append(1e3 * spent)
    ratios = [off / on for off, on in zip(times["off"], times["on"], strict=True)]
    torch.compiler.reset()
    warm = seconds(engine(case, "on").step)
    saved = statistics.median(times["off"]) - statistics.median(times["on"])
    return {
        "what": case,
        "batch": 100,
        "sampler": f"PCD, {CHAINS} chains x {SWEEPS} sweeps",
        "ms": {name: quantiles(torch.tensor(own)) for name, own in times.items()},
        "times_faster": quantiles(torch.tensor(ratios)),
        "first_step_s": {"empty cache": round(cold, 1), "warm cache": round(warm, 1)},
        "gained_back_after_steps": round(1e3 * cold / saved) if saved > 0 else None,
    }


def engine(case: str, compiled: str) -> Engine:
    """The training of a case, before its first step."""
    settings = {"structure": "2-nonlinear", "sampler": "pcd", "chains": CHAINS, "sweeps": SWEEPS, "device": "cpu"}
    config, data = Config(**settings, compile=compiled, **CASES[case]), some_data()
    return Engine(config, build(config, data.spec), data, torch.device("cpu"))


def seconds(step: Callable[[], None]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    """Measure every case, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu_compile.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made = provenance(torch.device("cpu"))
    where = {"device": made.device, "threads": options.threads, "commit": made.commit, "torch": made.torch}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            torch.compiler.reset()
            rows.append(row(case, options.rounds) | where)
        print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
