"""Step times of many configurations, from which `softspin.timing` estimates the time of a run.

    python benchmarks/step_times.py [--device cuda] [--only WORDS ...] [--limit N] [--parallel 15] [--patience SECONDS]
        [--alone FILE]
    python benchmarks/step_times.py --fit
    python benchmarks/step_times.py --table experiments/estimators.toml --seeds 3 [--only '1-nonlinear k1' ...]

Every case runs in its own process. The processes of a wave compile and warm up at the same time; when all of them are
ready, they are measured one after another, while the others wait. So every case has the GPU to itself. Processes that
are not ready after --patience seconds are halted while the others are measured; with --alone FILE, `tools/lanes.py`
halts other programs too. On a CPU, each case runs on one thread, and processor time is measured.

A case that this commit has already measured on this device is skipped; --again measures it again. Rows of the same kind
of device (GPU or CPU) that are of another commit or device are replaced. The file is written after each case.

--table measures the cells of a table, with as many seeds at a time, for `softspin compare training`: it adds the times
to TABLE_times.jsonl next to the table. A cell that is there is skipped. Cells that differ in data or beta alone are
measured once.

--fit writes the coefficients of the model (src/softspin/timing/coefficients.json), and the estimates of the cases that
are not used for the fit (benchmarks/results/step_times_check.json).
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from alone import alone

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "step_times.json"
CHECK = HERE / "results" / "step_times_check.json"
COEFFICIENTS = HERE.parent / "src" / "softspin" / "timing" / "coefficients.json"
IMAGES = 10_000
SAMPLERS = ("pa", "pcd")

# Structure, K, replicas, method, sampler, other settings.
FIT = (
    "2-nonlinear k25 r5 dvae#-power pa",
    "1-linear k1 r5 dvae#-power pa",
    "1-nonlinear k1 r3 dvae#-gauss_int pa",
    "4-nonlinear k1 r5 dvae++-exp pa",
    "2-nonlinear k1 r1 dvae#-power pa",
    "2-nonlinear k1 r20 dvae#-power pcd",
    "4-nonlinear k25 r5 dvae#-power pa",
    "1-linear k25 r5 dvae-spike_exp pa",
    "1-nonlinear k5 r5 dvae#-un_exp pa",
    "2-nonlinear k25 r5 dvae#-gauss_int pa",
    "2-nonlinear k25 r5 dvae#-power pa tf32=true",
    "2-nonlinear k1 r5 dvae#-exp pa sweeps=200",
)
CHECKED = (
    "1-linear k5 r5 dvae#-un_exp pa",
    "1-linear k25 r5 dvae#-power pa",
    "1-nonlinear k1 r5 dvae#-exp pa",
    "1-nonlinear k25 r5 dvae#-gauss_int pa",
    "2-nonlinear k1 r5 dvae-spike_exp pa",
    "2-nonlinear k25 r5 dvae++-exp pa",
    "2-nonlinear k25 r20 dvae#-power pcd",
    "4-nonlinear k5 r5 dvae#-power pa",
    "4-nonlinear k25 r3 dvae#-gaussian pa",
    "4-nonlinear k1 r1 dvae#-gauss_int pa",
)
MORE_FIT = (
    "1-nonlinear k25 r5 dvae#-gaussian pa",
    "2-nonlinear k5 r5 dvae++-power pa",
    "4-nonlinear k5 r1 dvae#-exp pcd",
    "1-linear k1 r20 dvae#-gauss_int pcd",
    "1-nonlinear k25 r20 dvae#-power pa",
    "4-nonlinear k5 r5 dvae#-gauss_int pa",
    "4-nonlinear k1 r20 dvae#-power pa",
    "2-nonlinear k5 r5 dvae#-power pa width=400 bits_per_group=100 chains=500",
)
"""Cases that make the fit better and can be left out: --limit 27 ends before them."""
FIT_CPU = (
    "1-linear k1 r2 dvae#-power pa",
    "1-nonlinear k1 r3 dvae#-gauss_int pa",
    "2-nonlinear k1 r1 dvae#-power pa",
    "4-nonlinear k25 r1 dvae#-power pa",
    "2-nonlinear k5 r2 dvae++-power pa",
    "1-linear k25 r1 dvae-spike_exp pcd",
    "1-nonlinear k25 r1 dvae#-gaussian pa",
    "4-nonlinear k1 r2 dvae++-exp pa",
    "1-nonlinear k5 r1 dvae#-un_exp pcd sweeps=5",
    "2-nonlinear k5 r1 dvae#-gauss_int pcd chains=200",
    "1-nonlinear k1 r1 dvae#-power pa bits_per_group=50 width=100 chains=200 sweeps=10",
    "1-linear k1 r1 dvae#-exp pcd bits_per_group=100 chains=100 sweeps=5",
)
CHECKED_CPU = (
    "2-nonlinear k25 r1 dvae#-power pcd",
    "1-nonlinear k1 r2 dvae#-exp pa",
    "4-nonlinear k5 r1 dvae-spike_exp pa chains=300",
)
# log Z and likelihood of a validation, which depend on neither K nor method.
EVALUATIONS = tuple(
    f"evaluation {one}" for one in ("1-linear r5", "2-nonlinear r1", "2-nonlinear r5", "4-nonlinear r5")
)
EVALUATIONS_CPU = tuple(f"evaluation {one}" for one in ("1-linear r2", "1-nonlinear r3", "2-nonlinear r1"))
CASES = {
    "cuda": ("probes", *EVALUATIONS, *FIT, *CHECKED, *MORE_FIT),
    "cpu": ("probes", *EVALUATIONS_CPU, *FIT_CPU, *CHECKED_CPU),
}


def settings(case: str) -> dict[str, str]:
    """Settings of a case, as text of the command line."""
    words = [word for word in case.split() if word != "evaluation"]
    found = {"structure": words[0]}
    for word in words[1:]:
        if "=" in word:
            name, _, value = word.partition("=")
            found[name] = value
        elif word[0] in "kr" and word[1:].isdigit():
            found["importance_samples" if word[0] == "k" else "seeds"] = word[1:]
        else:
            found["sampler" if word in SAMPLERS else "method"] = word
    count = int(found["seeds"])
    return found | {"seeds": "0" if count == 1 else f"0-{count - 1}"}


# A case, in its own process -----------------------------------------------------------------------


def measure_case(case: str, device_name: str) -> None:
    """Warm up, say so, wait for a line, measure, and print the row."""
    import torch

    if device_name == "cpu":
        torch.set_num_threads(1)
    measure = {"probes": _probes, "evaluation": _evaluation}.get(case.split(maxsplit=1)[0], _step)
    rows = measure(case, torch.device(device_name))
    next(rows)
    print("READY", flush=True)
    sys.stdin.readline()
    print(json.dumps({"case": case} | next(rows)), flush=True)


def _probes(case: str, device: Any) -> Iterator[dict[str, Any]]:
    from softspin.timing.probes import measure

    measure(device, time.process_time)
    yield {}
    found = measure(device, time.process_time)._asdict()
    yield {"seconds": {name: float(f"{value:.4g}") for name, value in found.items()}}


def _evaluation(case: str, device: Any) -> Iterator[dict[str, Any]]:
    from softspin.config import Config
    from softspin.evaluation import evaluate, log_z_for
    from softspin.model import build

    named = settings(case)
    config = Config().with_settings([f"{name}={value}" for name, value in named.items()])
    data = _data()
    model = build(config, data.spec).to(device).eval()
    images = data.valid if device.type == "cuda" else data.valid[:100]

    def log_z(temperatures: int, chains: int) -> Any:
        return log_z_for(model, temperatures=temperatures, chains=chains, seed=config.seeds, sandwich=False)

    value = log_z(1000, 1024)

    def likelihood(samples: int) -> object:
        return evaluate(model, images, log_z=value, samples=samples, seed=config.seeds)

    def fastest(work: Callable[[], object]) -> float:
        return round(min(seconds(work, device) for _ in range(2)), 5)

    log_z(200, 256), likelihood(100)
    yield {}
    sizes = [{"temperatures": 200, "chains": 256}, {"temperatures": 1000, "chains": 1024}]
    yield {
        "role": "evaluation",
        "settings": named,
        "log_z": [size | {"seconds": fastest(lambda size=size: log_z(**size))} for size in sizes],
        "likelihood": [{"images": len(images), "samples": 100, "seconds": fastest(lambda: likelihood(100))}],
    }


def make_engine(named: dict[str, str], device: Any) -> Any:
    """An engine with these settings, on random bits of MNIST's size."""
    from softspin.config import Config
    from softspin.model import build
    from softspin.training.engine import Engine

    config, data = Config().with_settings([f"{name}={value}" for name, value in named.items()]), _data()
    return Engine(config, build(config, data.spec), data, device)


