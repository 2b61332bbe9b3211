"""Test the split of float32 numbers into pairs of float16 numbers."""

from __future__ import annotations

import pytest
import torch
from gpu import needs_gpu
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401

from softspin.kernels import support
from softspin.kernels.halves import LOW, halves


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
@pytest.mark.parametrize("way", ["torch", "kernel", pytest.param("compiled", marks=needs_gpu)])
def test_halves_of_a_number(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """22 bits over the range of float16, also if the compiler of a training step merges both halves into one kernel."""
    monkeypatch.setattr(support, "DEVICES", set() if way == "torch" else {DEVICE})
    exponents = torch.arange(-40.0, 16.0, device=DEVICE)[:, None]
    ties = 1 + 2.0**-11 * torch.tensor([1, 3, 1 + 2**-12, 1 - 2**-12], device=DEVICE)
    x = 2**exponents * torch.cat([ties, 1 + torch.rand(1000, generator=torch.Generator().manual_seed(0)).to(DEVICE)])
    x = torch.cat([x, -x])[x.abs().repeat(2, 1).amax(1) < 65504]
    high, low = (torch.compile(halves) if way == "compiled" else halves)(x)
    assert torch.equal(high, x.half())
    found = high.double() + low.double() / LOW
    assert ((found - x.double()).abs() <= (2.0**-22 * x.abs()).clamp_min(2.0**-36)).all()
