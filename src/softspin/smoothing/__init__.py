"""r(zeta|z): one bit made continuous. One file per family; `mirrored.py` says what a new one needs."""

from softspin.errors import unknown_name
from softspin.smoothing.base import Place, Smoothing, SoftBits
from softspin.smoothing.exponential import Exponential
from softspin.smoothing.gaussian import Gaussian, ShiftedGaussian
from softspin.smoothing.mirrored import Mirrored, UnitInterval
from softspin.smoothing.power import Power
from softspin.smoothing.spike_exponential import SpikeExponential
from softspin.smoothing.uniform_exponential import UniformExponential

SMOOTHINGS: dict[str, type[Smoothing]] = {
    family.name: family for family in (Exponential, UniformExponential, Power, Gaussian, SpikeExponential)
}
"""Families by short name, each made from beta alone. (The shifted Gaussian is made from width and shift.)"""


def smoothing_family(name: str) -> type[Smoothing]:
    """The family of that short name.

    >>> smoothing_family("power")(40.0)
    Power(beta=40)
    """
    if name not in SMOOTHINGS:
        raise unknown_name("smoothing", name, SMOOTHINGS)
    return SMOOTHINGS[name]


__all__ = [
    "SMOOTHINGS",
    "Exponential",
    "Gaussian",
    "Mirrored",
    "Place",
    "Power",
    "ShiftedGaussian",
    "Smoothing",
    "SoftBits",
    "SpikeExponential",
    "UniformExponential",
    "UnitInterval",
    "smoothing_family",
]
