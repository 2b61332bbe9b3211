"""Training methods, one file a family. :data:`METHODS` has them by name; `METHODS.register` adds one."""

from softspin.methods.base import LatentModel, Method, Terms
from softspin.methods.smoothed import Inference, SmoothedMethod
from softspin.parts import METHODS, PartSetting

__all__ = ["METHODS", "Inference", "LatentModel", "Method", "PartSetting", "SmoothedMethod", "Terms", "method"]


def method(name: str) -> type[Method]:
    """The class of the method of that name.

    >>> method("dvae#-power").citation[:9]
    'A. Vahdat'
    """
    found: type[Method] = METHODS.get(name)
    return found
