"""Smoothing distributions r(zeta|z), which relax one bit z to a continuous variable zeta.

One file per family. `mirrored.py` lists the methods that a new family needs.
"""

from softspin.deprecation import renamed_members
from softspin.errors import unknown_name
from softspin.smoothing.base import Location, Smoothing, SoftBits
from softspin.smoothing.exponential import Exponential
from softspin.smoothing.gaussian import Gaussian, ShiftedGaussian
from softspin.smoothing.mirrored import Mirrored, UnitInterval
from softspin.smoothing.power import Power
from softspin.smoothing.spike_exponential import SpikeExponential
from softspin.smoothing.uniform_exponential import UniformExponential

SMOOTHINGS: dict[str, type[Smoothing]] = {
    family.name: family for family in (Exponential, UniformExponential, Power, Gaussian, SpikeExponential)
}
"""Families by short name. Each can be constructed from beta alone."""


def smoothing_family(name: str) -> type[Smoothing]:
    """Look up a smoothing family by its short name.

    Args:
        name: A key of :data:`SMOOTHINGS`, or "shifted_gaussian".

    Returns:
        The class. Its first argument is beta; only :class:`ShiftedGaussian` takes a width and a shift instead.

    Raises:
        UnknownNameError: No family has this name.

    Example:
        >>> smoothing_family("power")(40.0)
        Power(beta=40)
    """
    families: dict[str, type[Smoothing]] = {**SMOOTHINGS, ShiftedGaussian.name: ShiftedGaussian}
    if name not in families:
        raise unknown_name("smoothing", name, families)
    return families[name]


__all__ = [
    "SMOOTHINGS",
    "Exponential",
    "Gaussian",
    "Location",
    "Mirrored",
    "Power",
    "ShiftedGaussian",
    "Smoothing",
    "SoftBits",
    "SpikeExponential",
    "UniformExponential",
    "UnitInterval",
    "smoothing_family",
]

__getattr__ = renamed_members(__name__, {"Place": "Location"})
