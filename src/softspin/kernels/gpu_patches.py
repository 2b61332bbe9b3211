"""Triton kernels for the patches of maps with few channels: `unfold` copies patches from maps, `fold` is its transpose.

Maps are `(R, images, height, width, channels)`. A patch has the values of all points of the kernel for one place of the
halved maps: along each axis, point k of place o is at place 2 o + k - KERNEL // 2 of the maps, or outside and 0. The
patches of a replica are rows, `(R, images * high * wide, length)`, in the order of the points and then the channels,
and are padded with zeros.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels.gpu_halves import LOW

ROWS, BLOCK = tl.constexpr(64), tl.constexpr(512)  # patches of a program of `unfold`, values of one of `fold`


@triton.jit(do_not_specialize=["images", "height", "width"])
def unfold(
    maps, high_half, low_half, images, height, width, LENGTH: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
    KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr,
):  # fmt: skip
    """Compute the halves (R, images * high * wide, LENGTH) of the patches. TILE is a power of 2 from LENGTH on."""
    replica = tl.program_id(1).to(tl.int64)
    high, wide = (height + 1) // 2, (width + 1) // 2
    rows = images * high * wide
    row, spot = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, TILE)
    point, channel = spot // CHANNELS, spot % CHANNELS
    i = (2 * (row // wide % high) - KERNEL_Y // 2)[:, None] + (point // KERNEL_X)[None, :]
    j = (2 * (row % wide) - KERNEL_X // 2)[:, None] + (point % KERNEL_X)[None, :]
    inside = (row < rows)[:, None] & (point < KERNEL_Y * KERNEL_X)[None, :]
    inside &= (i >= 0) & (i < height) & (j >= 0) & (j < width)
    place = (((row // (high * wide))[:, None] * height + i) * width + j) * CHANNELS + channel[None, :]
    value = tl.load(maps + replica * images * height * width * CHANNELS + place, mask=inside, other=0.0)
    rounded = value.to(tl.float16)
    out = replica * rows * LENGTH + row[:, None] * LENGTH + spot[None, :]
    stored = (row < rows)[:, None] & (spot < LENGTH)[None, :]
    tl.store(high_half + out, rounded, mask=stored)
    tl.store(low_half + out, ((value - rounded.to(tl.float32)) * LOW).to(tl.float16), mask=stored)


@triton.jit(do_not_specialize=["images", "height", "width"])
def fold(
    patches, maps, images, height, width, LENGTH: tl.constexpr, CHANNELS: tl.constexpr, KERNEL_Y: tl.constexpr,
    KERNEL_X: tl.constexpr,
):  # fmt: skip
    """Compute maps whose values are the sums of all entries of patches (R, ..., LENGTH) that `unfold` copies there."""
    replica = tl.program_id(1).to(tl.int64)
    high, wide = (height + 1) // 2, (width + 1) // 2
    size = images * height * width * CHANNELS
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, x = place % CHANNELS, place // CHANNELS % width + KERNEL_X // 2
    y, image = place // (CHANNELS * width) % height + KERNEL_Y // 2, place // (CHANNELS * width * height)
    patches += replica * images * high * wide * LENGTH
    total = tl.zeros((BLOCK,), tl.float32)
    # Only points of the parity of a place meet it.
    for down in tl.static_range((KERNEL_Y + 1) // 2):
        for right in tl.static_range((KERNEL_X + 1) // 2):
            line, point = y % 2 + 2 * down, x % 2 + 2 * right
            i, j = (y - line) // 2, (x - point) // 2
            inside = (place < size) & (line < KERNEL_Y) & (point < KERNEL_X) & (y >= line) & (x >= point)
            inside &= (i < high) & (j < wide)
            at = ((image * high + i) * wide + j) * LENGTH + (line * KERNEL_X + point) * CHANNELS + channel
            total += tl.load(patches + at, mask=inside, other=0.0)
    tl.store(maps + replica * size + place, total, mask=place < size)


def launch_unfold(maps: Tensor, kernel: tuple[int, int], length: int) -> list[Tensor]:
    """Compute the halves of the patches `(R, images * high * wide, length)`."""
    replicas, images, height, width, channels = maps.shape
    rows = images * ((height + 1) // 2) * ((width + 1) // 2)
    halves = [maps.new_empty(replicas, rows, length, dtype=torch.float16) for _ in range(2)]
    unfold[(triton.cdiv(rows, ROWS.value), replicas)](
        maps.contiguous(), *halves, images, height, width, LENGTH=length, TILE=triton.next_power_of_2(length),
        CHANNELS=channels, KERNEL_Y=kernel[0], KERNEL_X=kernel[1],
    )  # fmt: skip
    return halves


def launch_fold(patches: Tensor, shape: tuple[int, ...], kernel: tuple[int, int]) -> Tensor:
    """Compute maps of this shape from patches `(R, images * high * wide, length)`."""
    replicas, images, height, width, channels = shape
    maps = patches.new_empty(shape)
    fold[(triton.cdiv(images * height * width * channels, BLOCK.value), replicas)](
        patches.contiguous(), maps, images, height, width, LENGTH=patches.shape[-1], CHANNELS=channels,
        KERNEL_Y=kernel[0], KERNEL_X=kernel[1],
    )  # fmt: skip
    return maps
