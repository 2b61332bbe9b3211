"""Patches of maps, which make a convolution of stride 2 a matrix product; and their sums, which make its transpose one.

On a GPU, convolutions of a training step are too small for the library of torch: it takes 20 to 40 us for each, and
does not use tensor cores in float32. A product of patches does, with the accuracy of float32.

Maps are `(R, N, *sizes, C)`. The patches of a map of size n along an axis are at ceil(n / 2) places, and have KERNEL
points. Patch o has point k of the kernel at place 2 o + k - KERNEL // 2 of the map, or 0 outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

KERNEL = 5
"""Size of a kernel along each axis. Padding is `KERNEL // 2`, so that a side of n becomes ceil(n / 2)."""


def patches(maps: Tensor) -> Tensor:
    """Collect the patches of maps.

    >>> patches(torch.arange(1.0, 4.0).reshape(1, 1, 3, 1))
    tensor([[[[0., 0., 1., 2., 3.],
              [1., 2., 3., 0., 0.]]]])

    Args:
        maps: Maps, `(R, N, *sizes, C)`.

    Returns:
        Patches, `(R, N, *halved sizes, KERNEL^axes C)`, points first, then channels.
    """
    out: Tensor = _Patches.apply(maps)
    return out


def sum_patches(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Add up patches at their places, the transpose of :func:`patches`.

    >>> sum_patches(torch.ones(1, 1, 2, 5), [3]).flatten()
    tensor([2., 2., 2.])

    Args:
        values: Patches, `(R, N, *halved sizes, KERNEL^axes C)`.
        sizes: Sizes of the maps.

    Returns:
        Maps, `(R, N, *sizes, C)`.
    """
    out: Tensor = _SumPatches.apply(values, tuple(sizes))
    return out


class _Patches(torch.autograd.Function):
    """Its own backward pass, because that of `Tensor.unfold` adds by atomic operations, in no fixed order."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        ctx.sizes = tuple(maps.shape[2:-1])
        return _collect(maps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _add_up(grad, ctx.sizes)


class _SumPatches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return _add_up(values, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _collect(grad), None


def _collect(maps: Tensor) -> Tensor:
    """The patches, by a view of the padded maps."""
    sizes, margin = maps.shape[2:-1], KERNEL // 2
    rest = [(margin, 2 * -(-size // 2) + KERNEL - 2 - margin - size) for size in reversed(sizes)]
    view = pad(maps, (0, 0, *(n for both in rest for n in both)))
    for axis in range(len(sizes)):
        view = view.unfold(2 + axis, KERNEL, 2)
    view = view.movedim(2 + len(sizes), -1)  # (R, N, *halved sizes, *kernel, C)
    return view.reshape(*view.shape[: 2 + len(sizes)], -1)


def _add_up(values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The sums, axis by axis: every place of a map reads the points of the two or three patches that cover it."""
    axes = len(sizes)
    kernel = (KERNEL,) * axes
    out = values.unflatten(-1, (*kernel, -1))  # (R, N, *halved sizes, *kernel, C)
    for axis, size in enumerate(sizes):
        # The axis of patches, and that of their points beside it; both become one of places.
        out = out.movedim(2 + axes, 3 + axis)
        place = torch.arange(size, device=values.device)
        total: Tensor | None = None
        for j in range(KERNEL // 2 + 1):
            patch, point = place // 2 + 1 - j, place % 2 + 2 * j
            covered = (patch >= 0) & (patch < out.shape[2 + axis]) & (point < KERNEL)
            index = (patch.clamp(0, out.shape[2 + axis] - 1), point.clamp_max(KERNEL - 1))
            term = out[(slice(None),) * (2 + axis) + index]
            term = torch.where(covered.view(-1, *(1 for _ in term.shape[3 + axis :])), term, 0.0)
            total = term if total is None else total + term
        assert total is not None
        out = total
    return out
