"""The distribution of some units of a Boltzmann machine given the others."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from softspin.errors import ShapeError, SupportError
from softspin.numerics import real_tensor

if TYPE_CHECKING:
    from softspin.distributions.boltzmann import Boltzmann

Clamp = Mapping[int, int]
"""Values of the clamped units, 0 or 1, by the index of the unit."""


class Conditional(NamedTuple):
    """A Boltzmann machine with clamped units: p(z_free | z_clamped), again a Boltzmann machine."""

    boltzmann: Boltzmann
    """Distribution of the free units, in the order of :attr:`free`."""
    free: Tensor
    """Indices of the free units in the whole Boltzmann machine, ascending, `(F,)`."""
    clamped: Tensor
    """Indices of the clamped units, ascending, `(C,)`."""
    values: Tensor
    """Values of the clamped units, `(C,)`."""
    log_weight: Tensor
    """-E of the clamped units with all others 0, `(*replicas,)`.

    log p(z_clamped) = log Z of :attr:`boltzmann` + `log_weight` - log Z of the whole Boltzmann machine.
    """

    def __repr__(self) -> str:
        return f"Conditional({self.boltzmann!r} given {len(self.clamped)} clamped units)"

    def join(self, z: Tensor) -> Tensor:
        """Add the clamped units to states of the free ones.

        Args:
            z: States of the free units, `(..., F)`.

        Returns:
            States of all units, `(..., F + C)`.

        Raises:
            ShapeError: The last dimension is not that of the free units.
        """
        z = real_tensor("states", z)
        if z.shape[-1:] != self.free.shape:
            raise ShapeError(
                f"states of shape {tuple(z.shape)}; the last dimension must be {len(self.free)} free units"
            )
        whole = z.new_zeros(*z.shape[:-1], len(self.free) + len(self.clamped))
        whole[..., self.free] = z
        whole[..., self.clamped] = self.values.to(z)
        return whole


def read_clamp(clamp: Any, units: int) -> dict[int, float]:
    """Check the values of clamped units.

    Args:
        clamp: Values 0 or 1 by the index of the unit.
        units: Number of units.

    Returns:
        The values, in ascending order of the units.

    Raises:
        SupportError: It is not a mapping, there is no such unit, or a value is neither 0 nor 1.

    Example:
        >>> read_clamp({3: 1, 0: False}, units=4)
        {0: 0.0, 3: 1.0}
    """
    if not isinstance(clamp, Mapping):
        name = type(clamp).__name__
        raise SupportError(f"clamp must have values by unit, such as clamp={{3: 1, 17: 0}}, not {name}")
    found: dict[int, float] = {}
    for unit, value in clamp.items():
        if not isinstance(unit, Integral) or not 0 <= int(unit) < units:
            raise SupportError(f"no unit {unit!r} to clamp; there are {units}, counted from 0")
        bit = real_tensor(f"the value of unit {unit}", value)
        if bit.numel() != 1 or bit.item() not in (0, 1):
            raise SupportError(f"unit {unit} cannot be clamped to {value!r}; units are 0 or 1")
        found[int(unit)] = float(bit)
    return dict(sorted(found.items()))


def condition(boltzmann: Boltzmann, clamp: Clamp) -> Conditional:
    """Clamp units; see :meth:`softspin.distributions.Boltzmann.condition`."""
    values = read_clamp(clamp, boltzmann.units)
    if len(values) == boltzmann.units:
        raise SupportError(f"all {boltzmann.units} units are clamped; leave at least one free")
    bias = boltzmann.bias
    clamped = torch.tensor(list(values), dtype=torch.int64, device=bias.device)
    numbers = torch.tensor(list(values.values()), dtype=bias.dtype, device=bias.device)
    whole = torch.zeros_like(bias)
    whole[..., clamped] = numbers
    is_free = torch.ones(boltzmann.units, dtype=torch.bool, device=bias.device)
    is_free[clamped] = False
    free = is_free.nonzero().flatten()
    # The field at (clamped values, 0) is a + W z_clamped: the biases of the free units given the clamped ones.
    rest = boltzmann.restricted_to(free, boltzmann.field(whole)[..., free])
    return Conditional(rest, free, clamped, numbers, -boltzmann.energy(whole))
