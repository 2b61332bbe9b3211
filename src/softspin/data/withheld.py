"""A data set whose test images cannot be read: settings that are chosen by validation must not see them."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from softspin.data.dataset import Dataset
from softspin.errors import DataError


class WithheldTable:
    """A table of images with a shape, and without values.

    Args:
        shape: Numbers of images and of pixels.
    """

    ndim = 2

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: object) -> NoReturn:
        raise DataError("the test images are withheld until settings are chosen")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def without_test(data: Dataset) -> Dataset:
    """A data set with the same training and validation images, whose test images raise a DataError when they are read.

    Args:
        data: The data set.

    Returns:
        The data set. Its fingerprint, by which runs identify their data, is the same.
    """
    _ = data.fingerprint  # cached, and copied with the rest
    found = copy.copy(data)
    object.__setattr__(found, "test", WithheldTable(tuple(data.test.shape)))
    return found
