"""Distributions, which own no trainable parameters: tensors in, log densities and draws out."""

from softspin.distributions.bipartite import BipartiteBoltzmann
from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.conditional import Conditional
from softspin.distributions.enumeration import Moments
from softspin.distributions.gaussian_integral import GaussianIntegralRelaxation, safe_beta
from softspin.distributions.on_graph import GraphBoltzmann
from softspin.distributions.overlap import OverlapRelaxation
from softspin.distributions.relaxation import Relaxation
from softspin.distributions.rows import RowBoltzmann
from softspin.distributions.smoothed_bernoulli import SmoothedBernoulli
from softspin.distributions.visible import VisibleMarginal

__all__ = [
    "BipartiteBoltzmann",
    "Boltzmann",
    "Conditional",
    "GaussianIntegralRelaxation",
    "GraphBoltzmann",
    "Moments",
    "OverlapRelaxation",
    "Relaxation",
    "RowBoltzmann",
    "SmoothedBernoulli",
    "VisibleMarginal",
    "safe_beta",
]
