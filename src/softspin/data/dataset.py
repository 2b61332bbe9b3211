"""The type of all data sets: three tables of flattened images, and their source."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from softspin.data.conditions import Conditions, ConditionTable
from softspin.data.keys import PARTS
from softspin.data.mapped import Table, pixel_sums, table_chunks
from softspin.errors import ShapeError, SupportError

Binarization = Literal["static", "per-batch", "none"]


class DataSpec(NamedTuple):
    """Shape and mean of the data, which a model needs when it is built."""

    shape: tuple[int, ...]
    """Shape of one image."""
    mean: Tensor
    """Mean of every feature over the training set, `(features,)`, float32."""
    train: Table | None = None
    """Training data, from which a likelihood computes its constants; None when a model is loaded, which has them."""
    condition: Tensor | ConditionTable | None = None
    """Conditions of the training images, or the table of a model that is loaded; None for a model of p(x)."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes 0, 1, ... of the condition, if they have names."""

    @property
    def features(self) -> int:
        """Number of features of one image."""
        return len(self.mean)


class Labels(NamedTuple):
    """Classes of the images of a data set. Training does not use them."""

    train: Tensor
    """Labels of the training images `(images,)`."""
    valid: Tensor
    """Labels of the validation images."""
    test: Tensor
    """Labels of the test images."""
    names: tuple[str, ...] = ()
    """Names of the classes 0, 1, ..., if they have names."""

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(labels):,}" for labels in self[:3])
        names = f", named {', '.join(self.names)}" if self.names else ""
        return f"Labels({sizes} of train, valid and test{names})"


COLORS = 3
"""Channels of a color picture."""


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether the last of three dimensions of an image is that of its channels: 3 colors, or 2 or 4 of a larger image.

    >>> channels_last((16, 12, 3)), channels_last((3, 16, 12)), channels_last((8, 8, 2)), channels_last((28, 28))
    (True, False, True, False)

    Args:
        shape: Shape of an image.

    Returns:
        Whether it is.
    """
    return len(shape) == 3 and (shape[2] == COLORS or (shape[2] in (2, 4) and shape[2] < min(shape[:2])))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images split into train, valid and test, each a table `(images, pixels)`.

    A table is a tensor. Tables of a file that stays on disk are `MappedTable` objects instead, which support what
    training and evaluation need: length, shape, indexing, sums over images.

    >>> tiny = Dataset("tiny", *[torch.eye(2, dtype=torch.uint8)] * 3, (1, 2), "static", "an example")
    >>> tiny.batch(torch.tensor([1, 1, 0]))
    tensor([[0., 1.],
            [0., 1.],
            [1., 0.]])
    """

    name: str
    train: Tensor
    """Bits (uint8), or gray levels (float32 in [0, 1]) from which :meth:`batch` draws new bits every time.

    Data that are not binarized are uint8 or float32 in all three tables."""
    valid: Tensor
    """Bits (uint8), so that a likelihood on them is reproducible."""
    test: Tensor
    """Bits (uint8), so that a likelihood on them is reproducible."""
    shape: tuple[int, ...]
    """Shape of an image."""
    binarization: Binarization
    """`"static"` if `train` holds bits, `"per-batch"` if it holds gray levels, `"none"` for values as they are."""
    source: str
    """Description of the copy of the data, for result rows."""
    entropy: float | None = None
    """Exact negative log-likelihood, in nats, of the best possible model, if known."""
    places: Tensor | None = None
    """Index in the user's file of each image, in the order train, valid, test; None if the order is the same."""
    labels: Labels | None = None
    """Classes of the images, if they are known."""
    condition: Conditions | None = None
    """Conditions of the images, for a model of p(x | c)."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a table, such as genes, if they have names."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes 0, 1, ... of the condition, if they have names."""

    def __post_init__(self) -> None:
        if self.binarization not in get_args(Binarization):
            raise SupportError(f"binarization must be 'static', 'per-batch' or 'none', not {self.binarization!r}")
        if not self.shape or min(self.shape) < 1:
            raise ShapeError(f"an image's shape must have positive sizes, such as (28, 28), not {self.shape}")
        if self.columns is not None and len(self.columns) != math.prod(self.shape):
            raise ShapeError(f"there are {len(self.columns)} names of columns for {math.prod(self.shape)} columns")
        for part in PARTS:
            table: Table = getattr(self, part)
            _check_table(part, table, self.shape)
            # The values of a table on disk were checked when it was opened; reading it again takes too long.
            if isinstance(table, Tensor):
                if self.binarization == "none":
                    _check_numbers(part, table)
                else:
                    _check_values(part, table, gray=part == "train" and self.binarization == "per-batch")
            for what, rows in (("labels", self.labels), ("conditions", self.condition)):
                if rows is not None and (count := len(getattr(rows, part))) != len(table):
                    raise ShapeError(f"{part} has {count:,} {what} for {len(table):,} images; give one for each")

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(part):,}" for part in (self.train, self.valid, self.test))
        shape = "x".join(map(str, self.shape))
        given = "" if self.condition is None else "conditional, "
        return f"Dataset({self.name!r}, {sizes} images of {shape}, {given}{self.binarization}, {self.source!r})"

    @property
    def pixels(self) -> int:
        """Pixels of one image: the product of ``shape``."""
        return math.prod(self.shape)

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Training images as bits, or as they are if the data are not binarized.

        Gray levels are binarized again at every call: a pixel is 1 with the probability of its gray level.

        Args:
            index: Indices of images `(batch,)`, integers.
            generator: Random numbers for the binarization, on the device of the data. Static data ignore it.

        Returns:
            Images `(batch, pixels)`, float32; in {0, 1} unless the data are not binarized.

        Raises:
            ShapeError: `index` is not a vector of integers.
            SupportError: An index is out of range.
        """
        if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
            came = f"{str(index.dtype)[6:]} of shape {tuple(index.shape)}"
            raise ShapeError(f"index must be a vector of integers, not {came}")
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < len(self.train):
            raise SupportError(
                f"index runs from {int(index.min())} to {int(index.max())}; train has {len(self.train):,} images"
            )
        rows = self.train[index]
        if self.binarization != "per-batch":
            return rows.to(torch.float32)
        uniform = torch.rand(rows.shape, generator=generator, device=rows.device)
        # rand lies in [0, 1): with "<", level 0 is never 1 and level 1 always is.
        return (uniform < rows).to(torch.float32)

    def every_image(self, generator: torch.Generator | None = None) -> Tensor:
        """All images of the three splits as bits, or as they are if the data are not binarized.

        Args:
            generator: Random numbers for the binarization of gray levels.

        Returns:
            Images `(images, pixels)`, float32, in the order of the user's file, or train, valid, test.
        """
        first = self.batch(torch.arange(len(self.train)), generator)
        rows = torch.cat([first, self.valid[:].to(first), self.test[:].to(first)])
        return rows if self.places is None else rows[self.places.argsort()]

    def origin(self, part: str, row: int) -> tuple[int, str]:
        """Where the user's data have a row of a split.

        Args:
            part: Name of the split.
            row: Row of its table.

        Returns:
            The row in the user's array and ""; or the row itself and the split, if the user gave that split.
        """
        sizes = {one: len(getattr(self, one)) for one in PARTS}
        if self.places is None:
            return row, part
        own = self.places.split(list(sizes.values()))[list(sizes).index(part)]
        given = bool((own.diff() == 1).all()) and len(own) > 1  # an order that was not shuffled
        return (row, part) if given else (int(own[row]), "")

    def pixel_mean(self) -> Tensor:
        """Mean of every pixel over the training images, bits or gray levels.

        Returns:
            Means `(pixels,)`, float32.
        """
        return self._pixel_mean.clone()

    @cached_property
    def _pixel_mean(self) -> Tensor:
        """Computed once: a table on disk is read for it."""
        return (pixel_sums(self.train) / len(self.train)).to(torch.float32)

    @property
    def spec(self) -> DataSpec:
        """Shape, mean and training data, for :func:`softspin.model.build`."""
        given = None if self.condition is None else self.condition.train
        return DataSpec(self.shape, self.pixel_mean(), self.train, given, self.class_names)

    def with_shape(self, shape: tuple[int, ...]) -> Dataset:
        """The same images with another shape, such as (28, 28) for rows of 784 pixels.

        Args:
            shape: Shape of an image.

        Returns:
            The data set. Its fingerprint is the same.

        Raises:
            ShapeError: The shape has another number of pixels.
        """
        if math.prod(shape) != self.pixels:
            text = "x".join(map(str, shape))
            raise ShapeError(
                f"a shape of {text} has {math.prod(shape)} pixels; images of {self.name} have {self.pixels}"
            )
        return dataclasses.replace(self, shape=shape)

    def to(self, device: torch.device | str) -> Dataset:
        """Copy the data to a device.

        Args:
            device: The device.

        Returns:
            The data set there.
        """
        moved = {part: getattr(self, part).to(device) for part in PARTS}
        return dataclasses.replace(self, **moved)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the three tables with dtypes and shapes, which identifies the data of a result row."""
        digest = hashlib.sha256()
        for part in PARTS:
            table: Table = getattr(self, part)
            digest.update(f"{part} {str(table.dtype)[6:]} {tuple(table.shape)}\n".encode())
            for some in table_chunks(table):
                digest.update(_bytes(some))
        for given in self.condition or ():
            digest.update(f"condition {str(given.dtype)[6:]} {tuple(given.shape)}\n".encode())
            digest.update(_bytes(given))
        return digest.hexdigest()


