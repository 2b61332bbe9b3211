"""The fused mean field against the loop that it stands for: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, boltzmann, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, OverlapRelaxation
from softspin.smoothing import SoftBits

gpu_mean_field = pytest.importorskip("softspin.kernels.gpu_mean_field", reason="Triton is not installed here")


def by_hand(evidence: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
    """Float64: right side first, then left, from 1/2."""
    evidence, bias, weight = evidence.double(), bias.double()[:, None], weight.double()
    n = weight.shape[1]
    left = torch.full_like(evidence[..., :n], 0.5)
    for _ in range(steps):
        right_logits = (evidence + bias)[..., n:] + left @ weight
        left_logits = (evidence + bias)[..., :n] + torch.sigmoid(right_logits) @ weight.mT
        left = torch.sigmoid(left_logits)
    return torch.cat([left_logits, right_logits], dim=-1)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 40), (33, 5), (64, 64), (300, 20)])
@pytest.mark.parametrize("rows", [1, 17])
def test_the_kernel_is_the_loop(n: int, m: int, rows: int) -> None:
    bias, weight = boltzmann(2, n, m, seed=n)
    evidence = (4 * torch.randn(2, rows, n + m, generator=torch.Generator().manual_seed(rows))).to(DEVICE)
    for steps in (1, 4):
        got = gpu_mean_field.launch(evidence, bias, weight, steps, tf32=False)
        torch.testing.assert_close(got.double(), by_hand(evidence, bias, weight, steps), rtol=1e-5, atol=2e-5)


@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
def test_the_relaxation_takes_it_on_a_gpu() -> None:
    bias, weight = boltzmann(3, 40, 24)
    odds = (5 * torch.randn(3, 2, 7, 64, generator=torch.Generator().manual_seed(5))).to(DEVICE)
    bits = SoftBits(torch.sigmoid(odds), torch.zeros_like(odds), odds)
    got = OverlapRelaxation(BipartiteBoltzmann(bias, weight), 5).mean_field(bits)
    want = by_hand(odds.flatten(1, 2), bias, weight, 5).reshape(got.shape)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=2e-5)
