"""Step times of methods on this GPU, and their ratios to `dvae#-power`.

    python benchmarks/gpu_methods.py [--method dvae++-exp ...] [--out FILE]

K = 25, population annealing, float32: 2-nonlinear with 5 replicas and 1-nonlinear with 3. Every case has its own
process. All compile at the same time, and are then measured one after another, while the others wait. A time is the
median of nine times 40 updates, in ms.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from step_times import make_engine, measure_wave, origin, seconds, settings

METHODS = ("dvae#-power", "dvae#-gauss_int", "dvae#-gaussian")
STRUCTURES = ("2-nonlinear k25 r5", "1-nonlinear k25 r3")
ROUNDS, UPDATES = 9, 40


def measure_case(case: str, device_name: str) -> Iterator[dict[str, Any]]:
    """Warm up, and then measure."""
    import torch

    device = torch.device(device_name)
    engine = make_engine(settings(case), device)
    seconds(engine.step, device, 10)
    yield {}
    times = sorted(1000 * seconds(engine.step, device, UPDATES) for _ in range(ROUNDS))
    yield {
        "case": case,
        "ms": round(times[ROUNDS // 2], 4),
        "range": [round(times[0], 4), round(times[-1], 4)],
        "finite": bool((engine.record.first_nonfinite < 0).all()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", action="append", default=[], help="a further method; repeatable")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        rows = measure_case(options.case, options.device)
        next(rows)
        print("READY", flush=True)
        sys.stdin.readline()
        print(json.dumps(next(rows)), flush=True)
        return
    cases = [f"{structure} {method} pa" for structure in STRUCTURES for method in (*METHODS, *options.method)]
    where, wave = origin(options.device), measure_wave(cases, options.device, patience=600.0, script=__file__)
    found = {row["case"]: row | where for row in wave}
    for case, row in found.items():
        base = found.get(" ".join([*case.split()[:3], METHODS[0], "pa"]))
        row["ratio"] = None if base is None else round(row["ms"] / base["ms"], 3)
        print(json.dumps(row), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps([*found.values()], indent=1) + "\n")


if __name__ == "__main__":
    main()
