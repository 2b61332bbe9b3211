"""Float32 numbers as pairs of float16 numbers, and the products of such pairs on a GPU.

x = high + low / LOW, with 22 bits of mantissa. Three products of halves have the accuracy of float32, at twice the
speed of TF32. Factors must be in the range of float16, up to 65504.
"""

from __future__ import annotations

import torch
from torch import Tensor, library
from torch.nn.functional import pad

from softspin.kernels.matmul import tf32_allowed
from softspin.kernels.support import has_kernels

LOW, UNIT = 2048.0, 8
"""Factor of the low halves, and the number of float16 numbers in a load of 16 bytes."""


def halves(x: Tensor) -> list[Tensor]:
    """Split float32 numbers into two of float16: x = high + low / LOW, with an error of 2^-22."""
    if has_kernels(x) and not torch.compiler.is_compiling():
        from softspin.kernels import gpu_halves

        return gpu_halves.launch_split(x)
    # This is x.half().float(), which torch.compile would replace by x. Below 2^-14, float16 has a fixed step of 2^-24.
    bits = x.view(torch.int32)
    high = ((bits + 0xFFF + (bits >> 13 & 1)) & -0x2000).view(torch.float32)
    high = torch.where(x.abs() < 2**-14, (x + 0.75) - 0.75, high)
    return [x.half(), ((x - high) * LOW).half()]


def padded(x: Tensor, value: float = 0.0) -> Tensor:
    """Pad the last dimension to a multiple of UNIT."""
    missing = -x.shape[-1] % UNIT
    return pad(x, (0, missing), value=value) if missing else x


def padded_matrix(x: Tensor) -> Tensor:
    """Pad the last two dimensions to multiples of UNIT."""
    return padded(padded(x).mT).mT


@library.custom_op("softspin::halves_layer", mutates_args=())
def layer(x: list[Tensor], weight: list[Tensor], bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute y = x @ weight + bias, and its column sums and squared deviations in blocks of rows.

    x `(R, rows, n)` and weight `(R, n, m)` are halves; row i gets row i mod b of bias `(R, b, m)`. n and m are
    multiples of UNIT.

    Returns:
        y `(R, rows, m)`; for each block of `row_blocks(rows)`, the sum of its rows and the sum of their squared
        deviations from the mean of the block, `(blocks, R, m)` each.
    """
    from softspin.kernels import gpu_halves

    return gpu_halves.launch_layer(x, weight, bias, tf32_allowed())


@library.custom_op("softspin::halves_gradients", mutates_args=())
def gradients(grad: list[Tensor], weight: list[Tensor], x: list[Tensor], factor: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients of a product x @ weight: factor * grad @ weight.mT, and parts of x.mT @ grad.

    grad `(R, rows, m)`, weight `(R, n, m)` and x `(R, rows, k)` are halves, factor `(R, rows)` or `(R, 1)`. All
    lengths but rows are multiples of UNIT.

    Returns:
        The first `(R, rows, n)`, and parts `(count, R, k, m)` whose sum is the second.
    """
    from softspin.kernels import gpu_halves

    return gpu_halves.launch_gradients(grad, weight, x, factor, tf32_allowed())


@layer.register_fake
def _(x: list[Tensor], weight: list[Tensor], bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from softspin.kernels import gpu_halves

    (replicas, rows, _), columns = x[0].shape, weight[0].shape[-1]
    sums = bias.new_empty(gpu_halves.row_blocks(int(rows)), replicas, columns)
    return bias.new_empty(replicas, rows, columns), sums, torch.empty_like(sums)


@gradients.register_fake
def _(grad: list[Tensor], weight: list[Tensor], x: list[Tensor], factor: Tensor) -> tuple[Tensor, Tensor]:
    from softspin.kernels import gpu_halves

    replicas, rows, columns = grad[0].shape
    parts = factor.new_empty(gpu_halves.row_parts(int(rows)), replicas, x[0].shape[2], columns)
    return factor.new_empty(replicas, rows, weight[0].shape[1]), parts
