"""Throughput of several runs that share a GPU under CUDA MPS, by their number.

    python benchmarks/gpu_sharing.py [--samples 1 25] [--numbers 1 2 4 8] [--seconds 6] [--out FILE]

Each run is a process with one of the paper's methods, 1-nonlinear, 3 replicas, population annealing, on random bits of
MNIST's size. All compile and warm up at the same time. Then the first N train together, for each number N. A row
has the updates per second of all runs together, and those of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

METHODS = ("dvae#-power", "dvae#-exp", "dvae++-exp", "dvae#-un_exp", "dvae++-power", "dvae-spike_exp", "dvae#-gaussian",
           "dvae#-gauss_int")  # fmt: skip
STEPS = 20
"""Updates between two looks at the clock."""


def train(method: str, samples: int) -> None:
    """Warm up; then, for each line of input, train for so many seconds and print the updates per second."""
    import torch
    from step_times import make_engine, settings

    engine = make_engine(settings(f"1-nonlinear k{samples} r3 {method} pa"), torch.device("cuda"))
    for _ in range(STEPS):
        engine.step()
    torch.cuda.synchronize()
    print("READY", flush=True)
    for line in sys.stdin:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < float(line):
            for _ in range(STEPS):
                engine.step()
            torch.cuda.synchronize()
            steps += STEPS
        print(steps / (time.perf_counter() - start), flush=True)


def measure(samples: int, numbers: list[int], seconds: float) -> list[dict[str, Any]]:
    """A row for each number of runs."""
    from softspin.experiments.launchers.mps import Mps

    mps = Mps()
    environment = os.environ | mps.environment() | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    runs = [
        subprocess.Popen([sys.executable, __file__, "--train", method, "--samples", str(samples)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for method in METHODS[: max(numbers)]
    ]  # fmt: skip
    rows = []
    try:
        for run in runs:
            assert run.stdout is not None
            if run.stdout.readline().strip() != "READY":
                raise SystemExit("a run did not start")
        start = round(time.perf_counter() - started, 1)
        for number in numbers:
            for run in runs[:number]:
                print(seconds, file=run.stdin, flush=True)
            rates = [round(float(run.stdout.readline())) for run in runs[:number] if run.stdout is not None]
            rows.append({"samples": samples, "runs": number, "updates_per_second": sum(rates),
                         "each": dict(zip(METHODS, rates, strict=False)), "start_s": start})  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    finally:
        for run in runs:
            run.kill()
            run.wait()
        mps.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 25])
    parser.add_argument("--numbers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.samples[0])
        return
    from step_times import origin

    rows: list[dict[str, Any]] = []
    for samples in options.samples:
        rows += [row | origin("cuda") for row in measure(samples, options.numbers, options.seconds)]
        if options.out:
            options.out.write_text("[\n" + ",\n".join(json.dumps(one) for one in rows) + "\n]\n")


if __name__ == "__main__":
    main()
