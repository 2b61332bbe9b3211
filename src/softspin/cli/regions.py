"""Clamped bits and missing pixels as options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from softspin.errors import ConfigError, DataError

HALVES = {"top": (0, 0.5, 0, 1), "bottom": (0.5, 1, 0, 1), "left": (0, 1, 0, 0.5), "right": (0, 1, 0.5, 1)}
"""Named regions: first and last row, first and last column, as shares of the image."""


def read_clamp(text: str | None) -> dict[int, int] | None:
    """Read the values of clamped bits.

    >>> read_clamp("3=1,17=0")
    {3: 1, 17: 0}
    """
    if text is None:
        return None
    values: dict[int, int] = {}
    for item in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*=\s*([01])\s*", item)
        if found is None:
            raise ConfigError(f"--clamp {text} is not possible; give units and values 0 or 1, such as --clamp 3=1,17=0")
        if int(found[1]) in values:
            raise ConfigError(f"--clamp {text} has unit {found[1]} twice; give each unit once")
        values[int(found[1])] = int(found[2])
    return values


def read_region(text: str, shape: tuple[int, ...]) -> Tensor:
    """Read the missing pixels: a .npy file, the name of a half, or a range of rows and columns.

    >>> read_region("0:1,1:3", (2, 3)).int()
    tensor([[0, 1, 1],
            [0, 0, 0]], dtype=torch.int32)

    Args:
        text: The option.
        shape: Shape of an image.

    Returns:
        Booleans in the shape of an image, or what the file holds.
    """
    if text.endswith(".npy"):
        return _from_file(Path(text))
    if len(shape) != 2:
        raise ConfigError(f"--mask {text} needs images of rows and columns, not of shape {shape}; give a .npy file")
    height, width = shape
    if text in HALVES:
        top, bottom, left, right = HALVES[text]
        bounds = [round(top * height), round(bottom * height), round(left * width), round(right * width)]
    else:
        found = re.fullmatch(r"(\d+):(\d+),(\d+):(\d+)", text)
        if found is None:
            raise ConfigError(
                f"--mask {text} is not possible; give {', '.join(HALVES)}, rows and columns such as 0:14,0:28, or a "
                ".npy file that is True where a pixel is missing"
            )
        bounds = [int(number) for number in found.groups()]
    top, bottom, left, right = bounds
    if not (0 <= top < bottom <= height and 0 <= left < right <= width):
        raise ConfigError(f"--mask {text} has no pixels of an image of {height} x {width}, or pixels outside of it")
    mask = torch.zeros(height, width, dtype=torch.bool)
    mask[top:bottom, left:right] = True
    return mask


def _from_file(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.float32))
    except FileNotFoundError:
        raise DataError(f"there is no file {path} for --mask") from None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"--mask {path} cannot be read as a .npy file of numbers: {' '.join(str(error).split())}"
        ) from None


def read_values(text: str | None, class_names: Sequence[str] | None = None) -> list[float] | int | str | None:
    """The condition of an option: a class, which is the text itself if classes have names, or numbers.

    >>> read_values("3"), read_values("10.5,2"), read_values(None)
    (3, [10.5, 2.0], None)
    """
    if text is None or class_names is not None:
        return text
    words = [word.strip() for word in text.split(",")]
    try:
        return (
            int(words[0]) if len(words) == 1 and words[0].lstrip("-").isdecimal() else [float(word) for word in words]
        )
    except ValueError:
        raise ConfigError(f"--condition {text} is not possible; give a class, or numbers such as 10.5,2") from None
