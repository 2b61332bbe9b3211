"""Compare the fused log determinant with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, boltzmann, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, GraphBoltzmann
from softspin.kernels import log_det, support

gpu_log_det = pytest.importorskip("softspin.kernels.gpu_log_det", reason="Triton is not installed")


def positive_definite(replicas: int, n: int, lowest: float = 0.05, scale: float = 1.0) -> Tensor:
    """Draw matrices with eigenvalues from `lowest` to 1, times `scale`."""
    draws = torch.randn(replicas, n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    vectors = torch.linalg.qr(draws).Q
    values = torch.logspace(0, torch.tensor(lowest).log10().item(), n, dtype=torch.float64) * scale
    return ((vectors * values) @ vectors.mT).float().to(DEVICE)


def check(matrix: Tensor, tolerance: float) -> None:
    """Compare value and inverse with float64. The tolerance is relative to the norm of the inverse."""
    value, inverse = gpu_log_det.launch(matrix)
    exact = torch.linalg.inv(matrix.double())
    scale = torch.linalg.matrix_norm(exact, ord=2)
    assert torch.allclose(value.double(), torch.logdet(matrix.double()), rtol=1e-5, atol=tolerance)
    assert ((inverse.double() - exact).abs().amax((-2, -1)) < tolerance * scale).all()


@pytest.mark.parametrize(
    ("n", "scale"),
    [
        *((n, 1.0) for n in (1, 3, 17, 100, 130)),
        pytest.param(200, 1.0, marks=pytest.mark.slow),
        *((17, 1e-3), (17, 40.0), (100, 40.0)),
    ],
)
def test_value_and_inverse(n: int, scale: float) -> None:
    """With condition number 20, the errors of 1e-7 of each operation add up to a few 1e-6."""
    check(positive_definite(3 if n < 100 else 2, n, scale=scale), 1e-5)


@pytest.mark.parametrize("n", [3, 100, pytest.param(130, marks=pytest.mark.slow)])
def test_nearly_singular_matrices(n: int) -> None:
    """With condition number 1e4, an error of 1e-7 in the matrix changes the inverse by 1e-3 of its norm."""
    check(positive_definite(2, n, lowest=1e-4), 3e-3)


@pytest.mark.parametrize(
    "n", [1, 17, pytest.param(100, marks=pytest.mark.slow), pytest.param(130, marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")  # NumPy's
def test_a_matrix_that_is_not_positive_definite_gives_nan_in_its_replica_alone(n: int) -> None:
    matrix = positive_definite(5, n)
    alone, inverse = gpu_log_det.launch(matrix)
    matrix[1, n - 1, n - 1] = -0.01
    matrix[2, n // 2, n // 2] = torch.nan
    matrix[3] = 0.0
    value, found = gpu_log_det.launch(matrix)
    assert value.isnan().tolist() == [False, True, True, True, False]
    assert found[1:4].isnan().all(-1).all(-1).all()
    for own in (0, 4):
        assert torch.equal(value[own], alone[own])
        assert torch.equal(found[own], inverse[own])


@pytest.mark.parametrize("n", [17, pytest.param(130, marks=pytest.mark.slow)])
def test_a_replica_does_not_depend_on_the_others(n: int) -> None:
    matrix = positive_definite(3, n)
    value, inverse = gpu_log_det.launch(matrix)
    for own in (slice(0, 1), slice(1, 3)):
        assert all(map(torch.equal, gpu_log_det.launch(matrix[own]), (value[own], inverse[own])))


@pytest.mark.parametrize(
    ("n", "m"), [(1, 1), (3, 40), (33, 17), (100, 100), pytest.param(130, 150, marks=pytest.mark.slow)]
)
def test_gradients_of_an_rbm(n: int, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare value and gradients to w and beta with the Cholesky factorization in float64."""
    bias, weight = boltzmann(2, n, m, seed=n)
    norm = torch.linalg.matrix_norm(weight, ord=2)
    beta, back = norm * torch.tensor([1.2, 3.0], device=DEVICE), torch.tensor([1.0, -2.5], device=DEVICE)
    inputs = weight.requires_grad_(), beta.requires_grad_()
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = BipartiteBoltzmann(bias.double(), wide[0]).log_det(wide[1])
    wanted = torch.autograd.grad(exact, wide, back.double())
    monkeypatch.setattr(log_det, "is_fused", lambda matrix: True)
    value = BipartiteBoltzmann(bias, weight).log_det(beta)
    found = torch.autograd.grad(value, inputs, back)
    assert torch.allclose(value.double(), exact, rtol=1e-5, atol=1e-5)
    for got, right in zip(found, wanted, strict=True):
        assert torch.allclose(got.double(), right, rtol=1e-4, atol=1e-5 * right.abs().max().item())


