"""Compare the fused fields of an RBM with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, bits, boltzmann, pytestmark  # noqa: F401

from softspin.distributions import BipartiteBoltzmann, bipartite

pytest.importorskip("softspin.kernels.gpu_matmul", reason="Triton is not installed")


@pytest.mark.parametrize(
    ("n", "m"),
    [(1, 1), (3, 40), (33, 5), (36, 40), pytest.param(100, 100, marks=pytest.mark.slow)],  # slow to interpret
)
@pytest.mark.parametrize("batch", [(1,), (2, 17)])
def test_fields_and_gradients(n: int, m: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a float32 product is about 1e-7 of the norms of its factors."""
    bias, weight = boltzmann(3, n, m, seed=n)
    fixed = bits(3, *batch, n + m)
    z = fixed + 0.2 * torch.randn(fixed.shape, generator=torch.Generator().manual_seed(m)).to(DEVICE)
    back = [torch.randn(fixed.shape, generator=torch.Generator().manual_seed(s)).to(DEVICE) for s in range(2)]
    inputs = bias.requires_grad_(), weight.requires_grad_(), z.requires_grad_()
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = BipartiteBoltzmann(wide[0], wide[1]).field_pair(wide[2], fixed.double())
    wanted = torch.autograd.grad(exact, wide, [g.double() for g in back])
    monkeypatch.setattr(bipartite, "latency_bound", lambda rows, weight: True)
    pair = BipartiteBoltzmann(bias, weight).field_pair(z, fixed)
    found = torch.autograd.grad(pair, inputs, back)
    for got, right in zip((*pair, *found), (*exact, *wanted), strict=True):
        assert torch.allclose(got.double(), right, rtol=1e-5, atol=2e-5)


def test_other_products_are_those_of_torch() -> None:
    """Without replicas, and in float64, the fields are the same bits as two calls."""
    bias, weight = (x[0].double() for x in boltzmann(1, 4, 3))
    z = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    fixed = bits(5, 7).double()
    boltz = BipartiteBoltzmann(bias, weight)
    assert all(map(torch.equal, boltz.field_pair(z, fixed), (boltz.field(z), boltz.field(fixed))))
