"""Distributions of the data given the outputs of the decoder, one file each."""

from softspin.likelihoods.base import Likelihood
from softspin.likelihoods.bernoulli import Bernoulli
from softspin.likelihoods.categorical import Categorical
from softspin.likelihoods.discretized_logistic import DiscretizedLogistic
from softspin.likelihoods.gaussian import Gaussian
from softspin.likelihoods.negative_binomial import NegativeBinomial
from softspin.likelihoods.zero_inflated_lognormal import ZeroInflatedLogNormal

__all__ = [
    "Bernoulli",
    "Categorical",
    "DiscretizedLogistic",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "ZeroInflatedLogNormal",
]
