"""Triton kernel for uniforms addressed by position (:func:`softspin.evaluation.draws.uniforms`)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softspin.random import splitmix

GAMMA = tl.constexpr(splitmix.GAMMA)
FACTOR_1, FACTOR_2 = tl.constexpr(splitmix.ROUNDS[0][1]), tl.constexpr(splitmix.ROUNDS[1][1])
SHIFT_1, SHIFT_2 = tl.constexpr(splitmix.ROUNDS[0][0]), tl.constexpr(splitmix.ROUNDS[1][0])
SHIFT_3 = tl.constexpr(splitmix.LAST_SHIFT)
ROWS, WORDS = tl.constexpr(8), tl.constexpr(128)  # images and samples, and words of each, per program


@triton.jit
def fill(keys, images, samples, out, batch, units, count):
    """Fill out (R, K, batch, units), of `count` rows per replica: a word serves two units, with 23 bits each."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    pair = tl.program_id(2) * WORDS + tl.arange(0, WORDS)[None, :]
    image = tl.load(images + row % batch, mask=row < count, other=0)
    sample = tl.load(samples + row // batch, mask=row < count, other=0)
    position = ((image << 40) + (sample << 16))[:, None] + pair
    x = tl.load(keys + replica).to(tl.uint64) + position.to(tl.uint64) * GAMMA
    x = (x ^ (x >> SHIFT_1)) * FACTOR_1
    x = (x ^ (x >> SHIFT_2)) * FACTOR_2
    x = x ^ (x >> SHIFT_3)
    inside = (row < count)[:, None]
    out += (replica * count + row[:, None]) * units + 2 * pair
    for half in tl.static_range(2):
        bits = ((x >> (32 * half)) & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True) >> 9
        u = bits.to(tl.float32) * (2.0**-23) + (0.5 + 2.0**-24)
        tl.store(out + half, u, mask=inside & (2 * pair + half < units))


def launch(keys: Tensor, images: Tensor, samples: Tensor, units: int) -> Tensor:
    """Compute uniforms `(R, K, batch, units)` for keys `(R,)`, images `(batch,)` and samples `(K,)`, all int64."""
    shape = len(keys), len(samples), len(images), units
    out = torch.empty(shape, dtype=torch.float32, device=keys.device)
    count = len(samples) * len(images)
    fill[(triton.cdiv(count, ROWS.value), len(keys), triton.cdiv((units + 1) // 2, WORDS.value))](
        keys.contiguous(), images.contiguous(), samples.contiguous(), out, len(images), units, count
    )
    return out
