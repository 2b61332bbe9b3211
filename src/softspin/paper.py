"""Facts of the reproduced paper: its methods, training recipe and betas. Users are not restricted to them.

A config takes its default beta from :func:`published_beta`. The tables and the report cover :data:`METHODS`.

References:
    Vahdat, Andriyash and Macready (2018), "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann Priors",
    arXiv:1805.07445. Its recipe is that of DVAE++, arXiv:1802.04920, Sec. 7.2.
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
"""The columns of Table 1. Methods registered elsewhere are not part of the paper."""

DATA = ("mnist", "omniglot")
SEEDS = 5
"""Number of training runs for each published value."""
STEPS = 1_000_000

LEARNING_RATE_SCHEDULE: tuple[tuple[float, float], ...] = (
    (0.02, 0.1),
    (0.6, 1.0),
    (0.75, 1 / 3),
    (0.95, 0.1),
    (1.0, 1 / 33),
)
"""Pairs of (fraction of the steps at which the phase ends, factor on the learning rate)."""

RECIPE: Mapping[str, Any] = {
    "version": 4,
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
    "patience": None,
    "validation_samples": 100,
    "validation_temperatures": 1000,
    "validation_chains": 1024,
    "test_samples": 4000,
    "test_temperatures": 10_000,
    "test_chains": 1000,
    "tf32": False,
}
"""Settings of every cell of the tables. They are explicit, so that a new default of a config changes no published
cell. The version lets renamed settings be migrated as in any stored file."""

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
    """Look up the beta that the authors chose by cross-validation.

    Args:
        data: Name of the data set. All but "omniglot" take the values of MNIST.
        structure: Name of the structure.
        method: Name of the method.

    Returns:
        beta, or None for a method or structure that is not in the paper.

    Example:
        >>> published_beta("omniglot", "2-nonlinear", "dvae#-power")
        20.0
        >>> published_beta("digits", "2-nonlinear", "dvae#-power")
        30.0
    """
    row = _BETAS.get(("omniglot" if data == "omniglot" else "mnist", structure))
    return float(row[METHODS.index(method)]) if row is not None and method in METHODS else None
