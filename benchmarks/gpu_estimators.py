"""Time of a training update of every gradient estimator on this GPU, for each decoder evaluation.

    python benchmarks/gpu_estimators.py [--out FILE] [--methods NAME,NAME]

2-nonlinear on random bits of MNIST's size, batch 100, 5 replicas, PCD with 40 sweeps of 1,000 chains, float32, K = 1 (2
for methods that need it). The goal: at most 1.2 times `dvae#-power` for each decoder evaluation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from gpu_step import row, some_data

from softspin.config import Config
from softspin.errors import ConfigError
from softspin.experiments.estimators import CountedModel
from softspin.methods import METHODS
from softspin.model import build
from softspin.provenance import provenance

REFERENCE = "dvae#-power"
SEEDS = tuple(range(5))


def evaluations(method: str, samples: int) -> int:
    """Decoder evaluations for each image, counted on a small model with as many groups."""
    config = Config(method=method, structure="2-nonlinear", bits_per_group=2, width=2, importance_samples=samples)
    model = build(config, some_data().spec).eval()
    noise = torch.full((1, *model.method.noise_shape(samples, 2, model.units)), 0.5)
    counted = CountedModel(model)
    prior = model.prior(torch.zeros(1), validate=False)
    model.method.objective(counted, torch.zeros(1, 2, 784), noise, prior, torch.tensor(1.0))
    return counted.evaluations


def fewest_samples(method: str) -> int:
    try:
        Config(method=method, importance_samples=1)
    except ConfigError:
        return 2
    return 1


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_estimators.json")
    parser.add_argument("--methods", default=",".join(name for name in METHODS if name != "leg"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    base = {samples: row(samples, seeds=SEEDS, method=REFERENCE)["ms"]["median"] for samples in (1, 2)}
    for method in options.methods.split(","):
        samples = fewest_samples(method)
        found = row(samples, seeds=SEEDS, method=method)
        count = evaluations(method, samples)
        found["evaluations"] = count
        found["of_reference"] = round(found["ms"]["median"] / base[samples] * samples / count, 3)
        found["device"], found["commit"] = (
            getattr(provenance(torch.device("cuda")), name) for name in ("device", "commit")
        )
        rows.append(found)
        print(json.dumps(found), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