def _step(case: str, device: Any) -> Iterator[dict[str, Any]]:
    import torch

    started, named = time.perf_counter(), settings(case)
    engine = make_engine(named, device)
    gpu = device.type == "cuda"
    seconds(engine.step, device, 10 if gpu else 2)
    start = round(time.perf_counter() - started, 1)
    yield {}
    steps = max(1, round(0.04 / seconds(engine.step, device, 20))) if gpu else 1
    times = torch.tensor([seconds(engine.step, device, steps) for _ in range(15 if gpu else 6)])
    low, middle, high = (1000 * times).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    assert bool((engine.record.first_nonfinite < 0).all())
    yield {
        "role": "check" if case in CHECKED + CHECKED_CPU else "fit",
        "settings": named,
        "start_s": start,
        "ms": {"median": round(middle, 4), "q10": round(low, 4), "q90": round(high, 4)},
    }


def _data() -> Any:
    import torch

    from softspin.data import Dataset

    bits = (torch.rand(IMAGES, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    return Dataset("random", bits, bits, bits, (28, 28), "static", "random bits")


def seconds(work: Callable[[], object], device: Any, times: int = 1) -> float:
    """Seconds that one call takes, on average over `times` calls."""
    import torch

    def now() -> float:
        if device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    start = now()
    for _ in range(times):
        work()
    return (now() - start) / times


# All cases ----------------------------------------------------------------------------------------


class Case:
    """The process of a case."""

    def __init__(self, case: str, device: str, script: str) -> None:
        self.name = case
        command = [sys.executable, script, "--device", device, "--case", case]
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("READY", "{")):
                self.lines.put(line)
        self.lines.put("")  # it ended

    def wait_until_ready(self, seconds: float) -> str:
        """`READY`, an empty text if the process has ended, or `late`."""
        try:
            return self.lines.get(timeout=max(0.0, seconds)).strip()
        except queue.Empty:
            return "late"

    def measure(self) -> dict[str, Any] | None:
        """The row; None if the process failed."""
        assert self.process.stdin is not None
        print("GO", file=self.process.stdin, flush=True)
        line = self.lines.get()
        self.process.wait()
        return json.loads(line) if line else None


def measure_wave(
    cases: list[str], device: str, patience: float, file: Path | None = None, script: str = __file__
) -> Iterator[dict[str, Any]]:
    """Rows of cases that warm up together and are measured one by one, alone by `file`, by a script like this one."""
    left = [Case(case, device, script) for case in cases]
    while left:
        deadline = time.monotonic() + patience
        states = {case: case.wait_until_ready(deadline - time.monotonic()) for case in left}
        late = [case for case in left if states[case] == "late"]
        for case in late:
            case.process.send_signal(signal.SIGSTOP)
        with alone(file):
            for case in left:
                row = case.measure() if states[case] == "READY" else None
                if row is not None:
                    yield row
                elif case not in late:
                    print(f"FAILED: {case.name}", flush=True)
        for case in late:
            case.process.send_signal(signal.SIGCONT)
        left = late


def origin(device_name: str) -> dict[str, str | None]:
    """Device, commit, version of torch and date, for a row."""
    import torch

    from softspin.provenance import provenance
    from softspin.timing.machine import machine_name

    torch.set_num_threads(1)
    device = torch.device(device_name)
    found = provenance(device)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"device": machine_name(device), "commit": found.commit, "torch": found.torch, "date": date}


