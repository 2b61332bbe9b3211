"""softspin: discrete variational autoencoders with relaxed Boltzmann priors.

Names are loaded on first use: `import softspin` does not import torch and changes no global state.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from softspin import cores as _cores  # noqa: F401 - notes the cores before torch is imported

if TYPE_CHECKING:
    from softspin import data, distributions, objectives, samplers, smoothing
    from softspin.api import fit
    from softspin.boltzmann_machine import BoltzmannConfig, BoltzmannModel, fit_boltzmann, load_boltzmann
    from softspin.config import Config
    from softspin.distributions import (
        BipartiteBoltzmann,
        GaussianIntegralRelaxation,
        GraphBoltzmann,
        OverlapRelaxation,
        SmoothedBernoulli,
    )
    from softspin.errors import SoftspinError
    from softspin.methods import Method, method
    from softspin.trained import Model, load

__version__ = "0.1.0"

_HOMES = {
    "BoltzmannConfig": "softspin.boltzmann_machine",
    "BoltzmannModel": "softspin.boltzmann_machine",
    "fit_boltzmann": "softspin.boltzmann_machine",
    "load_boltzmann": "softspin.boltzmann_machine",
    "Config": "softspin.config",
    "Model": "softspin.trained",
    "fit": "softspin.api",
    "load": "softspin.trained",
    "BipartiteBoltzmann": "softspin.distributions",
    "GaussianIntegralRelaxation": "softspin.distributions",
    "GraphBoltzmann": "softspin.distributions",
    "Method": "softspin.methods",
    "OverlapRelaxation": "softspin.distributions",
    "SmoothedBernoulli": "softspin.distributions",
    "SoftspinError": "softspin.errors",
    "method": "softspin.methods",
}

_MODULES = ("data", "distributions", "objectives", "samplers", "smoothing")
"""Modules that `import softspin` makes reachable, such as `softspin.data.load`."""

__all__ = [
    "BipartiteBoltzmann",
    "BoltzmannConfig",
    "BoltzmannModel",
    "Config",
    "GaussianIntegralRelaxation",
    "GraphBoltzmann",
    "Method",
    "Model",
    "OverlapRelaxation",
    "SmoothedBernoulli",
    "SoftspinError",
    "__version__",
    "data",
    "distributions",
    "fit",
    "fit_boltzmann",
    "load",
    "load_boltzmann",
    "method",
    "objectives",
    "samplers",
    "smoothing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"softspin.{name}")
    if name not in _HOMES:
        near = difflib.get_close_matches(name, __all__, 1)
        hint = f"; did you mean softspin.{near[0]}?" if near else ""
        raise AttributeError(f"module 'softspin' has no attribute '{name}'{hint}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
