"""Training steps of convolutional networks on a GPU: with kernels, and with the convolutions of torch (cuDNN).

    python benchmarks/gpu_conv.py [--samples 1 5]

2-nonlinear on random bits of MNIST's size with `net = conv`, 3 replicas, batch 100, PA with 40 sweeps of 1,000 chains.
Each case is compiled in a process of its own. They are measured one after another.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from gpu_step import milliseconds, some_data

from softspin.config import Config
from softspin.model import build
from softspin.nets import convolutions
from softspin.provenance import provenance
from softspin.training.engine import Engine

SETTINGS: dict[str, Any] = {"net": "conv", "layers": 1, "width": 250, "sampler": "pa", "seeds": (0, 1, 2)}
WARM_UP, ROUNDS = 12, 15


def measure(kernels: bool, samples: int, tf32: bool, lock: Path) -> dict[str, Any]:
    """The row of a case."""
    if not kernels:
        convolutions.is_fused = lambda maps, sizes, channels: False
    config = Config(structure="2-nonlinear", importance_samples=samples, tf32=tf32, device="cuda", **SETTINGS)
    data = some_data()
    engine = Engine(config, build(config, data.spec), data, torch.device("cuda"))
    for _ in range(WARM_UP):
        engine.step()
    torch.cuda.synchronize()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        times = [milliseconds(engine) for _ in range(ROUNDS)]
    deciles, made = statistics.quantiles(times, n=10), provenance(torch.device("cuda"))
    return {
        "convolutions": "kernels" if kernels else "torch",
        "samples": samples,
        "tf32": tf32,
        "ms": {"median": statistics.median(times), "q10": deciles[0], "q90": deciles[-1]},
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3),
        "finite": bool((engine.record.first_nonfinite < 0).all()),
        "device": made.device,
        "commit": made.commit,
        "torch": made.torch,
    }


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_conv.json")
    options = parser.parse_args()
    if options.case:
        kernels, samples, tf32, lock = options.case
        print(json.dumps(measure(kernels == "1", int(samples), tf32 == "1", Path(lock))))
        return
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "--case", str(kernels), str(samples), str(tf32), f"{folder}/lock"],
                stdout=subprocess.PIPE, text=True,
            )
            for kernels, samples, tf32 in itertools.product((1, 0), options.samples, (0, 1))
        ]  # fmt: skip
        rows = [json.loads(one.communicate()[0].splitlines()[-1]) for one in started]
    for row in rows:
        print(json.dumps(row))
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
