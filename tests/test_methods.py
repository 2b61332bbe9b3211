"""The paper's eight methods by name."""

from __future__ import annotations

import pytest

from softspin.errors import UnknownNameError
from softspin.methods import METHODS, method
from softspin.smoothing import SMOOTHINGS, ShiftedGaussian


def test_the_eight_methods() -> None:
    assert len(METHODS) == 8
    assert {m.smoothing for m in METHODS.values()} <= set(SMOOTHINGS) | {ShiftedGaussian.name}
    assert {n for n, m in METHODS.items() if m.bound == "importance"} == {n for n in METHODS if n.startswith("dvae#")}


def test_an_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown method 'dvae#-pow'; did you mean 'dvae#-power'\?"):
        method("dvae#-pow")
    with pytest.raises(UnknownNameError, match=r"unknown method 'xyz'; known: dvae#-exp, .*, dvae-spike_exp"):
        method("xyz")
