"""Conversion and checks of what users pass to distributions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.errors import DeviceError, ShapeError, SupportError
from softspin.numerics import real_tensor
from softspin.smoothing import SoftBits

if TYPE_CHECKING:
    from softspin.distributions.boltzmann import Boltzmann


def same_type(**parameters: Any) -> list[Tensor]:
    """Convert parameters given by a user to tensors of one type, the more precise one.

    Args:
        **parameters: Tensors, arrays, lists or numbers, by name.

    Returns:
        The tensors.

    Raises:
        DeviceError: They are on different devices.
        SupportError: One of them does not consist of real numbers.
    """
    names, tensors = list(parameters), [real_tensor(name, value) for name, value in parameters.items()]
    first = tensors[0]
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.device != first.device:
            raise DeviceError(f"{names[0]} is on {first.device}, {name} on {tensor.device}; move one of them")
    if any(tensor.dtype != first.dtype for tensor in tensors):
        dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        tensors = [tensor.to(dtype) for tensor in tensors]
    return tensors


def sample_size(shape: Any) -> torch.Size:
    """Read the shape of draws: a number of them, or dimensions.

    Args:
        shape: A whole number, or several.

    Returns:
        The dimensions.

    Raises:
        ShapeError: It is something else.

    Example:
        >>> sample_size(3), sample_size((2, 5)), sample_size(())
        (torch.Size([3]), torch.Size([2, 5]), torch.Size([]))
    """
    sizes = (shape,) if isinstance(shape, Integral) else shape
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        raise ShapeError(f"the shape of draws must be a number or a tuple of numbers, not {shape!r}")
    if not all(isinstance(size, Integral) and int(size) >= 0 for size in sizes):
        raise ShapeError(f"the shape of draws must consist of whole numbers from 0 on, not {shape!r}")
    return torch.Size([int(size) for size in sizes])


def check_is_boltzmann(value: object) -> None:
    """Raise a SupportError unless a value is a Boltzmann distribution."""
    if not hasattr(value, "couplings"):
        hint = "; use model.prior()" if type(value).__name__ == "Model" else ""
        raise SupportError(f"expected a BipartiteBoltzmann or a GraphBoltzmann, not {type(value).__name__}{hint}")


def check_soft_bits(what: str, bits: object) -> None:
    """Raise a SupportError, in the name of what takes them, unless a value is soft bits."""
    if not isinstance(bits, SoftBits):
        raise SupportError(
            f"{what} takes SoftBits, not {type(bits).__name__}: zeta alone does not determine the log densities; use "
            "posterior.draw(), posterior.soft_bits(zeta) or smoothing.to_soft_bits(location)"
        )


def check_finite(**parameters: Tensor) -> None:
    """Raise a SupportError that names the first parameter with NaN or infinity."""
    for name, value in parameters.items():
        if not bool(torch.isfinite(value).all()):
            raise SupportError(f"{name} of a Boltzmann machine holds NaN or infinity; every entry must be finite")


def check_shape(what: str, tensor: Tensor, boltzmann: Boltzmann) -> None:
    """Raise a ShapeError unless a tensor has the shape `(*replicas, ..., D)` of states."""
    replicas = boltzmann.batch_shape
    if tensor.shape[-1:] != boltzmann.event_shape:
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; the last dimension must be the {boltzmann.units} units"
        )
    if tensor.shape[: len(replicas)] != replicas or tensor.ndim <= len(replicas):
        raise ShapeError(
            f"{what} of shape {tuple(tensor.shape)}; the first dimensions must be the replicas {tuple(replicas)}"
        )
