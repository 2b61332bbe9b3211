"""r(zeta|z): one bit made continuous. One file per family; `mirrored.py` says what a new one needs."""

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
"""Families by short name, each made from beta alone."""


def smoothing_family(name: str) -> type[Smoothing]:
    """The family of that short name. All are made from beta, but the shifted Gaussian from width and shift.

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
