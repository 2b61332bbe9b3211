"""Time and error of annealed importance sampling on this CPU, compared with the package rbms.

    OMP_PROC_BIND=true python benchmarks/cpu_ais.py

1,000 temperatures x 1,000 chains of a 200x200 RBM, starting from its biases, as in rbms. Speed: rounds of
one run each, interleaved. Error: repeated runs at fewer temperatures of a 200x20 RBM with stronger weights, whose
log Z is known by enumeration. Rows are written to results/cpu_ais.json. rbms is included if installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cpu_sweep import Contender, boltzmann, environment, measure, rows, show
from torch import Tensor

from softspin.kernels import cpu, init_rng_state
from softspin.numerics import all_states, softplus


def ours(bias: Tensor, weight: Tensor, temperatures: int, chains: int) -> Callable[[int], float]:
    path = torch.linspace(0, 1, temperatures, dtype=torch.float64)
    start = float(softplus(bias.double()).sum())

    def run(seed: int) -> float:
        log_weight, _, _ = cpu.anneal(bias, weight, bias, path, chains, init_rng_state(seed, 1))
        return start + float(log_weight.logsumexp(1)) - math.log(chains)

    return run


def rbms(bias: Tensor, weight: Tensor, temperatures: int, chains: int) -> Callable[[int], float]:
    from rbms.bernoulli_bernoulli.classes import BBRBM
    from rbms.partition_function.ais import compute_partition_function_ais

    n = weight.shape[1]
    rbm = BBRBM(weight_matrix=weight[0], vbias=bias[0, :n], hbias=bias[0, n:])

    def run(seed: int) -> float:
        torch.manual_seed(seed)
        return float(compute_partition_function_ais(num_chains=chains, num_beta=temperatures, params=rbm))

    return run


def contestants(*args: Any) -> dict[str, Callable[[int], float]]:
    found = {"softspin": ours(*args)}
    with contextlib.suppress(ImportError):
        found["rbms"] = rbms(*args)
    return found


def exact(bias: Tensor, weight: Tensor) -> float:
    """log Z by summing over all states of the right side, float64."""
    n = weight.shape[1]
    left, right, w = bias[0, :n].double(), bias[0, n:].double(), weight[0].double()
    parts = [torch.logsumexp(z @ right + softplus(left + z @ w.T).sum(-1), 0) for z in all_states(w.shape[1])]
    return float(torch.logsumexp(torch.stack(parts), 0))


def errors(temperatures: int, chains: int, runs: int) -> list[dict[str, Any]]:
    bias, weight = boltzmann(200, 20)
    bias, weight = 3 * bias, 5 * weight
    truth = exact(bias, weight)
    what = f"error of log Z in nats, {temperatures} temperatures, {chains} chains, 200x20"
    table, about = [], environment()
    for name, run in contestants(bias, weight, temperatures, chains).items():
        off = torch.tensor([run(seed) for seed in range(runs)], dtype=torch.float64) - truth
        root, mean, se = off.square().mean().sqrt(), off.mean(), off.std() / math.sqrt(runs)
        root_se = off.square().std() / math.sqrt(runs) / (2 * root)
        row = {"what": what, "name": name, **about, "runs": runs, "exact": truth}
        table.append(
            row
            | {
                "root_mean_square": float(root),
                "root_mean_square_se": float(root_se),
                "mean": float(mean),
                "standard_error": float(se),
            }
        )
        print(
            f"{name:<28} error {mean:+.4f} +- {se:.4f}, root mean square {root:.4f} +- {root_se:.4f}   "
            f"{runs} runs; exact {truth:.4f}"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--temperatures", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rbms-every", type=int, default=2, help="run rbms in every n-th round only")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results" / "cpu_ais.json")
    args = parser.parse_args()
    found = contestants(*boltzmann(200, 200), args.temperatures, args.chains)
    values: dict[str, list[float]] = {name: [] for name in found}

    def call(name: str) -> Contender:
        return lambda: values[name].append(found[name](len(values[name]))), 1

    what = f"AIS, {args.temperatures} temperatures x {args.chains} chains, 200x200"
    print(what)
    table = rows(
        what, measure({name: call(name) for name in found}, args.rounds, {"rbms": args.rbms_every}), ["softspin"]
    )
    for row in table:
        got = torch.tensor(values[row["name"]], dtype=torch.float64)
        row["log_z"] = {"mean": float(got.mean()), "spread": float(got.std())}
        print(f"{row['name']:<28} log Z {got.mean():.4f}, standard deviation over runs {got.std():.4f}")
    table += errors(100, args.chains, args.runs)
    show([row for row in table if "ms" in row], None)
    args.save.parent.mkdir(parents=True, exist_ok=True)
    args.save.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
