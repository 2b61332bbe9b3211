"""Time of a training update on this GPU.

    python benchmarks/gpu_step.py [--commit HASH] [--out FILE] [--quick]

2-nonlinear on random bits of MNIST's size, batch 100, PCD with 40 sweeps of 1,000 chains, float32. Times are of
replays of the update's graph, between two events, each over 20 updates.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import torch

from softspin.config import Config
from softspin.data import Dataset
from softspin.model import build
from softspin.training.engine import Engine

STEPS = 20


def some_data() -> Dataset:
    bits = (torch.rand(5_000, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    return Dataset("random", bits, bits[:100], bits[:100], (28, 28), "static", "random bits")


def milliseconds(engine: Engine) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(STEPS):
        engine.step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / STEPS


def row(samples: int, rounds: int = 15, **settings: Any) -> dict[str, Any]:
    config = Config(structure="2-nonlinear", importance_samples=samples, **({"sampler": "pcd"} | settings))
    data = some_data()
    torch.compiler.reset()  # as a grid does between runs: a case took 7% longer after one of another shape
    torch.cuda.reset_peak_memory_stats()
    engine = Engine(config, build(config, data.spec), data, torch.device("cuda"))
    for _ in range(10):
        engine.step()
    times = torch.tensor([milliseconds(engine) for _ in range(rounds)])
    low, middle, high = times.quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    return {
        "what": {"replicas": len(config.replicas), "samples": samples} | settings | {"seeds": len(config.seeds)},
        "ms": {"median": round(middle, 4), "q10": round(low, 4), "q90": round(high, 4)},
        "ms_a_replica": round(middle / len(config.replicas), 4),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3),
        "finite": bool((engine.record.first_nonfinite < 0).all()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    five, twenty = tuple(range(5)), tuple(range(20))
    cases: list[dict[str, Any]] = [{"samples": 1}, {"samples": 1, "seeds": twenty}, {"samples": 25}]
    if not options.quick:
        cases += [{"samples": 25, "seeds": twenty}, {"samples": 1, "seeds": five, "sampler": "pa"}]
        cases += [{"samples": 25, "tf32": True}, {"samples": 1, "compile": "off"}]
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit, "torch": torch.__version__}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = []
    for case in cases:
        rows.append(row(**case) | where)
        print(json.dumps(rows[-1]), flush=True)
        if options.out:  # after every case: a run that is cut off keeps what it has
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
