"""Estimators with the interface of scikit-learn; needs the extra `sklearn`."""

from softspin.errors import missing_extra

try:
    import sklearn.base  # noqa: F401
except ImportError as error:
    raise missing_extra("softspin.sklearn needs the package scikit-learn", "sklearn") from error

from softspin.sklearn.annotation import annotate
from softspin.sklearn.boltzmann import BoltzmannMachine
from softspin.sklearn.encoder import BinaryEncoder

__all__ = ["BinaryEncoder", "BoltzmannMachine", "annotate"]
