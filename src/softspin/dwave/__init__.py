"""Boltzmann machines as binary quadratic models of dimod, and samplers in both directions.

:func:`to_bqm` and :func:`from_bqm` convert. :class:`GibbsSampler`, :class:`PopulationAnnealingSampler` and
:class:`ParallelTemperingSampler` are softspin's samplers with the interface of dimod. :class:`DimodSampler` is any
sampler of dimod with the interface of softspin; :func:`check_temperature` measures its temperature. This package needs
the extra `dwave`; no other part of softspin does.
"""

from importlib.util import find_spec

from softspin.errors import missing_extra

if find_spec("dimod") is None:
    raise missing_extra("softspin.dwave needs the package dimod", "dwave")

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
