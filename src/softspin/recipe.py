"""The published recipe as data: the four structures, and the beta that the authors chose for each cell of their table.

Facts of Vahdat et al., "DVAE#" (2018), and of the recipe it refers to, DVAE++ Sec. 7.2.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """The sizes of a model: groups of latent bits, and the hidden layers of each net."""

    groups: int
    """Groups of latent bits; group g's encoder sees the groups before it."""
    bits: int
    """Bits in each group."""
    layers: int
    """Hidden layers of each encoder net and of the decoder; 0 is a linear model."""
    width: int
    """Units of each hidden layer."""

    @property
    def units(self) -> int:
        """All latent bits D; the RBM is D/2 x D/2."""
        return self.groups * self.bits


STRUCTURES: dict[str, Shape] = {
    "1-linear": Shape(groups=1, bits=200, layers=0, width=200),
    "1-nonlinear": Shape(groups=1, bits=200, layers=2, width=200),
    "2-nonlinear": Shape(groups=2, bits=200, layers=2, width=200),
    "4-nonlinear": Shape(groups=4, bits=100, layers=2, width=200),
}

RATE_SCHEDULE: tuple[tuple[float, float], ...] = ((0.02, 0.1), (0.6, 1.0), (0.75, 1 / 3), (0.95, 0.1), (1.0, 1 / 33))
"""Pairs (share of the steps up to which, factor on the rate)."""

_COLUMNS = (
    "dvae-spike_exp",
    "dvae++-exp",
    "dvae++-power",
    "dvae#-gauss_int",
    "dvae#-gaussian",
    "dvae#-exp",
    "dvae#-un_exp",
    "dvae#-power",
)
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


def beta(data: str, structure: str, method: str) -> float:
    """The authors' cross-validated beta; data sets that they did not use take the row of MNIST.

    >>> beta("omniglot", "2-nonlinear", "dvae#-power"), beta("digits", "2-nonlinear", "dvae#-power")
    (20.0, 30.0)
    """
    row = _BETAS["omniglot" if data == "omniglot" else "mnist", structure]
    return float(row[_COLUMNS.index(method)])
