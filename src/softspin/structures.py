"""Named sizes of a model: how many groups of latent bits, and how deep and wide the nets are."""

from __future__ import annotations

from typing import NamedTuple

from softspin.deprecation import warn_renamed


class Shape(NamedTuple):
    """The sizes of a model: groups of latent bits, and the hidden layers of each net."""

    groups: int
    """Groups of latent bits; group g's encoder sees the groups before it."""
    bits_per_group: int
    """Bits in each group."""
    layers: int
    """Hidden layers of each encoder net and of the decoder; 0 is a linear model."""
    width: int
    """Units of each hidden layer."""

    @property
    def bits(self) -> int:
        """Deprecated name of `bits_per_group`."""
        warn_renamed("bits", "bits_per_group")
        return self.bits_per_group

    def __str__(self) -> str:
        return f"{self.groups} x {self.bits_per_group} bits, {self.layers} layers of {self.width}"

    @property
    def units(self) -> int:
        """All latent bits D; the RBM is D/2 x D/2."""
        return self.groups * self.bits_per_group


STRUCTURES: dict[str, Shape] = {
    "1-linear": Shape(groups=1, bits_per_group=200, layers=0, width=200),
    "1-nonlinear": Shape(groups=1, bits_per_group=200, layers=2, width=200),
    "2-nonlinear": Shape(groups=2, bits_per_group=200, layers=2, width=200),
    "4-nonlinear": Shape(groups=4, bits_per_group=100, layers=2, width=200),
}