def test_gradients_on_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any leading dimensions, and a diagonal of beta = 40."""
    draws = torch.randn(2, 3, 21, 21, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    coupling = draws.triu(1) + draws.triu(1).mT
    beta = torch.full((2, 3), 40.0, device=DEVICE).requires_grad_()
    bias = torch.zeros(2, 3, 21, device=DEVICE)
    wide = beta.detach().double().requires_grad_()
    exact = GraphBoltzmann(bias.double(), coupling.double()).log_det(wide)
    monkeypatch.setattr(log_det, "is_fused", lambda matrix: True)
    value = GraphBoltzmann(bias, coupling).log_det(beta)
    assert torch.allclose(value.double(), exact, rtol=1e-6)
    found, wanted = torch.autograd.grad(value.sum(), beta)[0], torch.autograd.grad(exact.sum(), wide)[0]
    assert torch.allclose(found.double(), wanted, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
def test_an_rbm_uses_the_kernel_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in compiled code, as one graph."""
    launched: list[Tensor] = []
    launch = gpu_log_det.launch

    def counted(matrix: Tensor) -> tuple[Tensor, Tensor]:
        launched.append(matrix)
        return launch(matrix)

    monkeypatch.setattr(gpu_log_det, "launch", counted)
    bias, weight = boltzmann(3, 40, 24)
    beta = torch.full((3,), 10.0, device=DEVICE)

    def value(weight: Tensor) -> Tensor:
        return BipartiteBoltzmann(bias, weight, validate_args=False).log_det(beta)

    exact = BipartiteBoltzmann(bias.double(), weight.double()).log_det(beta.double())
    for own in (value, torch.compile(value, fullgraph=True)):
        assert torch.allclose(own(weight).double(), exact, rtol=1e-6)
    assert len(launched) == 2


def test_large_matrices_float64_and_the_cpu_use_torch() -> None:
    for n, dtype in ((4, torch.float64), (600, torch.float32)):
        assert not log_det.is_fused(torch.zeros(1, n, n, dtype=dtype, device=DEVICE))
    assert log_det.is_fused(torch.zeros(1, 4, 4, device=DEVICE)) == (DEVICE == "cuda")


@pytest.mark.parametrize("bipartite", [True, False])
def test_beside_other_work(bipartite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value and its gradient are those of `log_det`, and the other work is done."""
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    bias, weight = (x.requires_grad_() for x in boltzmann(2, 6, 4))
    rbm = BipartiteBoltzmann(bias, weight)
    whole = rbm if bipartite else GraphBoltzmann(bias, rbm.coupling)
    beta = torch.full((2,), 20.0, device=DEVICE)
    value, other = whole.log_det_beside(beta, lambda: weight.detach().exp().sum())
    assert torch.equal(other, weight.detach().exp().sum())
    alone = whole.log_det(beta)
    assert torch.equal(value, alone)
    assert torch.equal(*(torch.autograd.grad(one.sum(), weight)[0] for one in (value, alone)))