def run(options: argparse.Namespace) -> None:
    where = {"kind": options.device} | origin(options.device)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    old = [
        row
        for row in rows
        if row["kind"] == options.device and (row["device"], row["commit"]) != (where["device"], where["commit"])
    ]
    rows = [row for row in rows if row not in old]
    done = {row["case"] for row in rows if row["kind"] == options.device}
    for found in measure_all(CASES[options.device], set() if options.again else done, options):
        row = found | where
        rows = [one for one in rows if (one["case"], one["kind"]) != (row["case"], options.device)] + [row]
        options.out.write_text("[\n" + ",\n".join(json.dumps(one) for one in rows) + "\n]\n")
        print(json.dumps(row), flush=True)


def measure_all(every: Iterable[str], done: set[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of the chosen cases that are not done, in waves."""
    cases = [
        case
        for case in every
        if any(all(word in case.split() for word in only.split()) for only in options.only or [""])
    ]
    cases = [case for case in cases if case not in done][: options.limit]
    for first in range(0, len(cases), options.parallel):
        started, wave = time.perf_counter(), cases[first : first + options.parallel]
        yield from measure_wave(wave, options.device, options.patience, options.alone)
        print(f"wave of {len(wave)}: {time.perf_counter() - started:.0f} s", flush=True)


def run_table(options: argparse.Namespace) -> None:
    """Add the times of the cells of a table to its file."""
    import torch

    from softspin.experiments.cells import read_cells
    from softspin.experiments.step_times import StepTime, read_step_times
    from softspin.experiments.stored import write_records
    from softspin.provenance import provenance

    path = options.table.with_name(f"{options.table.stem}_times.jsonl")
    times = {one.key: one for one in read_step_times(path)}
    made_by = provenance(torch.device(options.device))
    missing: dict[str, list[StepTime]] = {}
    for cell in read_cells(options.table):
        variant = cell.variant(cell.config(seeds=range(options.seeds)))
        one = StepTime(cell=cell.id, variant=variant, seeds=options.seeds, milliseconds=0.0, provenance=made_by)
        if options.again or one.key not in times:
            missing.setdefault(case_of(cell, options.seeds), []).append(one)
    for row in measure_all(missing, set(), options):
        for one in missing[row["case"]]:
            times[one.key] = dataclasses.replace(one, milliseconds=row["ms"]["median"])
        write_records(path, times.values())
        print(f"{row['case']}: {row['ms']['median']} ms", flush=True)


def case_of(cell: Any, seeds: int) -> str:
    """The case of a cell of a table, with the settings of the cell."""
    from softspin.config import Config
    from softspin.errors import SoftspinError
    from softspin.timing.estimate import PAPER_SIZES

    if cell.data not in PAPER_SIZES:
        raise SystemExit(f"{cell.id} has other data than {' and '.join(PAPER_SIZES)}; only their size is measured")
    words = [cell.structure, f"k{cell.k}", f"r{seeds}", cell.method, cell.sampler]
    words += [f"{name}={value}" for name, value in cell.settings]
    case = " ".join(words)
    try:
        found = Config().with_settings([f"{name}={value}" for name, value in settings(case).items()]).settings()
    except SoftspinError as error:
        raise SystemExit(f"{cell.id} cannot be measured: {error}") from None
    expected = cell.config(seeds=range(seeds)).settings()
    for name, value in cell.settings:
        if found[name] != expected[name]:
            raise SystemExit(f"{cell.id} has {name} = {value}, which cannot be measured; leave the cell out")
    return case


def fit(path: Path) -> None:
    """Write the coefficients and the check, and print the check."""
    from softspin.timing.fitting import check_model, fit_model

    rows = json.loads(path.read_text())
    kinds = sorted({row["kind"] for row in rows})
    models = {kind: fit_model([row for row in rows if row["kind"] == kind]) for kind in kinds}
    COEFFICIENTS.write_text(json.dumps({kind: model.to_json() for kind, model in models.items()}, indent=1) + "\n")
    checked = [one for row in rows if (one := check_model(models[row["kind"]], row))]
    CHECK.write_text("[\n" + ",\n".join(json.dumps(one) for one in checked) + "\n]\n")
    for one in checked:
        print(f"{one['ratio']:.2f}  {one['measured_ms']:9.3f} ms  {one['device']}: {one['case']}")
    for kind, model in models.items():
        print(f"{kind}: spread {model.spread:.2f}, {model.source}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", action="append", help="words of cases, such as 'k25 pa' or 'evaluation'; repeatable")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--parallel", type=int, default=15)
    parser.add_argument("--patience", type=float, default=600.0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--alone", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        measure_case(options.case, options.device)
    elif options.fit:
        fit(options.out)
    elif options.table:
        run_table(options)
    else:
        run(options)


if __name__ == "__main__":
    main()
