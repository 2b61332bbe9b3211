"""Named sizes of a model: how many groups of latent bits, and how deep and wide the nets are."""

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
