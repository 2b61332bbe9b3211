"""Convolutions of stride 2 and their transposes for R replicas in one call, and the data as maps of channels.

Maps are `(R, N, *sizes, channels)`, where N counts samples and images. Sizes are one number (sequences) or two
(images).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from softspin.kernels.convolution import convolution, is_fused, transposed_convolution
from softspin.nets.layers import initial_weight

KERNEL = 5
"""Size of a kernel along each axis. Padding is `KERNEL // 2`, so that a side of n becomes ceil(n / 2)."""
SMALLEST = 4
"""Sides are halved until they are at most this long."""
FEW_OUTPUTS = 3
"""Largest number of outputs for which :func:`interleaved_transpose` is used. On a CPU, from 32 channels of 14 x 14
points to one output it takes 2.6 ms for 100 images instead of 7.0 (with gradients 6.6 instead of 8.8). With gradients
it is as fast as torch for 3 outputs, and half as fast for 32."""
CONVOLVE: Mapping[int, Callable[..., Tensor]] = {1: functional.conv1d, 2: functional.conv2d}
TRANSPOSE: Mapping[int, Callable[..., Tensor]] = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d}


class Grid(NamedTuple):
    """How the features of data are channels on a grid."""

    channels: int
    sizes: tuple[int, ...]
    """Length of each axis of the grid."""
    channels_last: bool
    """Whether the channels of a point are next to each other in the data."""

    @property
    def points(self) -> int:
        """Number of points of the grid."""
        return math.prod(self.sizes)

    @property
    def features(self) -> int:
        """Number of values of all channels and points."""
        return self.channels * self.points

    def halvings(self) -> list[tuple[int, ...]]:
        """Sizes of the grid and of its halved grids, until no side is longer than 4; at least one is halved.

        >>> Grid(1, (28, 28), False).halvings()
        [(28, 28), (14, 14), (7, 7), (4, 4)]
        >>> Grid(1, (3, 3), False).halvings()
        [(3, 3), (2, 2)]

        Returns:
            The sizes.
        """
        sizes = [self.sizes]
        while len(sizes) == 1 or max(sizes[-1]) > SMALLEST:
            sizes.append(tuple((size + 1) // 2 for size in sizes[-1]))
        return sizes

    def to_maps(self, x: Tensor) -> Tensor:
        """Arrange data as maps.

        Args:
            x: Data, `(R, ..., features)`; the features are one or more blocks of all channels and points.

        Returns:
            Maps, `(R, N, *sizes, channels)`.
        """
        rows = x.flatten(1, -2)
        if self.channels_last:
            return rows.unflatten(-1, (-1, *self.sizes, self.channels)).movedim(2, -2).flatten(-2)
        return rows.unflatten(-1, (-1, *self.sizes)).movedim(2, -1)

    def to_data(self, maps: Tensor, lead: Sequence[int]) -> Tensor:
        """Arrange maps as data, the inverse of :meth:`to_maps`.

        Args:
            maps: Maps, `(R, N, *sizes, channels)`.
            lead: Leading dimensions `(R, ...)` of the data.

        Returns:
            Data, `(R, ..., features)`.
        """
        rows = maps.unflatten(-1, (-1, self.channels)).movedim(-2, 2) if self.channels_last else maps.movedim(-1, 2)
        return rows.reshape(*lead, math.prod(rows.shape[2:]))


def transpose_blocks(x: Tensor, size: int) -> Tensor:
    """Change the order of values in blocks: first the first value of each block, then the second ones.

    >>> transpose_blocks(torch.arange(6), 2)
    tensor([0, 2, 4, 1, 3, 5])

    Args:
        x: Blocks of `size` values, `(..., N)`.
        size: Number of values in a block.

    Returns:
        Blocks of `N / size` values, `(..., N)`.
    """
    return x.unflatten(-1, (-1, size)).transpose(-1, -2).flatten(-2) if 1 < size < x.shape[-1] else x


def interleaved_transpose(grouped: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Compute the transpose of a convolution of stride 2 as a convolution for even and one for odd points of each axis.

    Output 2 m + a is the sum over d of input m + d times weight a + 2 - 2 d, where d is -1, 0 or 1 and weight 5 is 0.
    So even and odd outputs are 2 (sequences) or 4 (images) channels of one convolution of stride 1.

    Args:
        grouped: Maps, `(N, R x inputs, *halved sizes)`.
        weight: Weights of a transpose, `(R, inputs, outputs, *kernel)`.
        sizes: Sizes of the result.

    Returns:
        Maps, `(N, R x outputs, *sizes)`.
    """
    axes, replicas, inputs = len(sizes), *weight.shape[:2]
    pairs = functional.pad(weight, (0, 1) * axes)
    for axis in range(axes):
        at = 3 + 2 * axis
        pairs = pairs.unflatten(at, (3, 2)).flip(at)  # (..., 1 - d, a, ...)
    ends, odd = [3 + 2 * axis for axis in range(axes)], [4 + 2 * axis for axis in range(axes)]
    kernels = pairs.permute(0, 2, *odd, 1, *ends).reshape(-1, inputs, *(3,) * axes)
    both = CONVOLVE[axes](grouped, kernels, padding=1, groups=replicas).unflatten(1, (-1, *(2,) * axes))
    points = [at for axis in range(axes) for at in (2 + axes + axis, 2 + axis)]
    out = both.permute(0, 1, *points)
    for axis, size in enumerate(sizes):
        out = out.flatten(2 + axis, 3 + axis).narrow(2 + axis, 0, size)
    return out


