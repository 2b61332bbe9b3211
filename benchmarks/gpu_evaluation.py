"""Time of a test likelihood on this GPU.

    python benchmarks/gpu_evaluation.py [--commit HASH] [--out FILE]

2-nonlinear with random couplings, 4,000 importance samples of 10,000 random images of MNIST's size, float32; and the
log Z that comes before it, 10,000 temperatures x 1,000 chains in both directions. Each twice: the first call compiles.
Memory is measured again with half the samples and half the images, which must not change it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from softspin.config import Config
from softspin.data import DataSpec
from softspin.evaluation import evaluate, log_z_for
from softspin.model import build

SAMPLES, IMAGES = 4_000, 10_000


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return round(time.perf_counter() - start, 3)


def peak_gb(work: Callable[[], object]) -> float:
    torch.cuda.reset_peak_memory_stats()
    work()
    return round(torch.cuda.max_memory_allocated() / 1e9, 3)


def measure() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    images = (torch.rand(IMAGES, 784, generator=generator) < 0.2).to(torch.uint8)
    model = build(Config(data="mnist", structure="2-nonlinear"), DataSpec((28, 28), images.float().mean(0)))
    with torch.no_grad():  # couplings as large as training makes them, so that annealing has something to do
        model.prior_parameters.weight.copy_(0.3 * torch.randn(model.prior_parameters.weight.shape, generator=generator))
    model.cuda()

    def log_z() -> Any:
        return log_z_for(model, temperatures=10_000, chains=1_000)

    first, value = seconds(log_z), log_z()

    def run(samples: int = SAMPLES, count: int = IMAGES) -> object:
        return evaluate(model, images[:count], log_z=value, samples=samples)

    run(100, 500)
    return {
        "what": {"structure": "2-nonlinear", "samples": SAMPLES, "images": IMAGES},
        "evaluation_s": [seconds(run) for _ in range(3)],
        "log_z_first_s": first,
        "log_z_s": [seconds(log_z) for _ in range(3)],
        "peak_gb": peak_gb(run),
        "peak_gb_half_samples": peak_gb(lambda: run(samples=SAMPLES // 2)),
        "peak_gb_half_images": peak_gb(lambda: run(count=IMAGES // 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit, "torch": torch.__version__}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    row = measure() | where
    print(json.dumps(row))
    if options.out:
        options.out.write_text(json.dumps([row], indent=1) + "\n")


if __name__ == "__main__":
    main()
