"""Soak: train for some minutes while processes are killed, disks fill up, folders move, and bits flip.

    nice python benchmarks/soak.py [--minutes 30] [--seed N] [--commit HASH] [--out FILE]

Each run gets up to six faults, one in each of its processes, at random times. It is resumed after each, and at last
trained to the end. Its metrics log, checkpoints and result must then equal those of an uninterrupted run bit for bit,
except for times. No process may hang, end with a traceback, or report success where there is none. At the first loss
the script keeps the folder and exits with 1. Linux; as root, the runs are on a small disk in memory, which can be full.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
sys.modules["matplotlib"] = None  # type: ignore[assignment]  # pictures would take most of the time

import torch  # noqa: E402
from soak_faults import ALL, RESUME_RBM, Child, Fault, FullDisk, LossError, is_run, mount_disk  # noqa: E402

import softspin  # noqa: E402
from softspin.timing.machine import processor  # noqa: E402
from softspin.training import checkpoint, journal  # noqa: E402

BARS = ["--data", "bars-and-stripes-3x3"]
COMMON = [
    "--device", "cpu", "--structure", "1-nonlinear", "--set", "bits_per_group=6",
    "--set", "width=8", "--set", "chains=20", "--set", "sweeps=2", "--set", "batch_size=5", "--set",
    "validation_samples=5", "--set", "test_samples=20", "--set", "test_temperatures=100",
]  # fmt: skip
EVERY = ["--set", "report_every=1", "--set", "evaluate_every=7", "--set", "checkpoint_every=3"]
RUNS = (
    ["train", *BARS, *COMMON, *EVERY, "--steps", "60"],
    ["train", *BARS, *COMMON, *EVERY, "--steps", "40", "--seeds", "0-2", "--sampler", "pcd", "--method", "dvae#-exp"],
    ["train", *BARS, *COMMON, *EVERY, "--steps", "40", "--beta", "8,12", "--method", "dvae++-exp",
     "--set", "patience=2"],
    ["train", "--data", "digits8x8", "--condition", "labels", *COMMON, *EVERY, "--steps", "20",
     "--set", "centred=true", "--set", "input_flips=0.1"],
    ["train", *BARS, *COMMON, *EVERY, "--steps", "40", "--method", "rebar", "--set", "ema_decay=0.9",
     "--set", "decoder_dropout=0.2"],
    ["rbm", "fit", *BARS[1:], "--hidden", "6", "--steps", "200", "--chains", "20", "--seeds", "0,1", "--device", "cpu",
     "--evaluate-every", "30", "--checkpoint-every", "3"],
)  # fmt: skip
"""Runs: replicas, samplers, early stop, conditions, averages, a Boltzmann machine; a checkpoint every third step."""
MOST_FAULTS = 6
EARLY = 0.6
"""Part of the time of an uninterrupted run in which faults come: a resumed one takes less."""
DISK = "4m"
TIMES = ("seconds", "training_seconds", "seal")
"""Keys whose values differ between equal runs: times, and the seal over them."""


def content(folder: Path) -> dict[str, Any]:
    """What a finished run has, without times."""
    found: dict[str, Any] = {"journal": _timeless(journal.read(folder))}
    for name in ("last", "best"):
        tensors, meta = checkpoint.load(folder, name)
        found[name] = {key: (str(one.dtype), one.shape, one.numpy().tobytes()) for key, one in tensors.items()}
        found[f"{name} meta"] = _timeless(meta)
    for path in sorted(folder.glob("*.json")):
        if path.name not in ("last.json", "best.json"):
            found[path.name] = _timeless(json.loads(path.read_text()))
    return found


def command(words: list[str], folder: Path) -> list[str]:
    """The command that starts a run in a folder, or resumes the one in it."""
    if words[0] == "rbm":
        return [*RESUME_RBM, str(folder)] if is_run(folder) else [*words, "--folder", str(folder)]
    return ["train", "--resume", str(folder)] if is_run(folder) else ["train", str(folder), *words[1:]]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if name not in TIMES}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def compare(folder: Path, reference: dict[str, Any]) -> None:
    """Raise LossError unless a run equals the uninterrupted one."""
    found = content(folder)
    for name, right in reference.items():
        if found[name] != right:
            raise LossError(f"{name} of {folder} differs from that of an uninterrupted run")


class Soak:
    """Runs with faults.

    Args:
        disk: Where to train.
        rng: Source of randomness.
        faults: Kinds of faults.
    """

    def __init__(self, disk: Path, rng: random.Random, faults: tuple[type[Fault], ...]) -> None:
        self.disk, self.rng = disk, rng
        self.faults = [kind(rng, disk) for kind in faults]
        self.counts = {fault.what: collections.Counter[str]() for fault in self.faults}
        self.runs = self.processes = self.left = 0
        self.references = [self._reference(number) for number in range(len(RUNS))]

    def _reference(self, number: int) -> tuple[dict[str, Any], float]:
        """An uninterrupted run: its content and its seconds."""
        folder = self.disk / "reference"
        start = time.monotonic()
        self._train(number, folder)
        seconds = time.monotonic() - start
        found = content(folder)
        shutil.rmtree(folder)
        return found, seconds

    def _train(self, number: int, folder: Path, fault: Fault | None = None) -> Path:
        """Train or resume in one process, with or without a fault; returns where the run is then."""
        hit = fault is not None and fault.before(folder)
        words = command(RUNS[number], folder)
        child = Child(words) if fault is None else Child(words, fault.prepare)
        self.processes += 1
        if fault is not None:
            ended = child.wait(self.rng.uniform(0, EARLY * self.references[number][1]), must_end=False)
            if not ended and not hit:
                fault.strike(child, folder)
                hit = True
        child.wait()
        child.check(*(() if fault is None else fault.codes))
        if fault is None:
            return folder
        self.counts[fault.what]["tried"] += 1
        self.counts[fault.what]["struck"] += hit
        self.counts[fault.what]["stopped"] += child.code != 0
        return fault.after(child, folder)

    def run(self) -> None:
        """One run with several faults, compared at its end."""
        number, folder = self.rng.randrange(len(RUNS)), self.disk / f"run-{self.runs}"
        for _ in range(self.rng.randint(1, MOST_FAULTS)):
            folder = self._train(number, folder, self.rng.choice(self.faults))
        folder = self._train(number, folder)
        compare(folder, self.references[number][0])
        self.left += sum(path.name.endswith(".part") for path in folder.iterdir())
        shutil.rmtree(folder)
        if rest := [path.name for path in self.disk.iterdir()]:
            raise LossError(f"files of the run were left elsewhere: {rest}")
        self.runs += 1


def soak(minutes: float, seed: int, disk: Path, faults: tuple[type[Fault], ...] = ALL) -> Iterator[dict[str, Any]]:
    """Run with faults for some minutes; yields the counts after each run. Raises LossError at the first loss."""
    with tempfile.TemporaryDirectory() as name:  # what the first training imports and compiles, the forks need not
        config = softspin.Config(data="bars-and-stripes-3x3", bits_per_group=3, width=4, steps=2, device="cpu")
        softspin.fit(config, folder=Path(name, "run"), progress=False, pictures=False)
    start, made = time.monotonic(), Soak(disk, random.Random(seed), faults)
    while time.monotonic() < start + 60 * minutes:
        made.run()
        yield {
            "minutes": round((time.monotonic() - start) / 60, 1), "seed": seed, "runs": made.runs,
            "processes": made.processes, "lost": 0, "temporary_files_left": made.left,
            "faults": [{"what": what, **count} for what, count in made.counts.items()],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="softspin-soak-") as name, contextlib.ExitStack() as at_end:
        disk = Path(name)
        is_small = mount_disk(disk, DISK)
        if is_small:
            at_end.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        about = {"date": today, "commit": args.commit, "device": processor(), "torch": torch.__version__}
        try:
            for found in soak(
                args.minutes, args.seed, disk, tuple(one for one in ALL if is_small or one is not FullDisk)
            ):
                if args.out:
                    args.out.write_text(json.dumps(about | found, indent=1) + "\n")
        except LossError as loss:
            kept = Path(tempfile.mkdtemp(prefix="softspin-lost-"))
            shutil.copytree(disk, kept, dirs_exist_ok=True)
            if args.out:
                args.out.unlink(missing_ok=True)  # no result
            print(f"lost: {loss}\nthe folder is kept in {kept}", file=sys.stderr)
            sys.exit(1)
    print(json.dumps(about | found, indent=1))


if __name__ == "__main__":
    main()