class Convolution(nn.Module):
    """A convolution of stride 2 for R replicas, without bias; or its transpose, which doubles the sizes.

    The weight is that of torch for each replica: `(R, outputs, inputs, *kernel)`, or for a transpose
    `(R, inputs, outputs, *kernel)`. It starts as a truncated normal of variance `scale` / n, where n is the number of
    inputs of an output.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
        sizes: Sizes of the output maps.
        generators: One random generator per replica.
        scale: Variance of the initial weights, times n.
        transposed: Whether it is the transpose.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        sizes: Sequence[int],
        generators: Sequence[torch.Generator],
        scale: float = 2.6,
        *,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        kernel = (KERNEL,) * len(sizes)
        self.sizes, self.transposed = tuple(sizes), transposed
        channels = (inputs, outputs) if transposed else (outputs, inputs)
        # Every other point of the transpose is a zero between two inputs, along each axis.
        count = inputs * math.prod(kernel) / (2 ** len(sizes) if transposed else 1)
        self.weight = initial_weight((*channels, *kernel), scale / count, generators)

    def forward(self, maps: Tensor, *, bounded: bool = False) -> Tensor:
        """Apply the convolution, on a GPU by a kernel.

        Args:
            maps: Maps, `(R, N, *sizes, inputs)`.
            bounded: Whether they are in the range of float16, as activations are.

        Returns:
            Maps, `(R, N, *sizes, outputs)`.
        """
        if is_fused(maps, self.sizes, self.weight.shape[2 if self.transposed else 1]):
            if bounded:
                return self._by_kernel(maps)
            largest = maps.detach().abs().flatten(2).amax(2).amax(1).clamp_min(1e-30)
            largest = largest.view(-1, *(1 for _ in maps.shape[1:]))
            return self._by_kernel(maps / largest) * largest
        axes, replicas = len(self.sizes), len(self.weight)
        grouped = maps.movedim(-1, 2).transpose(0, 1).flatten(1, 2)  # a replica is a group of channels
        if axes == 2:  # otherwise compiled code for a CPU transposes the maps before and after each convolution
            grouped = grouped.contiguous(memory_format=torch.channels_last)
        options = {"stride": 2, "padding": KERNEL // 2, "groups": replicas}
        if self.transposed and self.weight.shape[2] <= FEW_OUTPUTS:
            out = interleaved_transpose(grouped, self.weight, self.sizes)
        elif self.transposed:
            rest = [size - (2 * before - 1) for size, before in zip(self.sizes, maps.shape[2:-1], strict=True)]
            out = TRANSPOSE[axes](grouped, self.weight.flatten(0, 1), output_padding=rest, **options)
        else:
            out = CONVOLVE[axes](grouped, self.weight.flatten(0, 1), **options)
        return out.unflatten(1, (replicas, -1)).transpose(0, 1).movedim(2, -1)

    def _by_kernel(self, maps: Tensor) -> Tensor:
        if self.transposed:
            return transposed_convolution(maps, self.weight.movedim((1, 2), (-2, -1)), self.sizes)
        return convolution(maps, self.weight.movedim((2, 1), (-2, -1)))
