"""The numbers behind the paper's figures, one file per question; `softspin.report.figures` draws them.

`one_bit` has no model in it, `training` trains the models of Fig. 2, `mean_field` and `gradients` are what is measured
on them, `arrays` is how numbers are stored together with where they come from.
"""

TRAINED = ("fig2a", "fig2b", "fig2c")
"""Those that train models."""
NAMES = ("fig1", *TRAINED, "appendix")
"""In the order of the paper."""

__all__ = ["NAMES", "TRAINED"]
