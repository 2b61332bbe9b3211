"""Triton kernels for convolutions of stride 2 and their transposes, as products of halves without stored patches.

Maps are rows of channels, `(R, images, height, width, channels)`. Along each axis, point k of the kernel of output o is
at place 2 o + k - KERNEL // 2 of the input. The channels of a row of the kernel's points are adjacent in the map, and
`spot` counts them: a step of a product covers some of them. Sequences have height 1, and a kernel of one row.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from softspin.kernels import halves
from softspin.kernels.gpu_halves import LOW, UNIT

# Places of a program, and lengths of a step: spots of a convolution, places of a gradient. Not tuned.
ROWS, DEPTH = tl.constexpr(128), tl.constexpr(32)
SPOTS = tl.constexpr(64)  # of a program of the gradient of the weights
PART = tl.constexpr(640)  # places in a part of that gradient
WARPS, STAGES = 4, 3
LARGEST = 64  # channels of a program; more are several programs, or steps


@triton.jit
def add_product(x, x_low, y, y_low, x_at, in_x, y_at, in_y, total, TF32: tl.constexpr):
    """Compute total + x @ y for factors at some places."""
    a, b = tl.load(x + x_at, mask=in_x, other=0.0), tl.load(y + y_at, mask=in_y, other=0.0)
    if TF32:
        return tl.dot(a, b, total)
    part = tl.dot(tl.load(x_low + x_at, mask=in_x, other=0.0), b)
    part = tl.dot(a, tl.load(y_low + y_at, mask=in_y, other=0.0), part)
    # The tensor core truncates its sums, so it accumulates only one step before a rounded addition.
    return total + tl.dot(a, b, part * (1 / LOW))


# One compiled kernel for all lengths: UNIT replaces Triton's specialization on divisibility.
@triton.jit(do_not_specialize=["images", "height", "width", "channels", "columns"])
def convolve(
    x, x_low, weight, weight_low, out, images, height, width, channels, columns,
    TRANSPOSED: tl.constexpr, TF32: tl.constexpr, KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the convolution (R, images, halved height, halved width, columns) of x with the weight.

    weight (R, points, channels, columns), or (R, points, columns, channels) if it is TRANSPOSED. channels and columns
    count UNIT elements.
    """
    channels, columns = channels * UNIT, columns * UNIT
    replica = tl.program_id(2).to(tl.int64)
    high, wide = (height + 1) // 2, (width + 1) // 2
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    y, first = 2 * (row // wide % high) - KERNEL_Y // 2, 2 * (row % wide) - KERNEL_X // 2
    known, image = row < images * high * wide, row // (high * wide)
    x += replica * images * height * width * channels
    x_low += replica * images * height * width * channels
    weight += replica * KERNEL_Y * KERNEL_X * channels * columns
    weight_low += replica * KERNEL_Y * KERNEL_X * channels * columns
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    blocks = tl.cdiv(KERNEL_X * channels, DEPTH)
    for step in range(KERNEL_Y * blocks):
        line, spot = step // blocks, step % blocks * DEPTH + tl.arange(0, DEPTH)
        i, point = y + line, spot // channels
        j, among = first[:, None] + point[None, :], spot < KERNEL_X * channels
        in_x = (known & (i >= 0) & (i < height))[:, None] & among[None, :] & (j >= 0) & (j < width)
        x_at = (((image * height + i) * width + first) * channels)[:, None] + spot[None, :]
        y_at = line * KERNEL_X * channels * columns
        if TRANSPOSED:
            y_at += (point * channels * columns + spot % channels)[:, None] + column[None, :] * channels
        else:
            y_at += spot[:, None] * columns + column[None, :]
        in_y = among[:, None] & (column < columns)[None, :]
        total = add_product(x, x_low, weight, weight_low, x_at, in_x, y_at, in_y, total, TF32)
    out += replica * images * high * wide * columns
    inside = known[:, None] & (column < columns)[None, :]
    tl.store(out + row[:, None] * columns + column[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["images", "height", "width", "channels", "columns"])
def transpose(
    x, x_low, weight, weight_low, out, images, height, width, channels, columns,
    TRANSPOSED: tl.constexpr, TF32: tl.constexpr, KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr,
    COLUMNS: tl.constexpr, PARITIES: tl.constexpr,
):  # fmt: skip
    """Compute the transpose (R, images, height, width, columns) of a convolution, of x (R, images, halved sizes, ...).

    A program computes places of one parity along each axis, which meet the same points of the kernel: along x,
    place 2 a + parity meets point parity + 2 j of input a + KERNEL_X // 4 - j. PARITIES is 2 for sequences, else 4.
    """
    channels, columns = channels * UNIT, columns * UNIT
    replica = (tl.program_id(2) // PARITIES).to(tl.int64)
    odd_x = tl.program_id(2) % 2
    odd_y = tl.program_id(2) % PARITIES // 2
    high, wide = (height + 1) // 2, (width + 1) // 2
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    image, y, across = row // (high * wide), row // wide % high, row % wide
    known = (row < images * high * wide) & (2 * y + odd_y < height) & (2 * across + odd_x < width)
    x += replica * images * high * wide * channels
    x_low += replica * images * high * wide * channels
    weight += replica * KERNEL_Y * KERNEL_X * channels * columns
    weight_low += replica * KERNEL_Y * KERNEL_X * channels * columns
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    blocks = tl.cdiv(channels, DEPTH)
    points_x = (KERNEL_X + 1 - odd_x) // 2
    for step in range((KERNEL_Y + 1 - odd_y) // 2 * points_x * blocks):
        number = step // blocks
        down, right = number // points_x, number % points_x
        i, j = y + KERNEL_Y // 4 - down, across + KERNEL_X // 4 - right
        inside = known & (i >= 0) & (i < high) & (j >= 0) & (j < wide)
        point, channel = (odd_y + 2 * down) * KERNEL_X + odd_x + 2 * right, step % blocks * DEPTH + tl.arange(0, DEPTH)
        x_at = ((image * high + i) * wide + j)[:, None] * channels + channel[None, :]
        y_at = point * channels * columns
        if TRANSPOSED:
            y_at += column[None, :] * channels + channel[:, None]
        else:
            y_at += channel[:, None] * columns + column[None, :]
        in_x = inside[:, None] & (channel < channels)[None, :]
        in_y = (channel < channels)[:, None] & (column < columns)[None, :]
        total = add_product(x, x_low, weight, weight_low, x_at, in_x, y_at, in_y, total, TF32)
    out += replica * images * height * width * columns
    place = (image * height + 2 * y + odd_y) * width + 2 * across + odd_x
    inside = known[:, None] & (column < columns)[None, :]
    tl.store(out + place[:, None] * columns + column[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["images", "height", "width", "channels", "columns"])
def weight_gradient(
    x, x_low, grad, grad_low, out, images, height, width, channels, columns,
    TF32: tl.constexpr, KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute parts (count, R, points, channels, columns) of the gradient of the weight of `convolve`.

    x (R, images, height, width, channels), and grad (R, images, halved sizes, columns) of the result.
    """
    channels, columns = channels * UNIT, columns * UNIT
    replica = tl.program_id(2).to(tl.int64)
    across = tl.cdiv(columns, COLUMNS)
    tiles = tl.cdiv(KERNEL_X * channels, SPOTS) * across
    line, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    spot = tile // across * SPOTS + tl.arange(0, SPOTS)
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    high, wide = (height + 1) // 2, (width + 1) // 2
    rows = images * high * wide
    x += replica * images * height * width * channels
    x_low += replica * images * height * width * channels
    grad += replica * rows * columns
    grad_low += replica * rows * columns
    point, among = spot // channels, spot < KERNEL_X * channels
    total = tl.zeros((SPOTS, COLUMNS), tl.float32)
    start = tl.program_id(1) * PART
    for begin in range(start, tl.minimum(start + PART, rows), DEPTH):
        row = begin + tl.arange(0, DEPTH)
        i, first = 2 * (row // wide % high) + line - KERNEL_Y // 2, 2 * (row % wide) - KERNEL_X // 2
        j = first[None, :] + point[:, None]
        in_x = ((row < rows) & (i >= 0) & (i < height))[None, :] & among[:, None] & (j >= 0) & (j < width)
        x_at = (((row // (high * wide) * height + i) * width + first) * channels)[None, :] + spot[:, None]
        in_grad = (row < rows)[:, None] & (column < columns)[None, :]
        grad_at = row[:, None] * columns + column[None, :]
        total = add_product(x, x_low, grad, grad_low, x_at, in_x, grad_at, in_grad, total, TF32)
    size = KERNEL_X * channels * columns
    out += ((tl.program_id(1) * tl.num_programs(2) + replica) * KERNEL_Y + line) * size
    tl.store(out + spot[:, None] * columns + column[None, :], total, mask=among[:, None] & (column < columns)[None, :])


def tile(length: int) -> int:
    """Channels of a program: a power of 2 that the tensor core supports."""
    return min(LARGEST, max(16, triton.next_power_of_2(length)))


def row_parts(rows: int) -> int:
    """Number of parts of the gradient of the weights. It depends on one replica alone, as its result must."""
    return -(-rows // PART.value)


def launch_convolve(x: list[Tensor], weight: list[Tensor], out: Tensor, kernel: tuple[int, int], tf32: bool) -> None:
    """Fill the convolution `(R, images, high, wide, columns)` of x `(R, images, height, width, channels)`.

    weight is `(R, points, channels, columns)` in any order of its last two dimensions.
    """
    transposed, factors, lengths, constants = _arguments(x, weight, x[0].shape, out.shape[-1], kernel)
    replicas, images, high, wide, columns = out.shape
    grid = (triton.cdiv(images * high * wide, ROWS.value), triton.cdiv(columns, constants["COLUMNS"]), replicas)
    convolve[grid](
        *factors, out, *lengths, TRANSPOSED=transposed, TF32=tf32, **constants, num_warps=WARPS, num_stages=STAGES
    )


def launch_transpose(x: list[Tensor], weight: list[Tensor], out: Tensor, kernel: tuple[int, int], tf32: bool) -> None:
    """Fill the transpose `(R, images, height, width, columns)` of x `(R, images, high, wide, channels)`."""
    sizes = (*out.shape[:-1], x[0].shape[-1])
    transposed, factors, lengths, constants = _arguments(x, weight, sizes, out.shape[-1], kernel)
    (replicas, images, high, wide, _), columns = x[0].shape, out.shape[-1]
    parities = 2 if kernel[0] == 1 else 4
    rows = triton.cdiv(images * high * wide, ROWS.value)
    transpose[rows, triton.cdiv(columns, constants["COLUMNS"]), replicas * parities](
        *factors, out, *lengths, TRANSPOSED=transposed, TF32=tf32, PARITIES=parities, **constants,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip


def launch_weight_gradient(
    x: list[Tensor], grad: list[Tensor], parts: Tensor, kernel: tuple[int, int], tf32: bool
) -> None:
    """Fill parts `(count, R, points, channels, columns)` of the gradient of the weight of a convolution."""
    replicas, images, height, width, channels = x[0].shape
    columns = grad[0].shape[-1]
    tiles = triton.cdiv(kernel[1] * channels, SPOTS.value) * triton.cdiv(columns, tile(columns))
    weight_gradient[kernel[0] * tiles, len(parts), replicas](
        *(one.contiguous() for one in (*x, *grad)), parts, images, height, width,
        channels // halves.UNIT, columns // halves.UNIT,
        TF32=tf32, KERNEL_Y=kernel[0], KERNEL_X=kernel[1], COLUMNS=tile(columns),
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip


def _arguments(
    x: list[Tensor], weight: list[Tensor], sizes: tuple[int, ...], columns: int, kernel: tuple[int, int]
) -> tuple[bool, list[Tensor], list[int], dict[str, int]]:
    """Whether the channels of the weight are contiguous, the factors, the lengths, and the constants of both kernels.

    `sizes` are replicas, images, height and width of the larger maps, and the channels of x.
    """
    transposed = weight[0].stride(-1) != 1
    factors = [one.contiguous() for one in x] + [(one.mT if transposed else one).contiguous() for one in weight]
    _, images, height, width, channels = sizes
    lengths = [images, height, width, channels // halves.UNIT, columns // halves.UNIT]
    constants = {"KERNEL_Y": kernel[0], "KERNEL_X": kernel[1], "COLUMNS": tile(columns)}
    return transposed, factors, lengths, constants
