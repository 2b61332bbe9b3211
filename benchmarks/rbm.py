"""Time that softspin, rbms and scikit-learn take to train an RBM to given test log-likelihoods.

    OMP_NUM_THREADS=2 python benchmarks/rbm.py                                # digits, 784 + 200 units, on the CPU
    PYTHONPATH=src:WHERE python benchmarks/rbm.py --device cuda --data mnist --hidden 500 --budget 8 --first 0.1 \\
        --growth 2 --temperatures 4000 --chains 500 --targets -140 -130 -120 -110 -100

Each program runs with its own defaults (batch size, chains, Gibbs steps, initial values) at three learning rates, one
of which is its default. All train in one process, in turns, until each has used the next amount of training time, so
that other load affects all of them. Then the test log-likelihood of all of them is computed by the same estimate of
log Z, annealing in both directions from independent units with the means of the data. Training time excludes these
evaluations and the writing of files. On a CPU it is CPU time of the process, and wall time is recorded too; on a GPU it
is wall time.

A target is reached by softspin when the lower end of its interval is above it, by others when their upper end is (or
their value, if the upper end is unknown). The
time of softspin is that of the evaluation that has reached it; the time of another program is that of its last
evaluation before, or its budget if it never reached it. Ratios are therefore lower bounds.

rbms and scikit-learn take part if installed. On a machine without a package index, rbms runs from its sources: it is
pure Python, and the part used here needs only torch and NumPy. Unpack its wheel (`pip download --no-deps rbms==0.5.0`,
a zip file) into a folder WHERE, and put that folder on PYTHONPATH; h5py and tqdm need not be there. MNIST is read from
the folder in SOFTSPIN_DATA. The result is written after every round, so that an interrupted run keeps what it measured.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import math
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from alone import alone
from torch import Tensor

import softspin.data
from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.engine import Engine
from softspin.boltzmann_machine.likelihood import activity_base, log_likelihood, mean_activity
from softspin.data import Dataset
from softspin.distributions import BipartiteBoltzmann
from softspin.provenance import provenance
from softspin.samplers import log_z
from softspin.training.journal import plain

RATES = {"softspin": (0.2, 0.1, 0.5), "rbms": (0.01, 0.03, 0.1), "scikit-learn": (0.1, 0.01, 0.001)}
"""Learning rates of each program, its default first."""


class Contender(ABC):
    """A program that trains an RBM, with clocks that run only while it trains."""

    name: str

    def __init__(self, rate: float, x: Tensor, hidden: int, device: torch.device) -> None:
        self.rate, self.x, self.hidden, self.device = rate, x, hidden, device
        self.cpu, self.wall, self.updates = 0.0, 0.0, 0
        self.history: list[dict[str, float]] = []

    @abstractmethod
    def update(self) -> None:
        """Make one update."""

    @abstractmethod
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weight (visible, hidden), visible bias and hidden bias."""

    @property
    def finished(self) -> bool:
        return False

    def train(self, seconds: float) -> None:
        """Train until this much time was used in all."""
        while self.seconds < seconds and not self.finished:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(self.chunk):
                if not self.finished:
                    self.update()
                    self.updates += 1
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall

    chunk = 1

    @property
    def seconds(self) -> float:
        return self.wall if self.device.type == "cuda" else self.cpu


class Softspin(Contender):
    name, chunk = "softspin", 10

    def __init__(self, rate: float, x: Tensor, hidden: int, device: torch.device) -> None:
        super().__init__(rate, x, hidden, device)
        bits = x.to(torch.uint8)
        data = Dataset("bits", bits, bits[:1], bits[:1], (x.shape[1],), "static", "benchmark")
        self.config = BoltzmannConfig(hidden=hidden, learning_rate=rate)
        self.engine = Engine(self.config, data, device)
        # Kernels are loaded, and on a GPU steps are compiled and captured, before the clock starts; then the initial
        # state is restored. The row says how long that took.
        began = time.perf_counter()
        initial = {key: value.clone() for key, value in self.engine.state().items()}
        for _ in range(10):
            self.engine.step()
        self.engine.load(initial)
        if device.type == "cuda":
            torch.cuda.synchronize()
        self.start_seconds = time.perf_counter() - began

    def update(self) -> None:
        self.engine.step()

    @property
    def finished(self) -> bool:
        return self.engine.steps >= self.config.steps

    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        found, n = self.engine.update.result, self.x.shape[1]
        return found["weight"][0], found["bias"][0, :n], found["bias"][0, n:]


