"""The paper's eight methods by name."""

from __future__ import annotations

import pytest

from softspin import paper
from softspin.errors import UnknownNameError
from softspin.methods import METHODS, SmoothedMethod, method
from softspin.methods.discrete_kl import DiscreteKL
from softspin.methods.relaxed import Relaxed
from softspin.smoothing import SMOOTHINGS, ShiftedGaussian


def test_the_eight_methods() -> None:
    assert len(set(paper.METHODS)) == 8
    assert set(paper.METHODS) <= set(METHODS)
    classes = {name: method(name) for name in paper.METHODS}
    assert len(set(classes.values())) == 8
    smoothings = set()
    for name, one in classes.items():
        assert one.name == name
        assert issubclass(one, SmoothedMethod)
        smoothings.add(one.smoothing.name)
    assert smoothings <= set(SMOOTHINGS) | {ShiftedGaussian.name}
    assert {n for n, m in classes.items() if issubclass(m, Relaxed)} == {n for n in classes if n.startswith("dvae#")}
    assert {n for n, m in classes.items() if issubclass(m, DiscreteKL)} == {n for n in classes if n[:5] != "dvae#"}


def test_a_name_contains_family_and_smoothing() -> None:
    for name in paper.METHODS:
        one = method(name)
        assert issubclass(one, SmoothedMethod)
        expected = ShiftedGaussian.name if name == "dvae#-gauss_int" else name.rpartition("-")[2]
        assert one.smoothing.name == expected


def test_an_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown method 'dvae#-pow'; did you mean 'dvae#-power'\?"):
        method("dvae#-pow")
    with pytest.raises(UnknownNameError, match=r"unknown method 'xyz'; known: arm, .*, dvae#-exp, .*, vimco"):
        method("xyz")
