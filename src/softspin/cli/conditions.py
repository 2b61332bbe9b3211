"""The option --condition of commands that read data: a file, labels, or one condition for all images."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torch import Tensor

from softspin import api
from softspin.cli.regions import read_values
from softspin.data import Dataset
from softspin.data.conditions import Conditions
from softspin.data.formats import READERS
from softspin.data.keys import PARTS
from softspin.errors import ConfigError, DataError
from softspin.trained.given import one_given, raw_condition

EXPECTED = "give a file with one row for each image, labels, or one class or numbers such as 10.5,2 for all images"


def read_option(model: api.Model, text: str | None) -> str | Tensor | None:
    """Read the option.

    Args:
        model: A model.
        text: The option. What can be read as numbers is no file, because files have an ending.

    Returns:
        One condition for all images as a row `(1, columns)`; else the text, which is a file or a word such as labels.

    Raises:
        ConfigError: It is neither, or the model has no condition.
        DataError: There is no such file.
        ShapeError: The number of columns is wrong.
        SupportError: A class did not occur in training, or a number is not finite.
        UnknownNameError: There is no class of this name.
    """
    if text is None:
        return None
    if model.net.condition is None:
        raise ConfigError("the model has no condition: it is of p(x), not of p(x | c); leave out --condition")
    if text in ("auto", "none", "labels") or (path := Path(text).expanduser()).is_file():
        return text
    names, no_file = model.class_names, f"there is no file {text} for --condition; {EXPECTED}"
    if names is not None and text not in names and path.suffix.lower() in READERS:
        raise DataError(no_file)
    try:
        value = read_values(text, names)
    except ConfigError:
        if path.suffix:
            raise DataError(no_file) from None
        raise ConfigError(f"--condition {text} is not possible; {EXPECTED}") from None
    one_given(model.net, value)  # raises if the model cannot have it
    return raw_condition(value, model.net.condition)


def with_one_condition(data: Dataset, row: Tensor, class_names: tuple[str, ...] | None = None) -> Dataset:
    """The data set with the same condition `(1, columns)` for all images; a class is the number of its name."""
    condition = Conditions(*(row.expand(len(getattr(data, one)), -1) for one in PARTS))
    return dataclasses.replace(data, condition=condition, class_names=class_names)
