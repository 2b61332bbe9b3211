"""One case for each likelihood: its settings, data, support, another package's log probability, and bad data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from softspin.config import Config
from softspin.data import Dataset, from_arrays
from softspin.likelihoods import Likelihood
from softspin.parts import LIKELIHOODS

Array = NDArray[Any]


class Support(NamedTuple):
    """Points of one data row, with weights of a quadrature; those of a sum are 1."""

    points: Array
    weights: Array


class Case(NamedTuple):
    """What the tests need of a likelihood."""

    name: str
    make: Callable[[int, int], Array]
    """Data `(rows, features)` for a number of rows and features."""
    log_prob: Callable[[Any, Array, Array], Array]
    """log p of the data `(N, F)` for a likelihood and parameters `(N, P)`, by SciPy."""
    support: Callable[[Any], Support]
    """The support of the first feature."""
    extreme: Array
    """Data far away from those of `make`, `(N, 3)`."""
    bad: tuple[tuple[float, str], ...]
    """Values outside the support, with the error."""
    settings: Mapping[str, Any] = {}
    has_mean: bool = True
    """Whether `mean` is the mean, and not the most probable value."""

    @property
    def id(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.settings.values())])

    def config(self, **changes: Any) -> Config:
        sizes = {"groups": 2, "bits_per_group": 4, "layers": 1, "width": 6, "device": "cpu"}
        return Config(likelihood=self.name, **{**sizes, **self.settings, **changes})

    def data(self, rows: int = 60, features: int = 3) -> Dataset:
        return from_arrays(self.make(rows, features), binarize=self.name == "bernoulli")

    def likelihood(self, features: int = 3, **changes: Any) -> Likelihood:
        made: Likelihood = LIKELIHOODS.get(self.name)(self.config(**changes), self.data(features=features).spec)
        return made


def grid(center: float, spread: float, count: int = 30001) -> Support:
    """A trapezoidal rule, which is exact to rounding for a smooth density that vanishes at both ends.

    A density with a kink needs more points: the error falls as 1 / count^2.
    """
    points = center + spread * np.linspace(-15, 15, count)
    return Support(points, np.full(len(points), points[1] - points[0]))


def rng(rows: int, features: int) -> np.random.Generator:
    return np.random.default_rng([rows, features])


# Bernoulli --------------------------------------------------------------------------------------------


def pixels(rows: int, features: int) -> Array:
    return (rng(rows, features).random((rows, features)) < np.linspace(0.2, 0.7, features)).astype(np.uint8)


def bernoulli_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    found: Array = stats.bernoulli.logpmf(x, special.expit(parameters)).sum(-1)
    return found


BERNOULLI = Case(
    "bernoulli",
    pixels,
    bernoulli_log_prob,
    lambda _: whole_numbers(1),
    np.array([[0.0, 1.0, 1.0]]),
    (
        (2, r"values of train are from 0 to 2, but must be in \[0, 1\]"),
        (-0.5, "values of train are from -0.5 to 1"),
        (math.nan, r"train contains NaN, first at index \[0, 1\]"),
    ),
)


# Gaussian ---------------------------------------------------------------------------------------------


def gaussian_data(rows: int, features: int) -> Array:
    return 100.0 + 7.0 * rng(rows, features).standard_normal((rows, features))


def gaussian_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    mean, log_scale = np.split(parameters, 2, axis=-1)
    center, spread = likelihood.center.numpy(), likelihood.spread.numpy()
    found: Array = stats.norm.logpdf(x, center + spread * mean, spread * np.exp(log_scale)).sum(-1)
    return found


def gaussian_support(likelihood: Any) -> Support:
    return grid(float(likelihood.center[0]), 3 * float(likelihood.spread[0]))


GAUSSIAN = Case(
    "gaussian",
    gaussian_data,
    gaussian_log_prob,
    gaussian_support,
    np.array([[0.0, -1e12, 1e12], [3e38, -3e38, 1e20]]),
    ((math.nan, r"train contains NaN, first at index \[0, 1\]; values must be finite"), (math.inf, "beyond float32")),
)


# Negative binomial ------------------------------------------------------------------------------------


def counts(rows: int, features: int) -> Array:
    return rng(rows, features).negative_binomial(2, 0.15, (rows, features))


def negative_binomial_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    log_mean, log_dispersion = np.split(parameters, 2, axis=-1)
    mean = np.exp(likelihood.base_log_mean.numpy() + log_mean)
    r = np.exp(likelihood.base_log_dispersion.numpy() + log_dispersion)
    found: Array = stats.nbinom.logpmf(x, r, r / (r + mean)).sum(-1)
    return found


def whole_numbers(last: int) -> Support:
    return Support(np.arange(last + 1.0), np.ones(last + 1))


NEGATIVE_BINOMIAL = Case(
    "negative-binomial",
    counts,
    negative_binomial_log_prob,
    lambda _: whole_numbers(5000),
    np.array([[0.0, 1e6, 16777216.0], [1e30, 1e12, 1.0]]),
    (
        (
            -1,
            r"the data have -1 \(row 0 of train, feature 1\); .* = negative-binomial needs counts, whole numbers",
        ),
        (0.5, "whole numbers from 0"),
        (1e31, r"the data have 1e\+31 \(row 0 of train, .*\); .* needs counts of at most 1e\+30"),
        (math.nan, "train contains NaN"),
    ),
)

# Categorical ------------------------------------------------------------------------------------------

CATEGORIES = 4


def sequences(rows: int, features: int) -> Array:
    return rng(rows, features).choice(CATEGORIES, (rows, features), p=[0.4, 0.1, 0.3, 0.2])


def categorical_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    log_p = special.log_softmax(parameters.reshape(len(parameters), -1, CATEGORIES), axis=-1)
    index = np.broadcast_to(x, log_p.shape[:2]).astype(int)
    found: Array = np.take_along_axis(log_p, index[..., None], axis=-1)[..., 0].sum(-1)
    return found


CATEGORICAL = Case(
    "categorical",
    sequences,
    categorical_log_prob,
    lambda _: whole_numbers(CATEGORIES - 1),
    np.array([[0.0, 3.0, 3.0]]),
    (
        (4, r"the data have 4 \(row 0 of train, .*\); .* categories = 4 needs whole numbers from 0 to 3"),
        (-1, "whole numbers from 0 to 3"),
        (1.5, "whole numbers from 0 to 3"),
    ),
    {"categories": CATEGORIES},
    has_mean=False,
)


def one_hot(rows: int, features: int) -> Array:
    return np.eye(CATEGORIES, dtype=np.uint8)[sequences(rows, features)].reshape(rows, -1)


ONE_HOT = CATEGORICAL._replace(make=one_hot, settings={"categories": CATEGORIES, "one_hot": True})

# Zero-inflated log-normal -----------------------------------------------------------------------------


def energies(rows: int, features: int) -> Array:
    made = rng(rows, features)
    hits = made.random((rows, features)) < 0.6
    return np.where(hits, made.lognormal(1.5, 0.8, (rows, features)), 0.0)


def energy_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    logit, mean, log_scale = np.split(parameters, 3, axis=-1)
    base, center, spread = (getattr(likelihood, name).numpy() for name in ("base_logit", "center", "spread"))
    scale, hit = np.exp(center + spread * mean), special.expit(logit + base)
    density = stats.lognorm.logpdf(np.where(x > 0, x, 1.0), spread * np.exp(log_scale), scale=scale)
    found: Array = np.where(x > 0, np.log(hit) + density, np.log1p(-hit)).sum(-1)
    return found


def energy_support(likelihood: Any) -> Support:
    logs, steps = grid(float(likelihood.center[0]), 2 * float(likelihood.spread[0]))
    return Support(np.r_[0.0, np.exp(logs)], np.r_[1.0, steps * np.exp(logs)])


ENERGIES = Case(
    "zero-inflated-lognormal",
    energies,
    energy_log_prob,
    energy_support,
    np.array([[0.0, 1e-30, 1e30]]),
    (
        (
            -0.5,
            r"the data have -0.5 \(row 0 of train, .*\); likelihood = zero-inflated-lognormal needs numbers from 0",
        ),
        (math.nan, "train contains NaN"),
    ),
)

# Discretized logistic ---------------------------------------------------------------------------------


def image_bytes(rows: int, features: int) -> Array:
    values = 128 + 80 * rng(rows, features).standard_normal((rows, features))  # some beyond both ends
    return values.round().clip(0, 255).astype(np.uint8)


def logistic_log_prob(likelihood: Any, x: Array, parameters: Array) -> Array:
    mean, log_scale = np.split(parameters, 2, axis=-1)
    center, spread = likelihood.center.numpy(), likelihood.spread.numpy()
    logistic = stats.logistic(center + spread * mean, np.exp(log_scale) * spread * np.sqrt(3) / np.pi)
    low, high = np.where(x > 0, x - 0.5, -np.inf), np.where(x < 255, x + 0.5, np.inf)
    # The difference of the two smaller numbers.
    upper = low > logistic.mean()
    p = np.where(upper, logistic.sf(low) - logistic.sf(high), logistic.cdf(high) - logistic.cdf(low))
    found: Array = np.log(p).sum(-1)
    return found


BYTES = Case(
    "discretized-logistic",
    image_bytes,
    logistic_log_prob,
    lambda _: whole_numbers(255),
    np.array([[0.0, 255.0, 128.0]]),
    (
        (
            256,
            r"the data have 256 \(row 0 of train, .*\); .* needs whole numbers from 0 to 255; multiply gray levels",
        ),
        (-1, "whole numbers from 0 to 255"),
        (0.5, "whole numbers from 0 to 255"),
    ),
)

CASES = (
    BERNOULLI,
    BYTES,
    CATEGORICAL,
    GAUSSIAN,
    GAUSSIAN._replace(settings={"scale": "output"}),
    NEGATIVE_BINOMIAL,
    ENERGIES,
    ENERGIES._replace(settings={"scale": "output"}),
)
"""All likelihoods, two of them with both kinds of scale."""


def random_outputs(likelihood: Likelihood, rows: int, seed: int = 0) -> Tensor:
    """Outputs of a decoder `(1, 1, rows, outputs)`, float64."""
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * torch.randn(1, 1, rows, likelihood.outputs, dtype=torch.float64, generator=generator)
