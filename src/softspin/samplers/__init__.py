"""Samplers of Boltzmann machines, `(state, info) = step(state, boltzmann, ...)`, and estimators of log Z.

:mod:`gibbs` (PCD), :mod:`population` (population annealing) and :mod:`tempering` (parallel tempering) have `init` and
`step`; the caller owns the state. :mod:`log_z` estimates log Z, :mod:`negative_phase` its gradient, and
:mod:`diagnostics` measures how well chains have mixed.
"""

from softspin.samplers import bounds, diagnostics, gibbs, guards, log_z, population, search, tempering
from softspin.samplers.base import Sampler
from softspin.samplers.gibbs import Gibbs, GibbsInfo, GibbsState
from softspin.samplers.guards import LogZWarning
from softspin.samplers.log_z import SandwichWarning
from softspin.samplers.negative_phase import NegativePhase, log_z_with_gradient, negative_phase, with_negative_phase
from softspin.samplers.population import PopulationAnnealing
from softspin.samplers.population_log_z import anneal_population
from softspin.samplers.population_state import CollapseWarning, PopulationInfo, PopulationState
from softspin.samplers.result import LogZ
from softspin.samplers.schedules import linear_schedule, sigmoid_schedule
from softspin.samplers.tempering import ParallelTempering, TemperingInfo, TemperingState

__all__ = [
    "CollapseWarning",
    "Gibbs",
    "GibbsInfo",
    "GibbsState",
    "LogZ",
    "LogZWarning",
    "NegativePhase",
    "ParallelTempering",
    "PopulationAnnealing",
    "PopulationInfo",
    "PopulationState",
    "Sampler",
    "SandwichWarning",
    "TemperingInfo",
    "TemperingState",
    "anneal_population",
    "bounds",
    "diagnostics",
    "gibbs",
    "guards",
    "linear_schedule",
    "log_z",
    "log_z_with_gradient",
    "negative_phase",
    "population",
    "search",
    "sigmoid_schedule",
    "tempering",
    "with_negative_phase",
]
