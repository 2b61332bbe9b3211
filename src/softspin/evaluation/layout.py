"""How flattened images of any shape are drawn: as gray or color pictures."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softspin.data.dataset import COLORS, channels_last

_MOST_OBLONG = 2
"""A flat image of h x w pixels is drawn in this form if w is at most so many times h."""


def rectangle(pixels: int) -> tuple[int, int]:
    """The (height, width) closest to a square with exactly so many pixels.

    >>> rectangle(784), rectangle(12), rectangle(7)
    ((28, 28), (3, 4), (1, 7))
    """
    height = next(size for size in range(math.isqrt(pixels), 0, -1) if pixels % size == 0)
    return height, pixels // height


def picture_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels (1 or 3) of the picture of an image of any shape.

    (H, W, 3) and (3, H, W) are colors. Other images of three dimensions and more are drawn one channel below the other.
    A flat image is a square if its size allows it, else a rectangle; where there is no good one, a square with a rest.

    >>> picture_size((28, 28)), picture_size((784,)), picture_size((16, 16, 3)), picture_size((3, 16, 12))
    ((28, 28, 1), (28, 28, 1), (16, 16, 3), (16, 12, 3))
    >>> picture_size((1, 9, 9)), picture_size((2, 4, 5)), picture_size((4, 5, 2)), picture_size((7,))
    ((9, 9, 1), (8, 5, 1), (8, 5, 1), (3, 3, 1))

    Args:
        shape: Shape of an image.

    Returns:
        Height, width, channels.
    """
    shape = _squeezed(shape)
    if len(shape) == 1:
        height, width = rectangle(shape[0])
        if width > _MOST_OBLONG * height:
            height = width = math.ceil(math.sqrt(shape[0]))
        return height, width, 1
    if len(shape) == 3 and COLORS in (shape[2], shape[0]):
        height, width = shape[:2] if shape[2] == COLORS else shape[1:]
        return height, width, COLORS
    if channels_last(shape):
        shape = (shape[2], *shape[:2])
    return math.prod(shape[:-1]), shape[-1], 1


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image of three or more dimensions without those of size 1."""
    return tuple(size for size in shape if size > 1) or (1,) if len(shape) > 2 else shape


def as_pictures(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flattened images `(n, pixels)` as pictures `(n, height, width, channels)`; what is missing in a square is NaN.

    Args:
        images: Images, `(n, pixels)`.
        shape: Shape of an image.

    Returns:
        Pictures, float32, on the CPU.
    """
    height, width, channels = picture_size(shape)
    images = images.detach().to("cpu", torch.float32)
    shape = _squeezed(shape)
    if channels == COLORS and shape[2] != COLORS:
        return images.reshape(-1, *shape).permute(0, 2, 3, 1)
    if channels == 1 and channels_last(shape):
        images = images.reshape(-1, *shape).permute(0, 3, 1, 2).flatten(1)
    missing = height * width * channels - images.shape[1]
    if missing:
        images = torch.cat([images, images.new_full((len(images), missing), torch.nan)], dim=1)
    return images.reshape(-1, height, width, channels)


def planes(shape: tuple[int, ...]) -> tuple[int, int, int, Tensor]:
    """An image of any shape as one black and white picture, with its channels one below the other.

    >>> height, width, channels, order = planes((1, 2, 3))
    >>> height, width, channels, order.tolist()
    (2, 3, 1, [0, 1, 2, 3, 4, 5])
    >>> planes((16, 12, 3))[:3], planes((3, 16, 12))[:3], planes((784,))[:3]
    ((48, 12, 3), (48, 12, 3), (28, 28, 1))

    Args:
        shape: Shape of an image.

    Returns:
        Height, width, channels, and the order of its pixels, `(pixels,)`.
    """
    order = torch.arange(math.prod(shape))
    shape = _squeezed(shape)
    if len(shape) == 1:
        return *rectangle(shape[0]), 1, order
    if channels_last(shape):
        order, shape = order.reshape(shape).permute(2, 0, 1).flatten(), (shape[2], *shape[:2])
    return math.prod(shape[:-1]), shape[-1], math.prod(shape[:-2]), order
