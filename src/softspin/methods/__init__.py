"""Training methods, one file per family. :data:`METHODS` has them by name; `METHODS.register` adds one."""

from softspin.methods.base import LatentModel, Method, Terms
from softspin.methods.smoothed import Inference, SmoothedMethod
from softspin.parts import METHODS, PartSetting

__all__ = ["METHODS", "Inference", "LatentModel", "Method", "PartSetting", "SmoothedMethod", "Terms", "method"]


def method(name: str) -> type[Method]:
    """Look up a method by name.

    >>> method("dvae#-power").citation[:9]
    'A. Vahdat'

    Args:
        name: Name of a method, such as "dvae#-power".

    Returns:
        The class of the method.

    Raises:
        UnknownNameError: There is no method of that name.
    """
    found: type[Method] = METHODS.get(name)
    return found
