"""A trained model: load it, sample, encode, evaluate, share."""

from softspin.trained.loading import load
from softspin.trained.model import Model

__all__ = ["Model", "load"]
