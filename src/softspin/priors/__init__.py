"""Parameters of the prior p(z), one file each; their `forward` returns a Boltzmann distribution."""

from softspin.priors.base import Prior
from softspin.priors.factorial import FactorialPrior
from softspin.priors.given import GivenPrior
from softspin.priors.graph import GraphPrior
from softspin.priors.rbm import RBM

__all__ = ["RBM", "FactorialPrior", "GivenPrior", "GraphPrior", "Prior"]
