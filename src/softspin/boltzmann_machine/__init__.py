"""Boltzmann machines on their own: maximum likelihood on binary data, without encoder and decoder."""

from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.files import load_boltzmann
from softspin.boltzmann_machine.fit import fit_boltzmann
from softspin.boltzmann_machine.likelihood import LogLikelihood
from softspin.boltzmann_machine.model import BoltzmannModel
from softspin.boltzmann_machine.run_files import BoltzmannResult

__all__ = [
    "BoltzmannConfig",
    "BoltzmannModel",
    "BoltzmannResult",
    "LogLikelihood",
    "fit_boltzmann",
    "load_boltzmann",
]
