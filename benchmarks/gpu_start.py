"""Time from the start of a process until step 2,000, with an empty and with a filled cache of compiled code.

    python benchmarks/gpu_start.py [--commit HASH] [--out FILE] [--samples K ...] [--folder FOLDER] [--warm-only]

2-nonlinear, 5 replicas, PA, a report and a validation at step 2,000; random bits of MNIST's size. Seconds since the
start of the process, and those of later validations. With `--folder` the cache is kept there; `--warm-only` expects it
to be filled. Python must find or write bytecode files of torch (`PYTHONDONTWRITEBYTECODE` unset), else imports alone
take more than ten seconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def process(samples: int) -> None:
    """Print the times of one process as JSON; this is the process."""
    started, times = float(os.environ["STARTED"]), {}

    def mark(name: str) -> None:
        torch.cuda.synchronize()
        times[name] = round(time.time() - started, 2)

    import torch

    from softspin.config import Config
    from softspin.data import Dataset
    from softspin.training.trainer import Trainer

    mark("imported")
    bits = (torch.rand(50_000, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    data = Dataset("random", bits, bits[:10_000], bits[:100], (28, 28), "static", "random bits")
    config = Config(structure="2-nonlinear", importance_samples=samples, seeds=tuple(range(5)), steps=100_000)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, data, folder)
        mark("built")
        for step in range(1, 2_001):
            trainer.engine.step()
            if step in (1, 10, 2_000):
                mark(f"step {step}")
        trainer._report()
        mark("report")
        trainer._validate()
        mark("validation")
        for name, part in (("validation_s", trainer._validate), ("save_s", trainer._save)):
            before = time.time()
            part()
            torch.cuda.synchronize()
            times[name] = round(time.time() - before, 3)
        trainer._writer.wait()
    from torch._dynamo.utils import counters

    hits = {name: counters["aot_autograd"][f"autograd_cache_{name}"] for name in ("hit", "miss", "bypass")}
    where = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({"samples": samples, "seconds": times, "cache": hits} | where))


def run(samples: int, cache: str, folder: str) -> dict[str, Any]:
    variables = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
    command = [sys.executable, "-W", "ignore", __file__, "--process", str(samples)]
    environment = os.environ | variables | {"STARTED": str(time.time())}
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    row: dict[str, Any] = {"cache": cache} | {"what": json.loads(out.splitlines()[-1])}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 25], help="values of K")
    parser.add_argument("--folder")
    parser.add_argument("--warm-only", action="store_true")
    parser.add_argument("--process", type=int)
    options = parser.parse_args()
    if options.process:
        process(options.process)
        return
    where = {"commit": options.commit, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        rows = [
            run(samples, cache, folder) | where
            for samples in options.samples
            for cache in (["filled"] if options.warm_only else ["empty", "filled"])
        ]
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
