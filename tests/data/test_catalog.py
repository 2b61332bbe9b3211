"""Data sets by name."""

from __future__ import annotations

import pytest

from softspin.data import DEFAULT, available, load
from softspin.errors import DataError, UnknownNameError


def test_available_names() -> None:
    assert available() == ["bars-and-stripes-3x3", "digits", "digits8x8", "mnist", "omniglot"]
    assert DEFAULT in available()


def test_every_name_loads_the_data_set_of_that_name() -> None:
    for name in ("bars-and-stripes-3x3", "digits8x8"):  # and digits, below
        assert load(name, folder="ignored", download=False).name == name
    for name in ("mnist", "omniglot"):
        with pytest.raises(DataError, match=f"^{name} is not in "):
            load(name, download=False)


def test_the_default_needs_no_argument() -> None:
    assert load().name == DEFAULT


def test_bars_and_stripes_by_name() -> None:
    data = load("bars-and-stripes-2x5")
    assert data.shape == (2, 5)
    assert data.name == "bars-and-stripes-2x5"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mnits", "unknown data set 'mnits'; did you mean 'mnist'?"),
        (
            "qqq",
            "unknown data set 'qqq'; known: bars-and-stripes-3x3, digits, digits8x8, mnist, omniglot; "
            "there is no folder 'qqq' either",
        ),
        ("bars-and-stripes", "unknown data set 'bars-and-stripes'; give height and width, as in 'bars-and-st"),
        ("bars-and-stripes-3", "give height and width, as in 'bars-and-stripes-3x3'"),
    ],
)
def test_unknown_names(name: str, text: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load(name)
    assert text in str(caught.value)
