"""Cost of settings that lower the NLL: time of an update with each of them, divided by that without.

    python benchmarks/gpu_levers.py [--samples 25] [--replicas 5] [--rounds 15] [--only dreg] [--out FILE]
        [--alone FILE]

2-nonlinear on random bits of MNIST's size, batch 100, population annealing with 40 sweeps of 1,000 particles, float32.
All engines are made first. Each round then times 20 updates of every one in turn, so that a change of the clock of the
GPU has the same effect on all; the ratio is the median over rounds of the ratio within a round. With `--alone`, other
programs on the GPU are paused for the rounds (`tools/lanes.py`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any

import torch
from alone import alone
from gpu_step import some_data

from softspin.config import Config
from softspin.model import build
from softspin.training.engine import Engine

UPDATES = 20
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dreg": {"gradient": "dreg"},
    "dropout": {"decoder_dropout": 0.1},
    "flips": {"input_flips": 0.05},
    "averages": {"ema_decay": 0.9999},
    "centred": {"centred": True},
    "samples-100": {"importance_samples": 100},
    "chains-4000": {"chains": 4000},
}


def engine(settings: dict[str, Any], device: torch.device) -> Engine:
    """An engine whose update is compiled and captured."""
    config, data = Config(**settings), some_data()
    torch.compiler.reset()  # as a grid does between runs; graphs that are captured do not need the code
    made = Engine(config, build(config, data.spec), data, device)
    for _ in range(10):
        made.step()
    return made


def milliseconds(made: Engine, device: torch.device) -> float:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    start = now()
    for _ in range(UPDATES):
        made.step()
    return 1000 * (now() - start) / UPDATES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=25)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", choices=[*CASES][1:])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], help="settings of all cases, such as width=20")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    base = Config(importance_samples=options.samples, seeds=tuple(range(options.replicas))).with_settings(options.set)
    chosen = {name: case for name, case in CASES.items() if not options.only or name in ("plain", *options.only)}
    settings = {name: base.replace(**case).settings() for name, case in chosen.items()}
    engines = {name: engine(one, device) for name, one in settings.items()}
    with alone(options.alone):
        rounds = [[milliseconds(one, device) for one in engines.values()] for _ in range(options.rounds)]
    times = torch.tensor(rounds)
    ratios = times / times[:, :1]
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    rows = [
        {
            "case": name,
            "ms": round(times[:, i].median().item(), 4),
            "ratio": [round(one, 4) for one in ratios[:, i].quantile(quantiles).tolist()],
        }
        for i, name in enumerate(engines)
    ]
    for row in rows:
        print(json.dumps(row), flush=True)
    if options.out is not None:
        about = {
            "date": datetime.date.today().isoformat(),
            "commit": options.commit,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "samples": options.samples,
            "replicas": options.replicas,
            "set": options.set,
        }
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
