"""Electromagnetic showers in a calorimeter, given the energy of the electron: python examples/calorimeter.py.

A model of p(voxels | energy) with a zero-inflated log-normal likelihood: a voxel has no signal, or a positive energy.

Published: the mean longitudinal profile is the gamma distribution of Longo and Sestili (1975) with the depth of its
maximum, ln(E / E_c) - 1/2 radiation lengths, of the Review of Particle Physics (passage of particles through matter);
the radial profile is that of Grindhammer and Peters (1993). Made up: 12 layers of 2 radiation lengths with 4 rings, the
sizes of all fluctuations, the threshold of a voxel, and that the core radius grows linearly with the depth.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.distributions import Gamma

import softspin

LAYERS, RINGS = 12, 4
CRITICAL, THRESHOLD = 0.01, 0.002
"""In GeV: the critical energy of the absorber, and the smallest signal of a voxel."""


def showers(energy: torch.Tensor) -> torch.Tensor:
    """Deposited energy `(showers, layers, rings)` in GeV of electrons of these energies `(showers,)`."""
    maximum = (energy / CRITICAL).log() - 0.5
    maximum = maximum * (1 + 0.1 * torch.randn(len(energy)))  # where the shower starts and how it develops
    rate = 0.5 * torch.exp(0.1 * torch.randn(len(energy)))
    shape = 1 + rate * maximum
    depth = torch.linspace(0, 2 * LAYERS, LAYERS + 1)
    below = torch.special.gammainc(shape[:, None], rate[:, None] * depth)
    core = 0.3 + 0.05 * (depth[1:] + depth[:-1]) / 2  # in Moliere radii
    edge = torch.tensor([0.25, 0.5, 1.0, 2.0])
    inside = edge**2 / (edge**2 + core[:, None] ** 2)
    ring = torch.diff(inside, dim=1, prepend=torch.zeros(LAYERS, 1))
    mean = energy[:, None, None] * below.diff(dim=1)[..., None] * ring
    signal = Gamma(mean / 0.004 + 1e-3, torch.tensor(1 / 0.004)).sample()  # sampling fluctuations: a mean of 4 MeV each
    return torch.where(signal < THRESHOLD, 0.0, signal)


def compare(model: softspin.Model, energies: list[float], count: int, seed: int) -> list[torch.Tensor]:
    """Print mean deposited energies of made and generated showers; return their profiles `(2, layers)` by energy."""
    profiles = []
    for energy in energies:
        made = showers(torch.full((count,), energy))
        drawn = model.sample(count, condition=float(np.log(energy)), seed=seed)
        total = torch.stack([one.sum((1, 2)) for one in (made, drawn)])
        (a, b), (da, db) = total.mean(1), total.std(1) / count**0.5
        ratio, error = float(b / a), float(b / a * ((da / a) ** 2 + (db / b) ** 2) ** 0.5)
        hits = [float((one > 0).float().mean()) for one in (made, drawn)]
        print(f"{energy:g} GeV: mean deposit, generated / made: {ratio:.3f} +- {error:.3f}")
        print(f"  voxels with a signal: {hits[1]:.3f} generated, {hits[0]:.3f} made")
        profiles.append(torch.stack([one.sum(2).mean(0) for one in (made, drawn)]))
    return profiles


def draw(profiles: list[torch.Tensor], energies: list[float], path: Path) -> str:
    """Draw the mean energy of each layer; returns what was drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no picture: matplotlib is not installed"
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    depth = torch.arange(1, 2 * LAYERS, 2)
    for number, (both, energy) in enumerate(zip(profiles, energies, strict=True)):
        axes.plot(depth, both[0], f"C{number}o", mfc="none", label=f"made, {energy:g} GeV")
        axes.plot(depth, both[1], f"C{number}-", label="generated")
    axes.set(xlabel="depth in radiation lengths", ylabel="mean deposit of a layer in GeV", yscale="log")
    axes.legend(ncols=2)
    figure.savefig(path, dpi=150)
    return f"picture: {path}"


def main(
    steps: int = 6000, count: int = 20_000, temperatures: int = 2000, seed: int = 0, folder: str = "runs/calorimeter"
) -> float:
    """Train, print the NLL given the energy with its interval, and return it."""
    torch.manual_seed(seed)
    energy = torch.exp(torch.empty(count).uniform_(0.0, np.log(100.0)))  # 1 to 100 GeV, uniform in the logarithm
    config = softspin.Config(
        likelihood="zero-inflated-lognormal", groups=1, bits_per_group=64, layers=2, width=128, steps=steps,
        learning_rate=0.003, chains=640, sweeps=5, sampler="pcd", importance_samples=4, condition_values=16,
        validation_samples=20, test_samples=500, test_temperatures=temperatures, test_chains=200, seeds=(seed,),
    )  # fmt: skip
    data = softspin.data.from_arrays(showers(energy), name="made-up showers", binarize=False)
    model = softspin.fit(config, data, folder, condition=energy.log(), progress=False)

    row = model.result[0]
    print(f"test NLL given the energy: {row.nll:.2f} +- {row.standard_error:.2f} {row.unit}, {row.images} showers")
    print(f"with all log Z(c) at the ends of their intervals: {row.nll_low:.2f} to {row.nll_high:.2f}")
    print(f"independent voxels, the same for all energies: {row.baseline_nll:.2f}")
    print(f"given: {row.condition}")
    energies = [2.0, 10.0, 50.0]
    profiles = compare(model, energies, min(count, 4000), seed)
    print(draw(profiles, energies, Path(folder) / "profiles.png"))
    return row.nll


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="runs/calorimeter")
    main(**vars(parser.parse_args()))
