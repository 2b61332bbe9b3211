"""Time of 40 Gibbs sweeps and of a whole AIS run on this GPU, and accuracy of 16-bit weights.

    python benchmarks/gpu_sweeps.py [--commit HASH] [--out FILE]
    python benchmarks/gpu_sweeps.py --plans [--alone FILE]

Times are of CUDA-graph replays between two events; the baselines (plain torch in a graph, and the same compiled) run
in turn with the kernel in one process. AIS is timed as a user calls it, eager, wall clock. Accuracy: log Z of a
20 x 200 RBM by AIS against the exact value, in standard errors.

--plans compares the kernels, block sizes and tiles among which `softspin.kernels.gpu.plan` chooses, and checks that all
have the same result. `alone` is the time of a call, `of 8` the time of each of eight calls at a time: the work of the
chip, which counts if other programs or the networks of the step use it too.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from alone import alone
from torch import Tensor
from triton.runtime.errors import OutOfResources

from softspin.distributions import BipartiteBoltzmann
from softspin.errors import TooLargeError
from softspin.kernels import gpu, init_rng_state

SWEEPS, CHAINS = 40, 1_000


def boltzmann(replicas: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator("cuda").manual_seed(0)
    bias = torch.randn(replicas, n + m, device="cuda", generator=g)
    return bias, 0.3 * torch.randn(replicas, n, m, device="cuda", generator=g)


def torch_sweeps(left: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Block Gibbs as anyone would write it."""
    n = weight.shape[1]
    for _ in range(SWEEPS):
        p = torch.sigmoid(torch.baddbmm(bias[:, None, n:], left, weight))
        right = (torch.rand_like(p) < p).float()
        p = torch.sigmoid(torch.baddbmm(bias[:, None, :n], right, weight.mT))
        left = (torch.rand_like(p) < p).float()
    return left


def torch_ais(bias: Tensor, weight: Tensor, base: Tensor, schedule: Tensor) -> Tensor:
    """Annealed importance sampling in plain torch: log weights `(CHAINS,)` of one RBM."""
    n = weight.shape[1]
    (left_bias, right_bias), (left_base, right_base) = (p[0].split([n, p.shape[1] - n]) for p in (bias, base))
    left = torch.bernoulli(torch.sigmoid(left_base).expand(CHAINS, -1))
    log_weight = torch.zeros(CHAINS, dtype=torch.float64, device="cuda")
    softplus = torch.nn.functional.softplus
    for before, now in itertools.pairwise(schedule.tolist()):
        pull = right_bias - right_base + left @ weight[0]
        field = right_base + now * pull
        gain = (softplus(field) - softplus(right_base + before * pull)).sum(-1)
        log_weight += gain + (now - before) * (left @ (left_bias - left_base))
        right = torch.bernoulli(torch.sigmoid(field))
        left = torch.bernoulli(torch.sigmoid(left_base + now * (left_bias - left_base + right @ weight[0].T)))
    return log_weight


