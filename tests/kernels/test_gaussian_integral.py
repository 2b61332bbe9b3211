"""Compare the exponents of a Gaussian-integral relaxation with float64: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, bits, boltzmann, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, GaussianIntegralRelaxation
from softspin.kernels import hidden, support
from softspin.kernels.gaussian_integral import exponents
from softspin.smoothing import SoftBits

pytest.importorskip("softspin.kernels.gpu_halves", reason="Triton is not installed")

REPLICAS, SAMPLES, BATCH = 3, 5, 7
SIZES = [(1, 1), (3, 40), (33, 5)]


def inputs(n: int, m: int, row_biases: bool) -> tuple[list[Tensor], Tensor]:
    """zeta, weight, bias and beta, and the gradient of the result, with rows of very different size."""
    g = torch.Generator().manual_seed(n)
    bias, weight = boltzmann(REPLICAS, n, m, seed=n)
    bias = bias[:, None, None].expand(-1, 1, BATCH if row_biases else 1, -1).clone()
    shape = REPLICAS, SAMPLES, BATCH, n + m
    zeta = bits(*shape) + 0.3 * torch.randn(shape, generator=g).to(DEVICE)
    beta = torch.tensor([10.0, 40.0, 100.0]).reshape(-1, 1, 1, 1).to(DEVICE)
    back = torch.randn(shape[:-1], generator=g) * torch.logspace(-6, 6, REPLICAS)[:, None, None]
    back[:, 0] *= 1e-6
    return [x.requires_grad_() for x in (zeta, weight, bias, beta)], back.to(DEVICE)


def expected(zeta: Tensor, weight: Tensor, bias: Tensor, beta: Tensor) -> Tensor:
    """By the relaxation itself, which has one more product on a CPU, of densities without a base."""
    n = zeta.shape[-1]
    boltzmann = BipartiteBoltzmann(torch.zeros(REPLICAS, n, dtype=zeta.dtype), weight)
    each = boltzmann.field(zeta)
    dense = GaussianIntegralRelaxation(BipartiteBoltzmann(bias[:, 0, 0], weight), beta[:, 0, 0, 0], validate=False)
    if bias.shape[2] == 1:
        zeros = torch.zeros_like(zeta)
        return dense._exponents(SoftBits(zeta, zeros, zeros)) + 0.9189385332046727 * n
    u = bias + each + beta * (zeta - 0.5)
    return (torch.nn.functional.softplus(u, threshold=500) - 0.5 * zeta * (each + beta * zeta)).sum(-1)


@pytest.mark.parametrize("row_biases", [False, True])
@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_exponents_and_gradients(n: int, m: int, many: bool, row_biases: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a float32 product is about 1e-7 of the norms of its factors; gradients are compared by replica."""
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", SAMPLES * BATCH if many else SAMPLES * BATCH + 1)
    given, back = inputs(n, m, row_biases)
    wide = [x.detach().cpu().double().requires_grad_() for x in given]
    exact, found = expected(*wide), exponents(*given)
    assert torch.allclose(found.detach().cpu().double(), exact, rtol=2e-6, atol=2e-4)
    wanted = torch.autograd.grad(exact, wide, back.cpu().double())
    for got, right in zip(torch.autograd.grad(found, given, back), wanted, strict=True):
        error = (got.cpu() - right).abs().flatten(1).amax(1)
        assert (error < 5e-6 * right.abs().flatten(1).amax(1)).all()
    rows = torch.autograd.grad(exponents(*given), given[0], back)[0].cpu()  # of zeta, each row relative to its gradient
    assert ((rows - wanted[0]).abs().amax(-1) < 1e-3 * back.cpu().abs()).all()


@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")  # Dynamo's own
@pytest.mark.parametrize("trained", [True, False])
def test_compiled_as_one_graph(trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", SAMPLES * BATCH)
    (zeta, weight, bias, beta), back = inputs(3, 40, False)
    given = zeta, weight.detach().requires_grad_(trained), bias.detach().requires_grad_(trained), beta.detach()
    compiled = torch.compile(exponents, fullgraph=True, backend="aot_eager" if INTERPRETED else "inductor")
    one, other = exponents(*given), compiled(*given)
    torch.testing.assert_close(one, other)
    leaves = [x for x in given if x.requires_grad]
    for got, right in zip(*(torch.autograd.grad(out, leaves, back) for out in (other, one)), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))


def test_a_replica_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", SAMPLES * BATCH)
    given, back = inputs(3, 40, False)
    alone = [x[1:2].detach().requires_grad_() for x in given]
    together, single = exponents(*given), exponents(*alone)
    assert torch.equal(together[1:2], single)
    for got, right in zip(
        torch.autograd.grad(together, given, back), torch.autograd.grad(single, alone, back[1:2]), strict=True
    ):
        torch.testing.assert_close(got[1:2], right, rtol=1e-6, atol=1e-6 * float(right.abs().max()))
