"""Images for a trained model: any form that training accepts, with the number of pixels that the model has."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.data.columns import check_columns
from softspin.data.inputs import as_array
from softspin.data.notices import notice
from softspin.data.seeded import TEST, binarize_once
from softspin.data.values import converted, find_levels
from softspin.errors import ShapeError, SupportError

TRAINING = "the training data"
"""Where the columns of a model come from, for messages."""


def as_images(
    x: Any,
    shape: tuple[int, ...],
    check: Callable[[Tensor], None] | None = None,
    *,
    binarize: bool = True,
    columns: Sequence[str] | None = None,
) -> Tensor:
    """Convert images to rows of bits, as the held-out images of a data set are.

    Gray levels are binarized once, with a fixed seed: a pixel is 1 with the probability of its gray level. A warning
    says so. Bytes from 0 to 255 are divided by 255 first.

    >>> as_images([[0, 1], [1, 1]], (2,))
    tensor([[0, 1],
            [1, 1]], dtype=torch.uint8)

    Args:
        x: Images `(N, *shape)` or `(N, pixels)`: a tensor, an array, a nested list, a data set or a data loader of
            torch.
        shape: Shape of the model's images.
        check: Raises SupportError for data outside the support of a likelihood. Gray levels that it accepts stay gray.
        binarize: Whether the data are binary; if not, any finite values stay as they are.
        columns: Names of the columns that the model was trained on; a table with names must have the same.

    Returns:
        Bits `(N, pixels)`, uint8; or gray levels, float32; or values as they are, uint8 for bytes, else float32.

    Raises:
        DataError: `x` is something else, or a table with other columns.
        ShapeError: The images have another shape, or there are none.
        SupportError: Values are outside [0, 1], or not numbers.
    """
    found = as_array("images", x)
    array = found.array
    check_shape(array.shape, shape)
    check_columns("the data", found.columns, columns, TRAINING)
    levels = find_levels({"images": array}, binarize)
    values = converted(array.reshape(len(array), -1), levels, "images")
    if levels.raw or levels.binary:
        return torch.from_numpy(values)
    if check is not None:
        with contextlib.suppress(SupportError):
            check(torch.from_numpy(values))
            return torch.from_numpy(values)
    notice(
        "the images have gray levels; they were binarized with a fixed seed, each pixel 1 with the probability of its "
        "gray level, as held-out images of training are"
    )
    return torch.from_numpy(binarize_once(values, TEST))


def check_shape(found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise unless an array of a shape holds images of the model's shape, or flat ones."""
    pixels = math.prod(shape)
    expected = f"expected (N, {pixels}) with N >= 1"
    if len(shape) > 1:
        expected = f"expected (N, {', '.join(map(str, shape))}) or (N, {pixels}) with N >= 1"
    if math.prod(found[1:]) != pixels or len(found) < 2 or not found[0]:
        hint = "; add a dimension to a single image: x[None]" if math.prod(found) == pixels else ""
        raise ShapeError(f"images have shape {found}; {expected}{hint}")
    # Axes of size 1 change nothing. Another order of the axes, such as channels first, would mix up the pixels.
    image, own = ([size for size in one if size > 1] for one in (found[1:], shape))
    if min(len(image), len(own)) > 1 and image != own:
        raise ShapeError(f"images have shape {found}; {expected}; permute their dimensions")