class Rbms(Contender):
    """The loop of `rbms.training.pcd.train` with its default arguments, without its files."""

    name = "rbms"

    def __init__(self, rate: float, x: Tensor, hidden: int, device: torch.device) -> None:
        super().__init__(rate, x, hidden, device)
        # Packages for its files and plots, which are not used here.
        missing = [name for name in ("h5py", "matplotlib", "tqdm") if importlib.util.find_spec(name) is None]
        sys.modules.update({name: MagicMock() for name in missing})
        from rbms.bernoulli_bernoulli.classes import BBRBM

        for name in missing:
            del sys.modules[name]
        torch.manual_seed(0)
        self.rows = x.to(device)
        self.weights = torch.ones(len(x), device=device)

        class Data:
            data = self.rows

        self.rbm = BBRBM.init_parameters(hidden, Data, device, torch.float32)
        self.chains = self.rbm.sample_state(chains=self.rbm.init_chains(2000), n_steps=100)
        self.rbm.init_grad()
        self.optimizer = torch.optim.SGD(self.rbm.parameters(), lr=rate, maximize=True)

    @torch.no_grad()
    def update(self) -> None:
        index = torch.randperm(len(self.rows))[:2000]
        self.optimizer.zero_grad(set_to_none=False)
        batch = self.rbm.init_chains(num_samples=len(index), weights=self.weights[index], start_v=self.rows[index])
        self.chains = self.rbm.sample_state(chains=self.chains, n_steps=100)
        self.rbm.compute_gradient(data=batch, chains=self.chains, centered=True)
        self.rbm.normalize_grad()
        self.optimizer.step()

    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.rbm.weight_matrix, self.rbm.vbias, self.rbm.hbias


