"""The eight methods of the paper's tables, by name: which smoothing, which prior, which bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softspin.errors import unknown_name


@dataclass(frozen=True)
class Method:
    """One column of the paper's Table 1."""

    name: str
    smoothing: str
    """Short name of the posterior's smoothing."""
    prior: Literal["discrete", "overlap", "gaussian_integral"]
    """Whether the KL is over the bits (DVAE, DVAE++) or the prior itself is relaxed (DVAE#), and how."""

    @property
    def bound(self) -> Literal["elbo", "importance"]:
        """A relaxed prior can be trained with the importance-weighted bound, a discrete one with the ELBO alone."""
        return "elbo" if self.prior == "discrete" else "importance"


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("dvae-spike_exp", "spike_exp", "discrete"),
        Method("dvae++-exp", "exp", "discrete"),
        Method("dvae++-power", "power", "discrete"),
        Method("dvae#-gauss_int", "shifted_gaussian", "gaussian_integral"),
        Method("dvae#-gaussian", "gaussian", "overlap"),
        Method("dvae#-exp", "exp", "overlap"),
        Method("dvae#-un_exp", "un_exp", "overlap"),
        Method("dvae#-power", "power", "overlap"),
    )
}


def method(name: str) -> Method:
    """The method of that name.

    >>> method("dvae#-power").bound
    'importance'
    """
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]
