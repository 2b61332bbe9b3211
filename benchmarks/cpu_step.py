"""Speedup of a training update on the CPU over the same update in plain eager torch.

    python benchmarks/cpu_step.py [--commit HASH] [--out FILE]

The plain one is what one would write: the image repeated for each of the K samples, sweeps with `rand_like(p) < p`,
torch's own Adam. Same nets, same bound, same sizes (2-nonlinear, batch 100, PCD 40 sweeps x 1,000 chains), in one
process, turn by turn.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset
from softspin.distributions import SmoothedBernoulli
from softspin.methods import Inference
from softspin.model import build
from softspin.objectives import importance_bound, log_weights
from softspin.smoothing import Power
from softspin.training.engine import Engine

SWEEPS, CHAINS = 40, 1_000


def some_data() -> Dataset:
    bits = (torch.rand(5_000, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    return Dataset("random", bits, bits[:100], bits[:100], (28, 28), "static", "random bits")


def plain_step(config: Config, data: Dataset) -> Callable[[], None]:
    """The update as anyone would write it."""
    from softspin.distributions import OverlapRelaxation

    model = build(config, data.spec).train()
    with_decay = {id(parameter) for parameter in model.decayed()}
    others = [parameter for parameter in model.parameters() if id(parameter) not in with_decay]
    groups = [{"params": list(model.decayed()), "weight_decay": config.weight_decay}, {"params": others}]
    optimiser = torch.optim.Adam(groups, lr=3e-3, eps=1e-3)
    chains = (torch.rand(CHAINS, model.units) < 0.5).float()
    half, many = model.units // 2, config.importance_samples

    def step() -> None:
        nonlocal chains
        weight, bias = model.prior_parameters.weight[0].detach(), model.prior_parameters.bias[0].detach()
        left = chains[:, :half]
        for _ in range(SWEEPS):
            p = torch.sigmoid(torch.addmm(bias[half:], left, weight))
            right = (torch.rand_like(p) < p).float()
            p = torch.sigmoid(torch.addmm(bias[:half], right, weight.T))
            left = (torch.rand_like(p) < p).float()
        chains = torch.cat([left, right], dim=1)
        x = data.train[torch.randint(len(data.train), (config.batch_size,))].float()
        centred = (x - model.mean).repeat(many, 1)[None, None]
        posterior, bits = [], []
        for net in model.encoder:
            seen = torch.cat([centred, *(b.zeta for b in bits)], dim=-1)
            posterior.append(SmoothedBernoulli(net(seen), Power(30.0), validate_args=False))
            bits.append(posterior[-1].draw())
        inferred = Inference(posterior, bits)
        likelihood = model.log_likelihood(x.repeat(many, 1)[None], model.decode(inferred.joined.zeta))
        boltzmann = model.prior(torch.zeros(1), validate=False)
        prior = OverlapRelaxation(boltzmann).log_ratio(inferred.joined)
        weights = log_weights(likelihood, prior, inferred.log_ratio).reshape(1, many, -1)
        negative = -boltzmann.energy(chains[None]).mean()
        optimiser.zero_grad()
        (negative - importance_bound(weights).mean()).backward()
        optimiser.step()

    return step


def row(samples: int, rounds: int) -> dict[str, Any]:
    config = Config(structure="2-nonlinear", importance_samples=samples, sampler="pcd", sweeps=SWEEPS, chains=CHAINS)
    data = some_data()
    engine = Engine(config, build(config, data.spec), data, torch.device("cpu"))
    steps = {"softspin": engine.step, "plain eager torch": plain_step(config, data)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    ratios = torch.tensor(times["plain eager torch"]) / torch.tensor(times["softspin"])
    return {
        "what": f"update of 2-nonlinear, K = {samples}, batch 100, PCD {SWEEPS} sweeps x {CHAINS} chains",
        "ms": {name: quantiles(torch.tensor(own)) for name, own in times.items()},
        "times_faster": quantiles(ratios),
    }


def quantiles(values: Tensor) -> dict[str, float]:
    low, middle, high = values.quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    return {"median": round(middle, 3), "q10": round(low, 3), "q90": round(high, 3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    where = {"device": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    where |= {"commit": options.commit, "torch": torch.__version__}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = []
    for samples in (1, 5, 25):
        rows.append(row(samples, options.rounds) | where)
        print(json.dumps(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