class ScikitLearn(Contender):
    """The loop of `BernoulliRBM.fit`, for as many epochs as there is time."""

    name, chunk = "scikit-learn", 20

    def __init__(self, rate: float, x: Tensor, hidden: int, device: torch.device) -> None:
        super().__init__(rate, x, hidden, device)
        from sklearn.neural_network import BernoulliRBM

        self.rows = x.numpy()
        self.rbm = BernoulliRBM(n_components=hidden, learning_rate=rate, n_iter=1, random_state=0)
        self.rng = np.random.RandomState(0)
        self.rbm.components_ = np.asarray(
            self.rng.normal(0, 0.01, (hidden, x.shape[1])), order="F", dtype=self.rows.dtype
        )
        self.rbm.intercept_hidden_ = np.zeros(hidden, dtype=self.rows.dtype)
        self.rbm.intercept_visible_ = np.zeros(x.shape[1], dtype=self.rows.dtype)
        self.rbm.h_samples_ = np.zeros((self.rbm.batch_size, hidden), dtype=self.rows.dtype)

    def update(self) -> None:
        size = self.rbm.batch_size
        start = self.updates * size % (len(self.rows) // size * size)
        self.rbm._fit(self.rows[start : start + size], self.rng)

    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        found = self.rbm.components_.T, self.rbm.intercept_visible_, self.rbm.intercept_hidden_
        return tuple(torch.from_numpy(np.ascontiguousarray(one)).float() for one in found)  # type: ignore[return-value]


def evaluate(one: Contender, test: Tensor, temperatures: int, chains: int) -> dict[str, float]:
    weight, visible, hidden = (x.detach().to(one.device).clone() for x in one.parameters())
    rbm = BipartiteBoltzmann(torch.cat([visible, hidden])[None], weight[None])
    base = activity_base(mean_activity(rbm, len(visible), one.x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = log_z.sandwich(rbm, seed=0, temperatures=temperatures, chains=chains, base=base, guarded=False)
    value = log_likelihood(rbm, len(visible), test, found)
    numbers = {"log_likelihood": value.value, "low": value.lower, "high": value.upper}
    return {name: round(float(number), 3) for name, number in numbers.items()}


def race(contenders: list[Contender], test: Tensor, args: argparse.Namespace, save: Callable[[], None]) -> None:
    best = max(args.targets)
    seconds = args.first
    while True:
        active = [
            one for one in contenders if not one.finished and not (one.history and one.history[-1]["low"] >= best)
        ]
        active = [one for one in active if one.seconds < args.budget]
        if not active:
            return
        for one in active:
            with alone(args.alone):
                one.train(min(seconds, args.budget))
            found = evaluate(one, test, args.temperatures, args.chains)
            about = {"cpu_seconds": round(one.cpu, 3), "wall_seconds": round(one.wall, 3), "updates": one.updates}
            one.history.append({**about, **found})
            print(f"{one.name:<13} rate {one.rate:<6g} {json.dumps(one.history[-1])}", flush=True)
        save()
        seconds *= args.growth


def reached(one: Contender, target: float, clock: str) -> tuple[float, bool]:
    """Time to a target, and whether it was reached; a lower bound for others, an upper bound for softspin."""
    ours, before = one.name == "softspin", 0.0
    for line in one.history:
        # An upper end that is unknown is no evidence; the value is that of forward annealing, too high on average.
        most = line["high"] if math.isfinite(line["high"]) else line["log_likelihood"]
        if (line["low"] if ours else most) >= target:
            return (line[clock] if ours else before), True
        before = line[clock]
    return before, False


def summary(contenders: list[Contender], args: argparse.Namespace) -> list[dict[str, Any]]:
    clocks = ("wall_seconds",) if args.device == "cuda" else ("cpu_seconds", "wall_seconds")
    rows = []
    for target in args.targets:
        for how in ("defaults", "best of three rates"):
            times: dict[str, dict[str, Any]] = {}
            for name in dict.fromkeys(one.name for one in contenders):
                own = [one for one in contenders if one.name == name]
                own = own if how != "defaults" else own[:1]
                order = {
                    one.rate: (not reached(one, target, clocks[0])[1], reached(one, target, clocks[0])[0])
                    for one in own
                }
                chosen = min(own, key=lambda one: order[one.rate])
                times[name] = {"rate": chosen.rate, "reached": reached(chosen, target, clocks[0])[1]}
                times[name] |= {clock: reached(chosen, target, clock)[0] for clock in clocks}
                times[name]["highest"] = max(line["log_likelihood"] for line in chosen.history)
            ours = times["softspin"]
            for name, other in times.items():
                if name != "softspin" and ours["reached"]:
                    other["times_slower_at_least"] = {c: round(other[c] / ours[c], 2) for c in clocks}
            rows.append({"target": target, "how": how, "times": times})
    return rows


def environment(device: torch.device) -> dict[str, Any]:
    """Hardware and software, before the race: the working tree may change while it runs."""
    made = provenance(device)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    about = {"device": made.device, "commit": made.commit, "torch": made.torch, "date": date}
    return {**about, "cores": torch.get_num_threads()}


def version(name: str) -> dict[str, str]:
    """The version of a program that is installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return {"version": importlib.metadata.version(name)}
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--targets", type=float, nargs="+", default=[-160.0, -140.0, -120.0, -110.0])
    parser.add_argument("--first", type=float, default=0.5, help="Training seconds before the first evaluation.")
    parser.add_argument("--growth", type=float, default=1.6, help="Ratio of the times of successive evaluations.")
    parser.add_argument("--budget", type=float, default=120.0, help="Training seconds of each contender.")
    parser.add_argument("--temperatures", type=int, default=3000)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=list(RATES), help="Programs to run.")
    parser.add_argument("--alone", type=Path, help="Train while tools/lanes.py pauses all others, asked by this file.")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    device = torch.device(args.device)
    data = softspin.data.load(args.data)
    generator = torch.Generator().manual_seed(0)
    x = data.train.float()
    if data.binarization == "per-batch":  # one binarization for all programs
        x = (torch.rand(x.shape, generator=generator) < x).float()
    kinds: dict[str, type[Contender]] = {"softspin": Softspin, "rbms": Rbms, "scikit-learn": ScikitLearn}
    contenders: list[Contender] = []
    for name in args.only:
        if args.device == "cuda" and name == "scikit-learn":
            continue
        try:
            contenders += [kinds[name](rate, x, args.hidden, device) for rate in RATES[name]]
        except ImportError as error:
            print(f"{name} is left out: {error}")
    about = {"what": f"{args.data}, {x.shape[1]} + {args.hidden} units, {len(x)} rows", **environment(device)}
    path = args.save or Path(__file__).parent / "results" / f"rbm_{args.device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        runs = [
            {"name": one.name, "rate": one.rate, **version(one.name), "history": one.history}
            | ({"start_seconds": round(one.start_seconds, 1)} if hasattr(one, "start_seconds") else {})
            for one in contenders
        ]
        rows = summary(contenders, args)
        path.write_text(json.dumps(plain({**about, "targets": rows, "runs": runs}), indent=1) + "\n")

    race(contenders, data.test, args, save)
    for row in summary(contenders, args):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
