"""Step times of many configurations, from which `softspin.timing` estimates the time of a run.

    python benchmarks/step_times.py [--device cuda] [--only WORDS] [--limit N] [--parallel 15] [--out FILE]
    python benchmarks/step_times.py --fit

Every case runs in its own process. The processes of a wave compile and warm up at the same time; when all of them are
ready, they are measured one after another, while the others wait. So every case has the GPU to itself. On a CPU, each
case runs on one thread, and processor time is measured.

A case that this commit has already measured on this device is skipped; --again measures it again. The file is written
after each case. --fit writes the coefficients of the model (src/softspin/timing/coefficients.json), and the estimates
of the cases that are not used for the fit (benchmarks/results/step_times_check.json).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "step_times.json"
CHECK = HERE / "results" / "step_times_check.json"
COEFFICIENTS = HERE.parent / "src" / "softspin" / "timing" / "coefficients.json"
IMAGES = 10_000

# Structure, K, replicas, method, sampler, other settings; in two waves.
FIT = (
    "1-linear k1 r5 dvae#-power pa",
    "1-nonlinear k1 r3 dvae#-gauss_int pa",
    "2-nonlinear k25 r5 dvae#-power pa",
    "4-nonlinear k1 r5 dvae++-exp pa",
    "2-nonlinear k1 r5 dvae#-exp pa sweeps=200",
    "2-nonlinear k1 r1 dvae#-power pa",
    "2-nonlinear k1 r20 dvae#-power pcd",
    "4-nonlinear k25 r5 dvae#-power pa",
    "2-nonlinear k5 r5 dvae++-power pa",
    "1-linear k25 r5 dvae-spike_exp pa",
    "1-nonlinear k25 r5 dvae#-gaussian pa",
    "2-nonlinear k25 r5 dvae#-gauss_int pa",
    "1-nonlinear k5 r5 dvae#-un_exp pa",
    "4-nonlinear k5 r1 dvae#-exp pcd",
    "2-nonlinear k25 r5 dvae#-power pa tf32=true",
    "1-linear k1 r20 dvae#-gauss_int pcd",
    "1-nonlinear k25 r20 dvae#-power pa",
    "4-nonlinear k5 r5 dvae#-gauss_int pa",
    "4-nonlinear k1 r20 dvae#-power pa",
    "2-nonlinear k5 r5 dvae#-power pa width=400 bits_per_group=100 chains=500",
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
EVALUATED = (*FIT[:3], *FIT[5:8], *FIT_CPU[:3], FIT_CPU[-2])
"""Cases whose validation is measured too; it depends on neither K nor method."""


def settings(case: str) -> dict[str, str]:
    """Settings of a case, as text of the command line."""
    structure, k, replicas, method, sampler, *others = case.split()
    seeds = "0" if replicas == "r1" else f"0-{int(replicas[1:]) - 1}"
    named = {"structure": structure, "importance_samples": k[1:], "seeds": seeds, "method": method, "sampler": sampler}
    return named | dict(one.split("=") for one in others)


# A case, in its own process -----------------------------------------------------------------------


def measure_case(case: str, device_name: str) -> None:
    """Warm up, say so, wait for a line, measure, and print the row."""
    import torch

    from softspin.config import Config
    from softspin.data import Dataset
    from softspin.evaluation import evaluate, log_z_for
    from softspin.model import build
    from softspin.training.engine import Engine

    started = time.perf_counter()
    gpu = device_name == "cuda"
    if not gpu:
        torch.set_num_threads(1)
    device = torch.device(device_name)
    bits = (torch.rand(IMAGES, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    data = Dataset("random", bits, bits, bits, (28, 28), "static", "random bits")
    config = Config().with_settings([f"{name}={value}" for name, value in settings(case).items()])
    engine = Engine(config, build(config, data.spec), data, device)
    images = bits if gpu else bits[:100]

    def log_z(temperatures: int, chains: int) -> Any:
        return log_z_for(engine.model, temperatures=temperatures, chains=chains, seed=config.seeds, sandwich=False)

    def validate() -> object:
        value = log_z(2, config.validation_chains)
        return evaluate(engine.model, images, log_z=value, samples=config.validation_samples, seed=config.seeds)

    def clock() -> float:
        if gpu:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def seconds(work: Any, times: int = 1) -> float:
        start = clock()
        for _ in range(times):
            work()
        return (clock() - start) / times

    for _ in range(10 if gpu else 2):
        engine.step()
    clock()
    row: dict[str, Any] = {
        "case": case,
        "role": "check" if case in CHECKED + CHECKED_CPU else "fit",
        "settings": settings(case),
        "start_s": round(time.perf_counter() - started, 1),
    }
    if case in EVALUATED:
        validate()
    print("READY", flush=True)
    sys.stdin.readline()
    steps = max(1, round(0.04 / seconds(engine.step, 20))) if gpu else 1
    times = torch.tensor([seconds(engine.step, steps) for _ in range(15 if gpu else 6)])
    low, middle, high = (1000 * times).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    row["ms"] = {"median": round(middle, 4), "q10": round(low, 4), "q90": round(high, 4)}
    if case in EVALUATED:
        row["images"] = len(images)
        for name, work in (
            ("report_s", lambda: log_z(200, 256)),
            ("log_z_s", lambda: log_z(1000, 1024)),
            ("evaluation_s", validate),
        ):
            row[name] = round(min(seconds(work) for _ in range(2)), 5)
    assert bool((engine.record.first_nonfinite < 0).all())
    print(json.dumps(row), flush=True)


def measure_probes(device_name: str) -> dict[str, Any]:
    """The machine itself, as `softspin grid --dry-run --measure` measures it."""
    import torch

    from softspin.timing.probes import measure

    if device_name == "cpu":
        torch.set_num_threads(1)
    found = measure(torch.device(device_name), time.process_time)._asdict()
    return {"case": "probes", "seconds": {name: float(f"{value:.4g}") for name, value in found.items()}}


# All cases ----------------------------------------------------------------------------------------


def _start(case: str, device: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--device", device, "--case", case]
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)


def _read(process: subprocess.Popen[str], until: str) -> str:
    """The next line of a process that starts with `until`; empty if it ended before."""
    assert process.stdout is not None
    return next((line for line in process.stdout if line.startswith(until)), "")


def measure_wave(cases: list[str], device: str) -> Any:
    """Rows of cases that warm up together and are measured one by one."""
    processes = [_start(case, device) for case in cases]
    ready = [bool(_read(process, "READY")) for process in processes]
    for case, process, is_ready in zip(cases, processes, ready, strict=True):
        line = ""
        if is_ready:
            assert process.stdin is not None
            print("GO", file=process.stdin, flush=True)
            line = _read(process, "{")
        if line:
            yield json.loads(line)
        else:
            print(f"FAILED: {case}", flush=True)
        process.wait()


def run(options: argparse.Namespace) -> None:
    import torch

    from softspin.provenance import provenance
    from softspin.timing.machine import machine_name

    if options.device == "cpu":
        torch.set_num_threads(1)
    origin, device = provenance(torch.device(options.device)), machine_name(torch.device(options.device))
    where = {"kind": options.device, "device": device, "commit": origin.commit, "torch": origin.torch}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {row["case"] for row in rows if (row["device"], row["commit"]) == (device, origin.commit)}
    cases = [*FIT, *CHECKED] if options.device == "cuda" else [*FIT_CPU, *CHECKED_CPU]
    cases = [case for case in cases if all(word in case.split() for word in options.only.split())]
    cases = [case for case in cases if options.again or case not in done][: options.limit]

    def keep(row: dict[str, Any]) -> None:
        nonlocal rows
        row = row | where
        rows = [one for one in rows if (one["case"], one["device"]) != (row["case"], device)] + [row]
        options.out.write_text("[\n" + ",\n".join(json.dumps(one) for one in rows) + "\n]\n")
        print(json.dumps(row), flush=True)

    if options.again or "probes" not in done:
        keep(measure_probes(options.device))
    for first in range(0, len(cases), options.parallel):
        started, wave = time.perf_counter(), cases[first : first + options.parallel]
        for row in measure_wave(wave, options.device):
            keep(row)
        print(f"wave of {len(wave)}: {time.perf_counter() - started:.0f} s", flush=True)


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
    parser.add_argument("--only", default="", help="words of a case, such as 'k25 pa'")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--parallel", type=int, default=15)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        measure_case(options.case, options.device)
    elif options.fit:
        fit(options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()