def graphed(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def quantiles(values: list[float]) -> dict[str, float]:
    low, middle, high = torch.tensor(values).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    return {"median": round(middle, 5), "q10": round(low, 5), "q90": round(high, 5)}


def sweep_rows(replicas: int, n: int, rounds: int, baselines: bool) -> list[dict[str, Any]]:
    bias, weight = boltzmann(replicas, n, n)
    z = (torch.rand(replicas, CHAINS, 2 * n, device="cuda") < 0.5).float()
    rng_state = init_rng_state(0, replicas, device="cuda")
    graphs = {"softspin": graphed(lambda: gpu.gibbs_sweeps(z, bias, weight, rng_state, SWEEPS))}
    if baselines:
        left = z[..., :n].contiguous()
        graphs["torch in a CUDA graph"] = graphed(lambda: torch_sweeps(left, bias, weight))
        compiled = torch.compile(torch_sweeps)
        graphs["compiled torch in a CUDA graph"] = graphed(lambda: compiled(left, bias, weight))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(milliseconds(graph))
    what = f"{SWEEPS} sweeps, {CHAINS} chains, {n}x{n}, {replicas} replicas"
    ours = torch.tensor(times["softspin"])
    return [
        {
            "what": what,
            "who": name,
            "ms": quantiles(values),
            "ms_a_replica": round(quantiles(values)["median"] / replicas, 5),
            "times_slower_than_softspin": quantiles((torch.tensor(values) / ours).tolist()),
        }
        for name, values in times.items()
    ]


PLANS = {
    f"{'wide' if wide else 'narrow'}, {block} chains, {warps} warps": gpu.LaunchPlan(wide, block, warps, CHAINS)
    for wide, block, warps in (
        *((False, 8, 8), (False, 16, 4), (False, 16, 8), (False, 32, 8)),
        *((True, 64, 4), (True, 128, 8), (True, 256, 16)),
    )
}
TILES = {128: ((128,), (64, 64)), 224: ((128, 64, 32), (64, 64, 64, 32), (32,) * 7)}
"""Tiles that cover a side; the first are those of `gpu.SIZES`."""


def compare_plans(rounds: int, file: Path | None) -> None:
    """Compile all plans, then print the times of all."""
    cases = list(planned_sweeps())
    runs = [(name, expected, attempt(sweeps)) for name, expected, sweeps in cases]
    with alone(file):
        for (name, _, sweeps), (_, expected, found) in zip(cases, runs, strict=True):
            if isinstance(found, str):
                print(f"{name}: does not run: {found}", flush=True)
                continue
            times = [
                [milliseconds(graph) for _ in range(rounds)] for graph in (graphed(sweeps), graphed(beside(8, sweeps)))
            ]
            one, eight = (quantiles(each)["median"] for each in times)
            other = "" if torch.equal(found, expected) else ", OTHER RESULT"
            print(f"{name}: alone {one:.4f} ms, of 8 {eight / 8:.4f} ms{other}", flush=True)


def planned_sweeps() -> Iterator[tuple[str, Tensor, Callable[[], Tensor]]]:
    """Name, expected chains and call of each plan."""
    for n, replicas in itertools.product((200, 100), (1, 3, 5, 20)):
        size = min(one for one in gpu.SIZES if one >= n)
        bias, weight = boltzmann(replicas, n, n)
        z = (torch.rand(replicas, CHAINS, 2 * n, device="cuda") < 0.5).float()
        arguments = z, bias, weight, init_rng_state(0, replicas, device="cuda"), SWEEPS
        expected = gpu.gibbs_sweeps(*arguments)[0]
        what = f"{n}x{n}, {replicas} replicas"
        yield f"{what}, as chosen", expected, lambda arguments=arguments: gpu.gibbs_sweeps(*arguments)[0]
        for (name, plan), tiles in itertools.product(PLANS.items(), TILES[size]):
            if plan.wide or tiles == TILES[size][0]:
                sweeps = functools.partial(sweeps_by, plan, {**gpu.SIZES, size: tiles}, arguments)
                yield f"{what}, {name}, tiles {tiles}", expected, sweeps


def sweeps_by(plan: gpu.LaunchPlan, sizes: dict[int, tuple[int, ...]], arguments: tuple[Any, ...]) -> Tensor:
    """The chains after sweeps by a given plan."""
    with mock.patch.object(gpu, "SIZES", sizes), mock.patch.object(gpu, "plan", return_value=[plan]):
        return gpu.gibbs_sweeps(*arguments)[0]


def attempt(sweeps: Callable[[], Tensor]) -> Tensor | str:
    """The chains, or why there are none."""
    try:
        return sweeps()
    except (TooLargeError, OutOfResources) as error:
        return str(error)


def beside(count: int, work: Callable[[], object]) -> Callable[[], None]:
    """Calls on as many streams at the same time."""
    streams = [torch.cuda.Stream() for _ in range(count)]

    def run() -> None:
        main = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                work()
        for stream in streams:
            main.wait_stream(stream)

    return run


def ais_rows(temperatures: int, repeats: int) -> list[dict[str, Any]]:
    rows = []
    for n, m, exact_known in ((200, 200, False), (20, 200, True)):
        bias, weight = boltzmann(1, n, m)
        schedule = torch.linspace(0, 1, temperatures + 1, device="cuda")
        base = bias + 0.5 * torch.cat([weight.sum(2), weight.sum(1)], -1)
        log_z_base = torch.nn.functional.softplus(base.double()).sum().item()
        seconds, eager, values, errors = [], [], [], []
        for seed in range(repeats + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            log_weight, _, _ = gpu.anneal(bias, weight, base, schedule, CHAINS, init_rng_state(seed, 1, device="cuda"))
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            torch_ais(bias, weight, base, schedule)
            torch.cuda.synchronize()
            eager.append(time.perf_counter() - start - seconds[-1])
            w = (log_weight[0] - log_weight.max()).exp()
            values.append(log_z_base + log_weight.max().item() + w.mean().log().item())
            errors.append((w.std() / w.mean() / CHAINS**0.5).item())
        row = {
            "what": f"AIS, {temperatures} temperatures, {CHAINS} chains, {n}x{m}",
            "who": "softspin",
            "seconds": quantiles(seconds[1:]),
            "eager_torch_seconds": quantiles(eager[1:]),
            "log_z": [round(v, 5) for v in values],
            "standard_error": [round(e, 5) for e in errors],
        }
        if exact_known:
            exact = BipartiteBoltzmann(bias[0].double(), weight[0].double()).log_z.item()
            row["exact"] = exact
            row["errors_in_standard_errors"] = [round((v - exact) / e, 2) for v, e in zip(values, errors, strict=True)]
        rows.append(row)
    return rows


def accuracy_row() -> dict[str, Any]:
    """A 20 x 200 RBM with its weights in 16 bits against itself, both enumerated in float64."""
    bias, weight = (p[0].double() for p in boltzmann(1, 20, 200))
    unit = gpu.quantum(weight[None].float())[0].double()
    rounded = torch.floor(weight / unit + 0.5) * unit
    true, grid = BipartiteBoltzmann(bias, weight), BipartiteBoltzmann(bias, rounded)
    z = (torch.rand(CHAINS, 220, device="cuda") < true.marginals()).double()
    return {
        "what": "16-bit weights, 20x200",
        "who": "softspin",
        "largest_weight": weight.abs().max().item(),
        "largest_weight_error": (rounded - weight).abs().max().item(),
        "energy_error_rms": (true.energy(z) - grid.energy(z)).square().mean().sqrt().item(),
        "largest_marginal_error": (true.marginals() - grid.marginals()).abs().max().item(),
        "log_z_error_before_the_last_step": (grid.log_z - true.log_z).item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu_sweeps.json")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--alone", type=Path)
    arguments = parser.parse_args()
    if arguments.plans:
        compare_plans(arguments.rounds // 5, arguments.alone)
        return
    rows = [
        *sweep_rows(1, 200, arguments.rounds, baselines=True),
        *sweep_rows(20, 200, arguments.rounds, baselines=True),
        *sweep_rows(1, 100, arguments.rounds, baselines=False),
        *sweep_rows(20, 100, arguments.rounds, baselines=False),
        *ais_rows(10_000, repeats=3),
        accuracy_row(),
    ]
    where = {
        "device": torch.cuda.get_device_name(),
        "commit": arguments.commit,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps([{**row, **where} for row in rows], indent=1) + "\n")
    for row in rows:
        print(" | ".join(f"{key} {value}" for key, value in row.items() if key not in ("log_z", "standard_error")))


if __name__ == "__main__":
    main()
