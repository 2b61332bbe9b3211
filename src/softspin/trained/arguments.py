"""Arguments of the methods of a model, as users give them, and results in the form that users want."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from softspin.errors import RunError, ShapeError, SupportError
from softspin.numerics import real_tensor
from softspin.samplers import LogZ

R = TypeVar("R", bound=tuple[Any, ...])


def possible_path(path: str | os.PathLike[str]) -> Path:
    """The path of a model, or a name that may be one.

    Args:
        path: A path, which need not exist.

    Returns:
        The path.

    Raises:
        RunError: It cannot be a path: its type is wrong, it is too long, or it may not be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise RunError(f"the path of a model must be a string or a Path, not {type(path).__name__}")
    found = Path(path)
    try:
        found.exists()
    except OSError as error:
        text = str(found)
        raise RunError(f"'{text if len(text) < 60 else text[:57] + '...'}' cannot be read: {error.strerror}") from None
    return found


def read_seed(seed: int | None) -> int:
    """A seed, or a new one from torch's global generator if None.

    Args:
        seed: The seed, or None.

    Returns:
        A non-negative integer.

    Raises:
        SupportError: The seed is not a whole number from 0 on.
    """
    if seed is None:
        return int(torch.randint(2**31, ()))
    if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise SupportError(
            f"seed = {seed!r}; it must be a whole number from 0 to 2**63 - 1, or None for a new one each time"
        )
    return int(seed)


def single(result: R) -> R:
    """The result of the only replica: `(1,)` tensors become floats, `(1, ...)` tensors lose that dimension.

    >>> single(LogZ(*[torch.ones(1)] * 5, method="exact", kind="exact")).value
    1.0
    """

    def read(value: Any) -> Any:
        if isinstance(value, LogZ):
            return single(value)
        if isinstance(value, Tensor):
            return value.item() if value.ndim == 1 else value[0]
        return value

    return type(result)(*map(read, result))


def read_log_z(log_z: Any, replicas: int) -> LogZ:
    """An estimate of log Z with one value per replica.

    Args:
        log_z: The estimate; that of one replica may be without a replica dimension.
        replicas: Number of replicas.

    Returns:
        The estimate, tensors `(R,)` in float64.

    Raises:
        SupportError: It is not a LogZ.
        ShapeError: It does not have one value per replica.
    """
    if not isinstance(log_z, LogZ):
        raise SupportError(
            "log_z must be a LogZ, such as model.log_z() or softspin.samplers.log_z.exact(model.prior()), not "
            f"{type(log_z).__name__}"
        )
    tensors = [torch.as_tensor(value, dtype=torch.float64) for value in log_z[:5]]
    shape = tuple(tensors[0].shape)
    if shape != (replicas,) and not (shape == () and replicas == 1):
        raise ShapeError(
            f"log_z of shape {shape} for {replicas} replicas; give one for each, such as model.log_z(), or take one "
            "replica of the model by model.only(replica)"
        )
    flagged = None if log_z.flagged is None else torch.as_tensor(log_z.flagged).reshape(replicas)
    return LogZ._make((*(value.reshape(replicas) for value in tensors), log_z.method, log_z.kind, flagged))


def read_mask(mask: Any, images: int, shape: Sequence[int]) -> Tensor:
    """The missing pixels of every image.

    Args:
        mask: True (or 1) where a pixel is missing: one mask for all images, or one for each, flat or of their shape.
        images: Number of images.
        shape: Shape of an image.

    Returns:
        Booleans, `(images, pixels)`.

    Raises:
        ShapeError: The mask has another shape.
        SupportError: It has values other than 0 and 1.
    """
    numbers = real_tensor("the mask", mask)
    pixels = torch.Size(shape).numel()
    one, many = ((*shape,), (pixels,)), ((images, *shape), (images, pixels))
    if tuple(numbers.shape) not in (*one, *many):
        allowed = " or ".join(str(each) for each in dict.fromkeys((one[0], many[0], many[1])))
        raise ShapeError(f"the mask has shape {tuple(numbers.shape)}; expected {allowed}")
    if not bool(((numbers == 0) | (numbers == 1)).all()):
        raise SupportError("the mask has values other than 0 and 1; it must be True (or 1) where a pixel is missing")
    missing = numbers.bool()
    return (missing.reshape(1, pixels) if tuple(missing.shape) in one else missing.reshape(images, pixels)).expand(
        images, pixels
    )
