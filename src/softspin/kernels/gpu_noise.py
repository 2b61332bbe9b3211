"""Uniforms by Philox4x32-10, four to a call, in Triton's language."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def fill(rng_state, out, count, domain, BLOCK: tl.constexpr):
    """Element 4 i + w of a replica is word w of Philox(key; i, counter low, counter high, purpose)."""
    replica = tl.program_id(1)
    key, counter = tl.load(rng_state + 2 * replica), tl.load(rng_state + 2 * replica + 1)
    call = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    zero = call.to(tl.uint32) * 0
    words = tl.philox(
        key, call.to(tl.uint32), zero + (counter & 0xFFFFFFFF).to(tl.uint32), zero + (counter >> 32).to(tl.uint32),
        zero + domain,
    )  # fmt: skip
    out += replica.to(tl.int64) * count
    for w in tl.static_range(4):
        place = 4 * call + w
        u = ((words[w] >> 9) | 0x3F800000).to(tl.float32, bitcast=True) - 0.99999994039535522
        tl.store(out + place, u, mask=place < count)


def launch(rng_state: Tensor, out: Tensor, domain: int) -> None:
    """Fill out `(R, count)` from streams `(R, 2)`."""
    replicas, count = out.shape
    fill[(triton.cdiv(count, BLOCK), replicas)](rng_state.contiguous(), out, count, domain, BLOCK=BLOCK)
