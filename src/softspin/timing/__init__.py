"""Estimates of training time: a model of the step time, fitted to benchmarks and scaled to the machine at hand."""

from softspin.timing.estimate import Estimate, Estimator, sizes_of

__all__ = ["Estimate", "Estimator", "sizes_of"]
