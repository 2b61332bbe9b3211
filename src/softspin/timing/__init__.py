"""Estimates of training time: a model of the step time, fitted to benchmarks and scaled to the machine at hand."""
