"""Conditions c of the images, for models of p(x | c): a class, or real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.errors import ConfigError, ShapeError, SupportError

_LISTED = 12
"""Number of classes that a text lists."""


def listed(classes: Sequence[object]) -> str:
    """Classes as a short text.

    >>> listed([3, 4]), listed(range(20))
    ('3, 4', '0, 1, ..., 19')
    """
    names = [str(one) for one in classes]
    return ", ".join(names if len(names) <= _LISTED else [*names[:2], "...", names[-1]])


class Conditions(NamedTuple):
    """Conditions of the images of a data set, `(images, columns)`: int64 for a class (one column), else float32."""

    train: Tensor
    valid: Tensor
    test: Tensor


class ConditionTable(NamedTuple):
    """How conditions are encoded, and the values of the condition that the prior distinguishes.

    A class is encoded one-hot. Numbers are standardized: (c - center) / scale.
    """

    values: Tensor
    """Encoded values, `(V, C)`, float32: all classes, or the numbers that occur; or centers of bins of these."""
    classes: Tensor | None = None
    """Labels of the classes, ascending, `(C,)`, int64; None for numbers."""
    center: Tensor | None = None
    """Mean of each number in the training set, `(C,)`, float32; None for a class. So are `scale` and `limits`."""
    scale: Tensor | None = None
    """Standard deviation of each number."""
    limits: Tensor | None = None
    """Smallest and largest of each number in the training set, `(2, C)`."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes 0, 1, ..., if they have names."""

    def encode(self, raw: Tensor) -> Tensor:
        """Encode conditions.

        Args:
            raw: Conditions, `(N, columns)`, as :func:`read_condition` returns them.

        Returns:
            Encoded conditions, `(N, C)`, float32.

        Raises:
            ShapeError: The number of columns is wrong.
            SupportError: A class did not occur in training, or numbers are given for a class.
        """
        if self.classes is not None:
            return self._one_hot(raw)
        assert self.center is not None
        assert self.scale is not None
        if raw.shape[1] != len(self.center):
            raise ShapeError(
                f"the condition has {raw.shape[1]} column{'s' * (raw.shape[1] > 1)}; this model needs "
                f"{len(self.center)} number{'s' * (len(self.center) > 1)} for each image"
            )
        return ((raw.to(self.center.device, torch.float64) - self.center) / self.scale).to(torch.float32)

    def _one_hot(self, raw: Tensor) -> Tensor:
        assert self.classes is not None
        if raw.shape[1] != 1:
            raise ShapeError(f"the condition has {raw.shape[1]} columns; this model needs one class for each image")
        labels = raw[:, 0].to(self.classes.device)
        if labels.is_floating_point() and bool((labels != labels.round()).any()):
            raise SupportError("the condition has numbers; this model needs one of its classes, which are integers")
        found = labels[:, None] == self.classes
        if not bool(found.any(1).all()):
            odd = int(labels[~found.any(1)][0])
            name = odd if self.class_names is None else f"'{self.class_names[odd]}'"
            raise SupportError(f"class {name} did not occur in training; use one of {self.classes_text()}")
        return found.to(torch.float32)

    def classes_text(self) -> str:
        """The classes, as a short text."""
        assert self.classes is not None
        labels = self.classes.tolist()
        return listed(labels if self.class_names is None else [self.class_names[label] for label in labels])

    def raw_values(self) -> Tensor:
        """The values as they are given: labels `(V, 1)`, or numbers `(V, C)`."""
        return self.decode(self.values)

    def as_given(self, raw: Tensor) -> Any:
        """Conditions as a user gives them.

        Args:
            raw: Labels `(N, 1)`, or numbers `(N, C)`.

        Returns:
            Names of classes as an array `(N, 1)`, if they have names; else the tensor itself.
        """
        if self.class_names is None:
            return raw
        return np.array([[self.class_names[label]] for label in raw[:, 0].tolist()])

    def texts(self, raw: Tensor) -> list[str]:
        """Each condition as text: the name of a class, its label, or numbers.

        Args:
            raw: Labels `(N, 1)`, or numbers `(N, C)`.

        Returns:
            A text for each.
        """
        rows = self.as_given(raw).tolist()
        return [", ".join(one if isinstance(one, str) else f"{one:g}" for one in row) for row in rows]

    def decode(self, encoded: Tensor) -> Tensor:
        """Conditions as they were given, with labels in place of names.

        Args:
            encoded: Encoded conditions, `(N, C)`.

        Returns:
            Labels `(N, 1)`, or numbers `(N, C)`.
        """
        if self.classes is not None:
            return self.classes[encoded.argmax(1)][:, None]
        assert self.center is not None
        assert self.scale is not None
        return encoded * self.scale + self.center


def make_table(train: Tensor, limit: int, class_names: tuple[str, ...] | None = None) -> ConditionTable:
    """Find the encoding of conditions and the values that the prior distinguishes, from the training set.

    Args:
        train: Conditions of the training images, `(N, columns)`.
        limit: Largest number of values. If more numbers occur, they are binned.
        class_names: Names of the classes 0, 1, ..., if they have names.

    Returns:
        The table.

    Raises:
        ConfigError: There are more classes than `limit`.
        SupportError: The condition is the same for all images.
    """
    if not train.is_floating_point():
        classes = train.unique()
        if len(classes) < 2:
            raise SupportError("the condition is the same class for all training images; train without a condition")
        if len(classes) > limit:
            raise ConfigError(
                f"the condition has {len(classes):,} classes, and condition_values = {limit}; raise it, or give floats "
                "if the condition is a number"
            )
        return ConditionTable(torch.eye(len(classes)), classes=classes, class_names=class_names)
    numbers = train.double()
    center, scale = numbers.mean(0).float(), numbers.std(0, correction=0).float()
    if bool((scale <= 0).any()):
        column = int((scale <= 0).nonzero()[0])
        raise SupportError(f"column {column} of the condition is the same for all training images; leave it out")
    table = ConditionTable(
        torch.empty(0, len(center)), center=center, scale=scale, limits=torch.stack([train.amin(0), train.amax(0)])
    )
    encoded = table.encode(train)
    distinct = encoded.unique(dim=0)
    if len(distinct) > limit:
        distinct = torch.from_numpy(bin_centers(encoded.numpy().astype(np.float64), limit).astype(np.float32))
    return table._replace(values=distinct)


def bin_centers(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Means of bins of points: the bin with the largest sum of squares is cut at its mean, until there are enough.

    >>> bin_centers(np.array([[0.0], [1.0], [10.0], [11.0]]), 2)
    array([[ 0.5],
           [10.5]])

    Args:
        points: Points, `(N, columns)`.
        count: Number of bins.

    Returns:
        Their means, `(count, columns)`, or fewer if there are fewer distinct points.
    """
    bins = [points]
    while len(bins) < count:
        squares = [((one - one.mean(0)) ** 2).sum(0) for one in bins]
        widest = int(np.argmax([each.max() for each in squares]))
        if squares[widest].max() <= 0:
            break
        one, column = bins[widest], int(squares[widest].argmax())
        below = one[:, column] <= one[:, column].mean()
        if below.all():  # rounding of equal values
            break
        bins[widest : widest + 1] = [one[below], one[~below]]
    return np.stack([one.mean(0) for one in bins])
