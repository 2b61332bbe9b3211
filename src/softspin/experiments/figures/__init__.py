"""The numbers in the figures of the paper; `softspin.report.figures` plots them.

`one_bit` computes the figures without a model. `training` trains the models of Fig. 2, on which `mean_field` and
`gradients` are measured. `arrays` stores the numbers with their provenance.
"""

TRAINED = ("fig2a", "fig2b", "fig2c")
"""Figures that need training."""
NAMES = ("fig1", *TRAINED, "appendix")
"""All figures, in the order of the paper."""

__all__ = ["NAMES", "TRAINED"]
