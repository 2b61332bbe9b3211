"""Boltzmann machines as dimod knows them: binary quadratic models, and samplers in both directions.

:func:`to_bqm` and :func:`from_bqm` translate; :class:`GibbsSampler`, :class:`PopulationAnnealingSampler` and
:class:`ParallelTemperingSampler` are ours as dimod's, and :class:`DimodSampler` is any of dimod's as ours, measured by
:func:`check_temperature`. This package needs `pip install 'softspin[dwave]'`; no other part of softspin does.
"""

from importlib.util import find_spec

from softspin.errors import MissingExtraError

if find_spec("dimod") is None:
    raise MissingExtraError("softspin.dwave needs the package dimod: pip install 'softspin[dwave]'")

from softspin.dwave.as_dimod import (
    GibbsSampler,
    ParallelTemperingSampler,
    PopulationAnnealingSampler,
    SoftspinSampler,
)
from softspin.dwave.bqm import FromBQM, from_bqm, to_bqm
from softspin.dwave.dimod_sampler import DimodSampler
from softspin.dwave.temperature import TemperatureReport, TemperatureWarning, check_temperature

__all__ = [
    "DimodSampler",
    "FromBQM",
    "GibbsSampler",
    "ParallelTemperingSampler",
    "PopulationAnnealingSampler",
    "SoftspinSampler",
    "TemperatureReport",
    "TemperatureWarning",
    "check_temperature",
    "from_bqm",
    "to_bqm",
]
