"""Facts of the reproduced paper, as data: its methods, recipe and betas. Nothing here decides what a user may run.

Vahdat, Andriyash and Macready, "DVAE#" (2018), and the recipe it refers to, DVAE++ Sec. 7.2. A config consults
:func:`published_beta` for its default; the tables, the report and the observations are about :data:`METHODS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS = (
    "dvae-spike_exp",
    "dvae++-exp",
    "dvae++-power",
    "dvae#-gauss_int",
    "dvae#-gaussian",
    "dvae#-exp",
    "dvae#-un_exp",
    "dvae#-power",
)
"""The columns of Table 1. Methods that are registered elsewhere are no part of the paper's observations."""

DATA = ("mnist", "omniglot")
SEEDS = 5
"""Training runs behind each published value."""
STEPS = 1_000_000

LEARNING_RATE_SCHEDULE: tuple[tuple[float, float], ...] = (
    (0.02, 0.1),
    (0.6, 1.0),
    (0.75, 1 / 3),
    (0.95, 0.1),
    (1.0, 1 / 33),
)
"""Pairs (share of the steps up to which, factor on the learning rate)."""

RECIPE: Mapping[str, Any] = {
    "version": 3,
    "net": "mlp",
    "likelihood": "bernoulli",
    "prior": "rbm",
    "groups": None,
    "bits_per_group": None,
    "layers": None,
    "width": None,
    "graph": None,
    "init_scale": 2.6,
    "norm_decay": 0.8,
    "norm_epsilon": 1e-2,
    "betas": (),
    "epsilon": 0.05,
    "clamp": 0.0,
    "mean_field_steps": 5,
    "warmup": 0.3,
    "weight_decay": 1e-4,
    "steps": STEPS,
    "batch_size": 100,
    "learning_rate": 3e-3,
    "learning_rate_schedule": LEARNING_RATE_SCHEDULE,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-3,
    "adam_corrected": False,
    "chains": 1000,
    "sweeps": 40,
    "evaluate_every": None,
    "validation_samples": 100,
    "validation_temperatures": 1000,
    "validation_chains": 1024,
    "test_samples": 4000,
    "test_temperatures": 10_000,
    "test_chains": 1000,
    "tf32": False,
}
"""Settings of every cell of the tables. Written out, so that a new default of a config changes no published cell; with
its version, so that a renamed setting is migrated here as in any stored file."""

_BETAS = {
    ("mnist", "1-linear"): (5, 12, 40, 40, 40, 12, 40, 40),
    ("mnist", "1-nonlinear"): (5, 14, 30, 30, 30, 12, 30, 40),
    ("mnist", "2-nonlinear"): (4, 10, 30, 30, 25, 10, 16, 30),
    ("mnist", "4-nonlinear"): (4, 10, 30, 30, 25, 10, 16, 30),
    ("omniglot", "1-linear"): (4, 14, 40, 40, 40, 12, 40, 40),
    ("omniglot", "1-nonlinear"): (4, 12, 40, 30, 25, 10, 16, 30),
    ("omniglot", "2-nonlinear"): (4, 10, 30, 25, 25, 8, 16, 20),
    ("omniglot", "4-nonlinear"): (4, 10, 30, 25, 25, 8, 16, 20),
}


def published_beta(data: str, structure: str, method: str) -> float | None:
    """The authors' cross-validated beta; other data sets take the row of MNIST. None for a method of others.

    >>> published_beta("omniglot", "2-nonlinear", "dvae#-power"), published_beta("digits", "2-nonlinear", "dvae#-power")
    (20.0, 30.0)
    """
    row = _BETAS.get(("omniglot" if data == "omniglot" else "mnist", structure))
    return float(row[METHODS.index(method)]) if row is not None and method in METHODS else None
