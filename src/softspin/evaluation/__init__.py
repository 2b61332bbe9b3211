"""Evaluation of a trained model: likelihoods with error bars, exact ones where possible, and plots."""

from softspin.evaluation.baseline import baseline_nll, bernoulli_nll, pixel_probabilities
from softspin.evaluation.exact import exact_log_likelihood, exact_nll
from softspin.evaluation.importance import likely_states, probable_states
from softspin.evaluation.likelihood import evaluate
from softspin.evaluation.more_samples import MoreSamples, more_samples
from softspin.evaluation.partition import Progress, log_z_for
from softspin.evaluation.result import Likelihood
from softspin.evaluation.running import MeanNLL

__all__ = [
    "Likelihood",
    "MeanNLL",
    "MoreSamples",
    "Progress",
    "baseline_nll",
    "bernoulli_nll",
    "evaluate",
    "exact_log_likelihood",
    "exact_nll",
    "likely_states",
    "log_z_for",
    "more_samples",
    "pixel_probabilities",
    "probable_states",
]
