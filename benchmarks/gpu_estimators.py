"""Time of a training update of every gradient estimator, for each decoder evaluation, relative to `dvae#-power`.

    python benchmarks/gpu_estimators.py [--out FILE] [--methods NAME,NAME] [--compilers N] [--alone FILE] [--tiny]

2-nonlinear on random bits of MNIST's size, batch 100, 5 replicas, PCD with 40 sweeps of 1,000 chains, float32, K = 1 (2
for methods that need it, with the reference at K = 2). The goal: at most 1.2 times `dvae#-power` for each decoder
evaluation. Rounds of a method and of the reference alternate, and the ratio is the median over the rounds.

First, N processes at a time compile one method each into the cache of compiled code. Then all methods are started in
this process, and measured when the last one is ready. With `--alone`, other programs on the GPU are paused for the few
seconds of the measurement (`tools/lanes.py`). `--tiny` is a
trial of this program on a CPU, with small networks; its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from softspin.compile_cache import use_compiled_folder

use_compiled_folder()  # before torch compiles

import torch  # noqa: E402
from alone import alone  # noqa: E402
from gpu_step import milliseconds, some_data  # noqa: E402

from softspin.config import Config  # noqa: E402
from softspin.errors import ConfigError  # noqa: E402
from softspin.experiments.estimators import CountedModel  # noqa: E402
from softspin.methods import METHODS  # noqa: E402
from softspin.model import build  # noqa: E402
from softspin.paper import METHODS as PAPER  # noqa: E402
from softspin.provenance import provenance  # noqa: E402
from softspin.training.engine import Engine  # noqa: E402

REFERENCE, GOAL = "dvae#-power", 1.2
ROUNDS, WARM_UP = 15, 10
TINY: dict[str, Any] = {"bits_per_group": 4, "width": 8, "chains": 10, "sweeps": 2, "batch_size": 10, "device": "cpu"}


def estimators() -> list[str]:
    """All methods but those of the paper, and `leg`, which has hundreds of decoder evaluations."""
    return [name for name in METHODS if name not in PAPER and name != "leg"]


def fewest_samples(method: str) -> int:
    """K of the measurement."""
    try:
        Config(method=method, importance_samples=1)
    except ConfigError:
        return 2
    return 1


def evaluations(method: str, samples: int) -> int:
    """Decoder evaluations for each image, counted on a small model with as many groups."""
    config = Config(method=method, structure="2-nonlinear", bits_per_group=2, width=2, importance_samples=samples)
    model = build(config, some_data().spec).eval()
    noise = torch.full((1, *model.method.noise_shape(samples, 2, model.units)), 0.5)
    counted = CountedModel(model)
    prior = model.prior(torch.zeros(1), validate=False)
    model.method.objective(counted, torch.zeros(1, 2, 784), noise, prior, torch.tensor(1.0))
    return counted.evaluations


def started(method: str, samples: int, settings: dict[str, Any]) -> Engine:
    """An engine after its first updates, in which it is compiled and captured."""
    values = {"seeds": tuple(range(5)), "sampler": "pcd", "device": "cuda"} | settings
    config = Config(structure="2-nonlinear", importance_samples=samples, method=method, **values)
    data = some_data()
    torch.compiler.reset()  # as a grid does between runs; graphs that are captured stay
    engine = Engine(config, build(config, data.spec), data, torch.device(config.device))
    for _ in range(WARM_UP):
        engine.step()
    return engine


def timed(engine: Engine) -> float:
    """Milliseconds of an update, the mean of several."""
    if engine.update.device.type == "cuda":
        return milliseconds(engine)
    start = time.perf_counter()
    engine.step()
    return 1000 * (time.perf_counter() - start)


def measure(method: str, engine: Engine, reference: Engine, rounds: int = ROUNDS) -> dict[str, Any]:
    """The row of a method."""
    samples = fewest_samples(method)
    pairs = [(timed(engine), timed(reference)) for _ in range(rounds)]
    count = evaluations(method, samples)
    ratio = median(own / other for own, other in pairs) * samples / count
    made_by = provenance(engine.update.device)
    return {
        "method": method,
        "samples": samples,
        "replicas": len(engine.model.prior_parameters.bias),
        "evaluations": count,
        "ms": round(median(own for own, _ in pairs), 4),
        "reference_ms": round(median(other for _, other in pairs), 4),
        "ratio_for_each_evaluation": round(ratio, 3),
        "within_goal": ratio <= GOAL,
        "finite": bool((engine.record.first_nonfinite < 0).all()),
        "device": made_by.device,
        "commit": made_by.commit,
        "torch": torch.__version__,
    }


def compile_in_processes(methods: Sequence[str], processes: int) -> None:
    """Fill the cache of compiled code, one method in each process."""
    command = [sys.executable, __file__, "--compile-only", "--methods"]
    with ThreadPoolExecutor(processes) as pool:
        jobs = [pool.submit(subprocess.run, [*command, method], check=False) for method in methods]
        for method, job in zip(methods, jobs, strict=True):
            if job.result().returncode:
                print(f"{method}: compiling failed; the measurement tries again", file=sys.stderr)


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_estimators.json")
    parser.add_argument("--methods", default=",".join(estimators()))
    parser.add_argument("--compilers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--alone", type=Path)
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    methods, settings = options.methods.split(","), TINY if options.tiny else {}
    if options.compile_only:
        for method in methods:
            for samples in (1, 2) if method == REFERENCE else (fewest_samples(method),):
                started(method, samples, settings)
        return
    begun = time.perf_counter()
    if not options.tiny:
        compile_in_processes([REFERENCE, *methods], options.compilers)
    wanted = {fewest_samples(method) for method in methods}
    references = {samples: started(REFERENCE, samples, settings) for samples in wanted}
    engines = {method: started(method, fewest_samples(method), settings) for method in methods}
    rows: list[dict[str, Any]] = []
    with alone(options.alone):
        for method, engine in engines.items():
            rows.append(measure(method, engine, references[fewest_samples(method)]))
            print(json.dumps(rows[-1]), flush=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")  # a run that is cut off keeps what it has
    slow = [row["method"] for row in rows if not row["within_goal"]]
    print(f"{time.perf_counter() - begun:.0f} s; above {GOAL}: {', '.join(slow) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
