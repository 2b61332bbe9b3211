"""Training steps of convolutional networks on a GPU: with kernels, and with the convolutions of torch (cuDNN).

    python benchmarks/gpu_conv.py [--samples 1 5] [--compilers N]

2-nonlinear on random bits of MNIST's size with `net = conv`, 3 replicas, batch 100, PA with 40 sweeps of 1,000 chains.
First, N processes at a time compile one case each into the cache of compiled code. Rounds of all cases then take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from softspin.compile_cache import use_compiled_folder

use_compiled_folder()  # before torch compiles

import torch  # noqa: E402
from gpu_step import milliseconds, some_data  # noqa: E402

from softspin.config import Config  # noqa: E402
from softspin.kernels import hidden  # noqa: E402
from softspin.model import build  # noqa: E402
from softspin.nets import convolutions  # noqa: E402
from softspin.provenance import provenance  # noqa: E402
from softspin.training.engine import Engine  # noqa: E402

SETTINGS: dict[str, Any] = {"net": "conv", "layers": 1, "width": 250, "sampler": "pa", "seeds": (0, 1, 2)}
WARM_UP, ROUNDS = 12, 15


def started(kernels: bool, samples: int, tf32: bool) -> Engine:
    """An engine after its first updates, in which it is compiled and captured."""
    convolutions.is_fused = hidden.is_fused if kernels else lambda maps: False
    config = Config(structure="2-nonlinear", importance_samples=samples, tf32=tf32, device="cuda", **SETTINGS)
    data = some_data()
    torch.compiler.reset()
    engine = Engine(config, build(config, data.spec), data, torch.device("cuda"))
    for _ in range(WARM_UP):
        engine.step()
    return engine


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--compilers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--compile-only", nargs=3, type=int, metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_conv.json")
    options = parser.parse_args()
    if options.compile_only:
        kernels, samples, tf32 = options.compile_only
        started(bool(kernels), samples, bool(tf32))
        return
    cases = list(itertools.product((True, False), options.samples, (False, True)))
    with ThreadPoolExecutor(options.compilers) as pool:
        commands = [[sys.executable, __file__, "--compile-only", *(str(int(one)) for one in case)] for case in cases]
        list(pool.map(lambda command: subprocess.run(command, check=True), commands))
    engines = {case: started(*case) for case in cases}
    times: dict[Any, list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, engine in engines.items():
            times[case].append(milliseconds(engine))
    made = provenance(torch.device("cuda"))
    rows = []
    for (kernels, samples, tf32), all_of in times.items():
        deciles = statistics.quantiles(all_of, n=10)
        rows.append(
            {
                "convolutions": "kernels" if kernels else "torch",
                "samples": samples,
                "tf32": tf32,
                "ms": {"median": statistics.median(all_of), "q10": deciles[0], "q90": deciles[-1]},
                "finite": bool((engines[kernels, samples, tf32].record.first_nonfinite < 0).all()),
                "device": made.device,
                "commit": made.commit,
                "torch": made.torch,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