def _bytes(table: Tensor) -> memoryview:
    """The values of a table, in an order of bytes that is the same on every platform."""
    rows = table.cpu().contiguous().numpy()
    return rows.astype(rows.dtype.newbyteorder("<"), copy=False).data


def _check_table(part: str, table: Table, shape: tuple[int, ...]) -> None:
    pixels = math.prod(shape)
    if table.ndim != 2 or table.shape[1] != pixels:
        raise ShapeError(
            f"{part} must have shape (images, {pixels}) for images of shape {shape}, not {tuple(table.shape)}"
        )
    if len(table) == 0:
        raise ShapeError(f"{part} has no images")


def _check_values(part: str, table: Tensor, gray: bool) -> None:
    wanted = torch.float32 if gray else torch.uint8
    if table.dtype != wanted:
        kind = "gray levels in [0, 1]" if gray else "bits"
        raise SupportError(f"{part} must be {str(wanted)[6:]} ({kind}), not {str(table.dtype)[6:]}")
    if gray and bool(table.isnan().any()):
        raise SupportError(f"{part} contains NaN; gray levels must lie in [0, 1]")
    low, high = (value.item() for value in table.aminmax())
    if low < 0 or high > 1:
        right = "lie in [0, 1]" if gray else "be 0 or 1"
        raise SupportError(f"values of {part} must {right}; they run from {low:g} to {high:g}")


def _check_numbers(part: str, table: Tensor) -> None:
    if table.dtype not in (torch.uint8, torch.float32):
        raise SupportError(f"{part} must be uint8 or float32, not {str(table.dtype)[6:]}")
    if table.is_floating_point() and not bool(table.isfinite().all()):
        raise SupportError(f"{part} contains NaN or infinity; values must be finite")
