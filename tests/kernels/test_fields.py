"""Compare the fused fields of an RBM with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, bits, boltzmann, pytestmark  # noqa: F401

from softspin.distributions import BipartiteBoltzmann
from softspin.kernels import hidden, support
from softspin.kernels.fields import coupling_fields

pytest.importorskip("softspin.kernels.gpu_matmul", reason="Triton is not installed")


@pytest.mark.parametrize(
    ("n", "m"),
    [(1, 1), (3, 40), (33, 5), (36, 40), pytest.param(100, 100, marks=pytest.mark.slow)],  # slow to interpret
)
@pytest.mark.parametrize(("rows", "many"), [(1, False), (34, False), (34, True)])
def test_fields_and_gradients(n: int, m: int, rows: int, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a float32 product is about 1e-7 of the norms of its factors."""
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", rows if many else rows + 1)
    _, weight = boltzmann(3, n, m, seed=n)
    generator = torch.Generator().manual_seed(m)
    z = bits(3, rows, n + m) + 0.2 * torch.randn(3, rows, n + m, generator=generator).to(DEVICE)
    back = torch.randn(z.shape, generator=generator).to(DEVICE)
    inputs = weight.requires_grad_(), z.requires_grad_()
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = BipartiteBoltzmann(torch.zeros(3, n + m, dtype=torch.float64).to(DEVICE), wide[0]).field(wide[1])
    wanted = torch.autograd.grad(exact, wide, back.double())
    fields = coupling_fields(z, weight)
    found = torch.autograd.grad(fields, inputs, back)
    for got, right in zip((fields, *found), (exact, *wanted), strict=True):
        assert torch.allclose(got.double(), right, rtol=1e-5, atol=2e-5)
