"""Memory and speed of training from a file that is larger than the memory that the process may use.

    python benchmarks/large_data.py [--gib 3] [--limit 1] [--folder /tmp] [--commit HASH] [--out FILE]

The file has images of 64 x 64 x 3 bytes, 0 or 255: a disc of one color on a background of another. It is made here and
deleted at the end. Each measurement is a process of its own:

- `file, limited`: a whole run from the memory map, with validation and test, in a process that may allocate only
  `--limit` GiB more than it has when softspin is imported (RLIMIT_DATA, so pages of the file do not count).
- `memory, limited`: the same run with the array in memory, under the same limit. It must fail.
- `memory`: the same without a limit.
- speed: updates from memory, from the file while the system has it in its page cache, and from the file after it was
  dropped from there, turn by turn in one process.

Peak memory is the peak resident set (VmHWM) less the resident set after the imports. It includes pages of mapped files.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import softspin
from softspin.data import Dataset, from_arrays
from softspin.data.mapped import pixel_sums
from softspin.errors import DataWarning
from softspin.model import build
from softspin.training.engine import Engine

SHAPE = (64, 64, 3)
GIB = 1 << 30
STEPS_PER_ROUND = 10


def discs(count: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Images of discs, `(count, 64, 64, 3)`."""
    row, column = np.mgrid[:64, :64]
    x, y = random.integers(16, 48, (2, count, 1, 1))
    radius = random.integers(8, 16, (count, 1, 1))
    inside = (row - x) ** 2 + (column - y) ** 2 < radius**2
    disc, shift = random.integers(0, 8, (2, count, 1, 1))
    color = np.where(inside, disc, (disc + 1 + shift % 7) % 8)  # eight colors, two different ones
    return 255 * ((color[..., None] >> np.arange(3)) & 1).astype(np.uint8)


def write(folder: Path, images: int) -> None:
    random = np.random.default_rng(0)
    for name, count in {"train": images, "held_out": 200}.items():
        table = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.uint8, (count, *SHAPE))
        for start in range(0, count, 500):
            table[start : start + 500] = discs(min(500, count - start), random)
        table.flush()


def config(steps: int) -> softspin.Config:
    return softspin.Config(
        structure="2-nonlinear", bits_per_group=20, steps=steps, chains=100, sweeps=10, batch_size=100,
        validation_samples=10, test_samples=20, report_every=100, evaluate_every=steps, checkpoint_every=steps,
        device="cpu",
    )  # fmt: skip


def dataset(folder: Path, mode: Any) -> Dataset:
    held_out = np.load(folder / "held_out.npy", mmap_mode=mode)
    warnings.simplefilter("ignore", DataWarning)
    return from_arrays(np.load(folder / "train.npy", mmap_mode=mode), held_out[:100], held_out[100:])


def status(name: str) -> int:
    """A number of bytes in /proc/self/status."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measure_memory(folder: Path, mode: Any, limit: float, steps: int) -> dict[str, Any]:
    """Peak memory of a whole run, or the error that ends it."""
    before = status("VmRSS")
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + int(limit * GIB),) * 2)
    error = None
    try:
        run = folder / f"run-{mode}-{limit}"
        softspin.fit(config(steps), dataset(folder, mode), run, progress=False, pictures=False)
    except (MemoryError, RuntimeError) as failed:  # torch's error for memory is a RuntimeError
        error = f"{type(failed).__name__}: {failed}".splitlines()[0]
    return {"peak_gib": round((status("VmHWM") - before) / GIB, 3), "error": error}


def measure_speed(folder: Path, rounds: int) -> dict[str, Any]:
    """Time of updates, turn by turn; ratios are those of the rounds."""
    file = os.open(folder / "train.npy", os.O_RDONLY)
    os.fsync(file)
    both = {mode: dataset(folder, mode) for mode in (None, "r")}
    engines = {name: engine_of(both[mode]) for name, mode in (("memory", None), ("file", "r"), ("file, dropped", "r"))}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, engine in engines.items():
            if name == "file, dropped":
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter(), time.process_time()
            for _ in range(STEPS_PER_ROUND):
                engine.step()
            if turn:
                wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
                times[name].append((wall, cpu))
            engine.close()
            if name == "file, dropped":  # back into the cache for the next round
                pixel_sums(both["r"].train)
    os.close(file)
    found: dict[str, Any] = {}
    for number, clock in enumerate(("wall", "cpu")):
        each = {name: np.array([one[number] for one in values]) for name, values in times.items()}
        found[f"ms_per_step_{clock}"] = {name: quantiles(1e3 * t / STEPS_PER_ROUND) for name, t in each.items()}
        found[f"speed_{clock}"] = {name: quantiles(each["memory"] / t) for name, t in each.items() if name != "memory"}
    return found


def engine_of(data: Dataset) -> Engine:
    settings = config(1000)
    return Engine(settings, build(settings, data.spec), data, torch.device("cpu"))


def quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
    return {"median": round(middle, 3), "q10": round(low, 3), "q90": round(high, 3)}


def child(*arguments: str) -> dict[str, Any]:
    """A measurement in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(arguments), json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=("memory", "speed"), help=argparse.SUPPRESS)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "speed":
        print(json.dumps(measure_speed(options.folder, options.rounds)))
    elif options.child == "memory":
        print(json.dumps(measure_memory(options.folder, options.mode, options.limit, options.steps)))
    else:
        parent(options)


def parent(options: argparse.Namespace) -> None:
    images = int(options.gib * GIB) // int(np.prod(SHAPE))
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        write(folder, images)
        size = (folder / "train.npy").stat().st_size
        run = ("--child", "memory", "--folder", made, "--steps", str(options.steps))
        limited = ("--limit", str(options.limit))
        found: dict[str, Any] = {
            "what": f"{images:,} images of 64 x 64 x 3 bytes, batch 100, 2-nonlinear with 40 bits",
            "file_gib": round(size / GIB, 3),
            "limit_gib": options.limit,
            "file, limited": child(*run, "--mode", "r", *limited),
            "memory, limited": child(*run, *limited),
            "memory": child(*run, "--limit", "0"),
            "speed": child("--child", "speed", "--folder", made, "--rounds", str(options.rounds)),
        }
    found |= {"device": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    found |= {"commit": options.commit, "torch": torch.__version__}
    found["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(json.dumps(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
