"""Distributions without parameters of their own: tensors in, log densities and draws out."""

from softspin.distributions.boltzmann import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.distributions.enumeration import Moments
from softspin.distributions.gaussian_integral import GaussianIntegralRelaxation, safe_beta
from softspin.distributions.overlap import OverlapRelaxation
from softspin.distributions.relaxation import Relaxation
from softspin.distributions.smoothed_bernoulli import SmoothedBernoulli

__all__ = [
    "BipartiteBoltzmann",
    "Boltzmann",
    "GaussianIntegralRelaxation",
    "GraphBoltzmann",
    "Moments",
    "OverlapRelaxation",
    "Relaxation",
    "SmoothedBernoulli",
    "safe_beta",
]
