"""Time of one Gibbs sweep of 1,000 chains of a 200x200 RBM on this CPU, compared with other packages.

    OMP_PROC_BIND=true python benchmarks/cpu_sweep.py

Every round runs every contender once in the same process, so that other load affects all of them; a ratio is taken
within its round. Other packages (rbms, scikit-learn, dwave-pytorch-plugin with einops) take part if installed. Rows go
to results/cpu_sweep.json.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import torch
from torch import Tensor

from softspin.kernels import cpu, init_rng_state, plain

Contender = tuple[Callable[[], object], int]  # the call, and how many units of work it does


def device() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        extra = " ".join(f for f in ("avx2", "avx512f") if f in found["flags"].split())
        return f"{found['model name']} (family {found['cpu family']}, model {found['model']}, {extra})"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def environment() -> dict[str, Any]:
    """Hardware and software of the measurement, for every row."""
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False).stdout
    return {
        "device": device(),
        "cores": torch.get_num_threads(),
        "commit": commit.strip() or None,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "proc_bind": os.environ.get("OMP_PROC_BIND"),
    }


def version(name: str) -> dict[str, str]:
    """The version of a package that is a contender by its own name."""
    try:
        return {"version": importlib.metadata.version(name)}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return {}


def quantiles(values: list[float]) -> dict[str, float]:
    low, middle, high = (
        torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.1, 0.5, 0.9]).double()).tolist()
    )
    return {"median": round(middle, 4), "q10": round(low, 4), "q90": round(high, 4)}


def measure(contenders: dict[str, Contender], rounds: int, rare: dict[str, int]) -> dict[str, dict[int, float]]:
    """Milliseconds per unit of work, by name and round; contenders in `rare` run only in every n-th round."""
    for call, _ in contenders.values():
        call()
    times: dict[str, dict[int, float]] = {name: {} for name in contenders}
    for i in range(rounds):
        for name, (call, work) in contenders.items():
            if i % rare.get(name, 1) == 0:
                start = time.perf_counter()
                call()
                times[name][i] = 1e3 * (time.perf_counter() - start) / work
    return times


def rows(what: str, times: dict[str, dict[int, float]], ours: list[str]) -> list[dict[str, Any]]:
    """One row per contender; ours with the ratio to every baseline."""
    about = environment()
    table: list[dict[str, Any]] = []
    for name, taken in times.items():
        row = {
            "what": what,
            "name": name,
            **version(name),
            **about,
            "rounds": len(taken),
            "ms": quantiles(list(taken.values())),
        }
        if name in ours:
            others = {other: t for other, t in times.items() if other not in ours}
            row["times_faster_than"] = {
                other: quantiles([t[i] / taken[i] for i in t if i in taken]) for other, t in others.items()
            }
        table.append(row)
    return table


def show(table: list[dict[str, Any]], save: Path | None) -> None:
    for row in table:
        ms = row["ms"]
        print(
            f"{row['name']:<28} {ms['median']:>10.3f} ms   [{ms['q10']:.3f}, {ms['q90']:.3f}]   {row['rounds']} rounds"
        )
    for row in table:
        for other, ratio in row.get("times_faster_than", {}).items():
            print(f"{row['name']} against {other}: {ratio['median']:.1f}x   [{ratio['q10']:.1f}, {ratio['q90']:.1f}]")
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        save.write_text(json.dumps(table, indent=1) + "\n")


def boltzmann(n: int, m: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(1, n + m, generator=g), 0.1 * torch.randn(1, n, m, generator=g)


def contenders(n: int, m: int, chains: int) -> tuple[dict[str, Contender], dict[str, int]]:
    bias, weight = boltzmann(n, m)
    w, left_bias, right_bias = weight[0], bias[0, :n], bias[0, n:]
    state = {"z": torch.zeros(1, chains, n + m), "stream": init_rng_state(0, 1), "left": torch.zeros(chains, n)}

    def ours(sweeps: int) -> None:
        state["z"], state["stream"] = cpu.gibbs_sweeps(state["z"], bias, weight, state["stream"], sweeps)

    def twin() -> None:
        state["z"], state["stream"] = plain.gibbs_sweeps(state["z"], bias, weight, state["stream"], 1)

    def torch_sweep() -> None:
        p = torch.sigmoid(state["left"] @ w + right_bias)
        right = (torch.rand_like(p) < p).float()
        p = torch.sigmoid(right @ w.T + left_bias)
        state["left"] = (torch.rand_like(p) < p).float()

    found: dict[str, Contender] = {
        "softspin, 40 sweeps a call": (lambda: ours(40), 40),
        "softspin, 1 sweep a call": (lambda: ours(1), 1),
        "plain torch": (torch_sweep, 1),
        "softspin's plain twin": (twin, 1),
    }
    rare = {}
    try:
        from rbms.bernoulli_bernoulli.classes import BBRBM

        rbm = BBRBM(weight_matrix=w, vbias=left_bias, hbias=right_bias)
        visible = rbm.init_chains(chains)
        found["rbms"] = (lambda: visible.update(rbm.sample_state(n_steps=1, chains=visible)), 1)
    except ImportError:
        pass
    with contextlib.suppress(ImportError):
        found["scikit-learn"] = (sklearn_sweep(w, left_bias, right_bias, chains), 1)
    try:
        found["dwave-pytorch-plugin"] = (dwave(bias[0], w, chains), 1)
        rare["dwave-pytorch-plugin"] = 10
    except ImportError:
        pass
    return found, rare


def sklearn_sweep(weight: Tensor, left_bias: Tensor, right_bias: Tensor, chains: int) -> Callable[[], object]:
    """One call of `BernoulliRBM.gibbs`: hidden units given visible ones, then visible units."""
    import numpy as np
    from sklearn.neural_network import BernoulliRBM

    n, m = weight.shape
    rbm = BernoulliRBM(n_components=m, random_state=0)
    rbm.components_ = weight.T.numpy().copy()
    rbm.intercept_hidden_, rbm.intercept_visible_ = right_bias.numpy(), left_bias.numpy()
    rbm.random_state_, rbm.n_features_in_ = np.random.RandomState(0), n
    state = {"v": np.zeros((chains, n), dtype=np.float32)}
    return lambda: state.update(v=rbm.gibbs(state["v"]))


def dwave(bias: Tensor, weight: Tensor, chains: int) -> Callable[[], object]:
    """One sweep of its block sampler on the complete bipartite graph; spins s = 2z - 1, so h and J are scaled."""
    from dwave.plugins.torch.models import GraphRestrictedBoltzmannMachine
    from dwave.plugins.torch.samplers import BlockSampler

    n, m = weight.shape
    edges = [(i, n + j) for i in range(n) for j in range(m)]
    h = -(bias / 2 + torch.cat([weight.sum(1), weight.sum(0)]) / 4)
    linear = dict(enumerate(h.tolist()))
    quadratic = dict(zip(edges, (-weight / 4).flatten().tolist(), strict=True))
    model = GraphRestrictedBoltzmannMachine(range(n + m), edges, linear=linear, quadratic=quadratic)
    sampler = BlockSampler(model, lambda node: int(node < n), num_chains=chains, schedule=[1.0], seed=0)
    return sampler.sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--size", type=int, nargs=2, default=(200, 200))
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results" / "cpu_sweep.json")
    args = parser.parse_args()
    n, m = args.size
    found, rare = contenders(n, m, args.chains)
    times = measure(found, args.rounds, rare)
    what = f"one sweep, {args.chains} chains, {n}x{m}"
    ours = [name for name in found if name.startswith("softspin,")]
    print(what)
    show(rows(what, times, ours), args.save)


if __name__ == "__main__":
    main()
