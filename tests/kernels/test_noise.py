"""Uniforms on the device of a stream: NumPy's on the CPU, the kernel's on a GPU or under Triton's interpreter."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernels.test_gpu import DEVICE, philox, pytestmark  # noqa: F401
from torch import Tensor

from softspin.kernels.noise import noise
from softspin.random import init_rng_state
from truth import ks_distance, ks_limit

gpu_noise = pytest.importorskip("softspin.kernels.gpu_noise", reason="Triton is not installed here")


def filled(rng_state: Tensor, count: int, domain: int) -> Tensor:
    out = torch.full((len(rng_state), count), torch.nan, device=DEVICE)
    gpu_noise.launch(rng_state.to(DEVICE), out, domain)
    return out.cpu()


@pytest.mark.parametrize("count", [1, 3, 4, 7, 1023, 1024, 1025, 2050])
def test_the_kernel_is_philox_as_documented(count: int) -> None:
    """Element 4 i + w is word w of Philox4x32-10 at (i, counter, purpose), its top 23 bits and a half."""
    rng_state = torch.cat([init_rng_state(3, 2), torch.tensor([[-5, 2**32 + 7], [2**62 + 1, 2**40 - 1]])])
    drawn = filled(rng_state, count, domain=101)
    call = torch.arange((count + 3) // 4)
    for row, (key, counter) in enumerate(rng_state.tolist()):
        place = [torch.full_like(call, word) for word in (counter & 0xFFFFFFFF, counter >> 32, 101)]
        words = torch.stack(philox(key, [call, *place], rounds=10), dim=-1).flatten()[:count]
        assert torch.equal(drawn[row], ((words >> 9).double() + 0.5).mul(2.0**-23).float())


def test_the_kernel_writes_its_own_and_no_more() -> None:
    out = torch.full((3, 40), 9.0, device=DEVICE)
    gpu_noise.launch(init_rng_state(0, 2).to(DEVICE), out[:2], 1)
    assert (out[:2] < 1).all()
    assert (out[2] == 9).all()


def test_the_ends_are_never_reached() -> None:
    """Words of no bits and of all bits, through the formula that the test above pins."""
    for word in (0, 0xFFFFFFFF):
        u = torch.tensor(((word >> 9) + 0.5) * 2.0**-23, dtype=torch.float32)
        assert 0 < u < 1
    drawn = torch.cat([filled(init_rng_state(1, 1), 20_000, 5), noise(init_rng_state(1, 1), (20_000,), 5)])
    assert ((drawn > 0) & (drawn < 1)).all()
    # Once in a million a right generator fails this.
    assert ks_distance(drawn[0].double()) < ks_limit(20_000)
    assert ks_distance(drawn[1].double()) < ks_limit(20_000)


@pytest.mark.parametrize("draw", [filled, lambda rng_state, count, domain: noise(rng_state, (count,), domain)])
def test_streams_differ_by_replica_counter_and_purpose(draw: object) -> None:
    assert callable(draw)
    rng_state = init_rng_state(0, 2)
    later = rng_state + torch.tensor([0, 1])
    much_later = rng_state + torch.tensor([0, 2**32])
    rows = [*draw(rng_state, 64, 101), *draw(later, 64, 101), *draw(much_later, 64, 101), *draw(rng_state, 64, 102)]
    for one, other in itertools.combinations(rows, 2):
        assert len(set(one.tolist()) & set(other.tolist())) <= 1
    assert torch.equal(draw(rng_state, 64, 101)[1], draw(rng_state[1:], 64, 101)[0]), "alone as among others"


def test_shapes() -> None:
    assert noise(init_rng_state(0, 3), (2, 5), 1).shape == (3, 2, 5)
    assert noise(init_rng_state(0, 3), (2, 5), 1).dtype == torch.float32
