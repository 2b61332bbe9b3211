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
BLOCK = 1024  # words per program


@triton.jit
def fill(keys, images, samples, out, batch, units, count, BLOCK: tl.constexpr):
    """Fill out (R, K, batch, units): a word of SplitMix64 serves two units, with 23 bits each."""
    replica = tl.program_id(1).to(tl.int64)
    words = (units + 1) // 2
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, pair = place // words, place % words
    inside = place < count * words
    image = tl.load(images + row % batch, mask=inside, other=0)
    sample = tl.load(samples + row // batch, mask=inside, other=0)
    x = (tl.load(keys + replica) + 0 * place).to(tl.uint64)
    x += ((image << 40) + (sample << 16) + pair).to(tl.uint64) * GAMMA
    x = (x ^ (x >> SHIFT_1)) * FACTOR_1
    x = (x ^ (x >> SHIFT_2)) * FACTOR_2
    x = x ^ (x >> SHIFT_3)
    out += (replica * count + row) * units + 2 * pair
    for half in tl.static_range(2):
        bits = ((x >> (32 * half)) & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True) >> 9
        u = bits.to(tl.float32) * (2.0**-23) + (0.5 + 2.0**-24)
        tl.store(out + half, u, mask=inside & (2 * pair + half < units))


def launch(keys: Tensor, images: Tensor, samples: Tensor, units: int) -> Tensor:
    """Compute uniforms `(R, K, batch, units)` for keys `(R,)`, images `(batch,)` and samples `(K,)`, all int64."""
    shape = len(keys), len(samples), len(images), units
    out = torch.empty(shape, dtype=torch.float32, device=keys.device)
    count = len(samples) * len(images)
    fill[(triton.cdiv(count * ((units + 1) // 2), BLOCK), len(keys))](
        keys.contiguous(), images.contiguous(), samples.contiguous(), out, len(images), units, count, BLOCK=BLOCK
    )
    return out
