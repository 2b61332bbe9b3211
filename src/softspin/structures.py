"""Named sizes of a model: groups of latent bits, and depth and width of the networks."""

from __future__ import annotations

from typing import NamedTuple

from softspin.deprecation import warn_renamed


class Shape(NamedTuple):
    """Sizes of a model: groups of latent bits, and hidden layers of each network."""

    groups: int
    """Groups of latent bits. The encoder of a group sees the groups before it."""
    bits_per_group: int
    """Bits in each group."""
    layers: int
    """Hidden layers of each encoder network and of the decoder. 0 is a linear model."""
    width: int
    """Units of each hidden layer."""

    @property
    def bits(self) -> int:
        """Deprecated name of `bits_per_group`."""
        warn_renamed("bits", "bits_per_group")
        return self.bits_per_group

    def __str__(self) -> str:
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{self.groups} x {self.bits_per_group} bits, {layers} of {self.width}"

    @property
    def units(self) -> int:
        """Number of latent bits D. The RBM is D/2 x D/2."""
        return self.groups * self.bits_per_group


STRUCTURES: dict[str, Shape] = {
    "1-linear": Shape(groups=1, bits_per_group=200, layers=0, width=200),
    "1-nonlinear": Shape(groups=1, bits_per_group=200, layers=2, width=200),
    "2-nonlinear": Shape(groups=2, bits_per_group=200, layers=2, width=200),
    "4-nonlinear": Shape(groups=4, bits_per_group=100, layers=2, width=200),
}


def structure_name(shape: Shape) -> str:
    """Name of the structure with these sizes, or the sizes if there is none.

    Args:
        shape: Sizes of a model.

    Returns:
        The name, such as "2-nonlinear", or a text, such as "2x32 bits, 2x200".
    """
    if not shape.layers:  # then the width has no meaning
        shape = shape._replace(width=STRUCTURES["1-linear"].width)
    found = next((name for name, one in STRUCTURES.items() if one == shape), None)
    return found or f"{shape.groups}x{shape.bits_per_group} bits, {shape.layers}x{shape.width}"
