"""Voxels with zeros, given an energy: train, stop, resume, and report an NLL with its interval. Made-up data."""

import sys

import numpy as np

import softspin

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "runs/voxels"
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000

# One row for each shower: the energy of the particle in GeV, and 24 voxels that are 0 or positive.
rng = np.random.default_rng(0)
energy = rng.uniform(1.0, 50.0, 3000)
depth = np.arange(24)
mean = energy[:, None] * np.exp(-0.5 * ((depth - 4 - 2 * np.log(energy[:, None])) / 4) ** 2) / 10
voxels = mean * rng.gamma(4.0, 0.25, mean.shape)
voxels[voxels < 0.05] = 0.0

config = softspin.Config(
    likelihood="zero-inflated-lognormal",
    groups=1,
    bits_per_group=60,
    layers=1,
    width=64,
    steps=STEPS,
    chains=320,
    sweeps=5,
    condition_values=8,
    importance_samples=2,
    test_samples=200,
    test_temperatures=min(1000, STEPS),
    test_chains=100,
)
try:  # stop after a while: the run keeps a checkpoint
    softspin.fit(config, voxels, FOLDER, condition=energy, minutes=0.03, pictures=False)
except softspin.errors.OutOfTimeError as stopped:
    print(stopped)
model = softspin.fit(config, voxels, FOLDER, condition=energy, resume=True, pictures=False)

row = model.result[0]
print(f"NLL given the energy: {row.nll:.2f} +- {row.standard_error:.2f} {row.unit}")
print(f"with log Z(c) at both ends of its interval: {row.nll_low:.2f} to {row.nll_high:.2f}")
showers = model.sample(1000, condition=20.0, seed=0)
print(f"mean deposit at 20 GeV: {showers.sum(1).mean():.2f} generated")
