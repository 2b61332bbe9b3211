"""Compare the mean-field bound of the kernel with plain torch in float64: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, boltzmann, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, OverlapRelaxation, overlap
from softspin.errors import TooLargeError
from softspin.kernels import mean_field
from softspin.smoothing import Power, SoftBits

gpu_mean_field = pytest.importorskip("softspin.kernels.gpu_mean_field", reason="Triton is not installed")
OutOfResources = pytest.importorskip("triton.runtime.errors").OutOfResources

Result = Sequence[Tensor]


def soft_bits(odds: Tensor) -> SoftBits:
    return SoftBits(torch.sigmoid(odds), torch.zeros_like(odds), odds)


def log_odds(*shape: int, seed: int = 0, beta: float | None = None) -> Tensor:
    """Draw log odds: normal, or those of bits with the power-function smoothing."""
    g = torch.Generator().manual_seed(seed)
    if beta is None:
        return (5 * torch.randn(*shape, generator=g)).to(DEVICE)
    smoothing, z = Power(beta), (torch.rand(*shape, generator=g) < 0.5).float()
    location = smoothing.draw_location(z, torch.rand(*shape, generator=g).clamp(1e-6, 1 - 1e-6))
    return smoothing.to_soft_bits(location).log_odds.to(DEVICE)


def with_gradients(value: Tensor, inputs: list[Tensor]) -> Result:
    """Return the values, and the gradients of a sum with weights of both signs."""
    back = torch.randn(value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(value)
    return value.detach(), *torch.autograd.grad((back * value).sum(), inputs)


def by_kernel(odds: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Result:
    odds, bias, weight = inputs = [x.clone().requires_grad_() for x in (odds, bias, weight)]
    return with_gradients(mean_field.mean_field_bound(odds, bias, weight, steps), inputs)


def by_torch(odds: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Result:
    odds, bias, weight = inputs = [x.double().cpu().requires_grad_() for x in (odds, bias, weight)]
    relaxation = OverlapRelaxation(BipartiteBoltzmann(bias, weight), steps)
    return with_gradients(relaxation.log_unnormalized(soft_bits(odds)), inputs)


def check(got: Result, want: Result, rtol: float = 2e-6) -> None:
    """Compare with errors of float32: relative to the largest value, or to the sum of the gradients of all rows."""
    rows = want[0].shape[1]
    for name, x, y, scale in zip(("bound", "odds", "bias", "weight"), got, want, (0, 1, rows, rows), strict=True):
        error = float((x.double().cpu() - y).abs().max())
        assert error < rtol * max(scale, float(y.abs().max())) + 1e-6, (name, error)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 40), (34, 6), (33, 5), (64, 64), (130, 20)])
@pytest.mark.parametrize("rows", [1, 17, 270])
def test_value_and_gradients_equal_those_of_torch(n: int, m: int, rows: int) -> None:
    """The sizes are not multiples of 16, and 270 rows need more than one program. The tensor core truncates its sums.

    So a field of 10 has an error of 1e-6 to 1e-5, and a mean about 2e-6.
    """
    if INTERPRETED and rows * n * m > 100_000:
        pytest.skip("too slow under the interpreter")
    bias, weight = boltzmann(2, n, m, seed=n)
    odds = log_odds(2, rows, n + m, seed=rows)
    for steps in (1, 4):
        check(by_kernel(odds, bias, weight, steps), by_torch(odds, bias, weight, steps))


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # NumPy's, under the interpreter
def test_extreme_values() -> None:
    """At beta = 40 log odds are hundreds; biases are up to 12, and weights of 1e-6 and 2 occur together."""
    bias, weight = boltzmann(2, 40, 24)
    weight *= torch.logspace(-6, 0.8, 24, device=DEVICE)
    odds = log_odds(2, 20, 64, beta=40.0)
    assert odds.abs().max() > 100
    # Fields are up to 30, so errors are three times as large.
    check(by_kernel(odds, 12 * torch.tanh(bias), weight, 5), by_torch(odds, 12 * torch.tanh(bias), weight, 5), 1e-5)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # NumPy's, under the interpreter
def test_small_and_large_weights() -> None:
    """A field of 1,000 has an error of 1e-4."""
    bias, weight = boltzmann(3, 8, 20)
    weight *= torch.tensor([1e-20, 0.0, 1000.0], device=DEVICE)[:, None, None]
    odds = log_odds(3, 5, 28)
    got, want = by_kernel(odds, bias, weight, 2), by_torch(odds, bias, weight, 2)
    check(got, want, 1e-4)
    check([x[:2] for x in got], [x[:2] for x in want])


def test_the_slope_at_zero_is_that_between_the_sides() -> None:
    bias, weight = boltzmann(1, 4, 6)
    odds = torch.zeros(1, 3, 10, device=DEVICE)
    check(by_kernel(odds, bias, weight, 3), by_torch(odds, bias, weight, 3))


def test_a_replica_does_not_depend_on_the_others() -> None:
    bias, weight = boltzmann(3, 34, 18)
    weight *= torch.tensor([1.0, 7.0, 0.01], device=DEVICE)[:, None, None]
    odds = log_odds(3, 70, 52)
    together = by_kernel(odds, bias, weight, 3)
    for own in (slice(0, 1), slice(1, 3)):
        alone = mean_field.mean_field(odds[own], bias[own], weight[own], 3)
        assert torch.equal(alone[0], together[0][own])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, under the interpreter
def test_non_finite_values_stay_in_their_row_or_replica() -> None:
    bias, weight = boltzmann(2, 20, 18)
    odds = log_odds(2, 5, 38)
    odds[1, 2, 3], weight[0, 4, 5] = torch.nan, torch.nan
    finite = mean_field.mean_field(odds, bias, weight, 2)[0].isfinite().cpu()
    assert finite.tolist() == [[False] * 5, [True, True, False, True, True]]


def test_tf32_is_used_where_torch_may_use_it() -> None:
    bias, weight = boltzmann(1, 60, 70)
    odds = log_odds(1, 20, 130)
    products, want = torch.backends.cuda.matmul, by_torch(odds, bias, weight, 5)[0]
    before = products.fp32_precision
    errors = []
    try:
        for precision in ("tf32", "ieee"):
            products.fp32_precision = precision
            got = mean_field.mean_field(odds, bias, weight, 5)[0]
            errors.append(float((got.double().cpu() - want).abs().max()))
    finally:
        products.fp32_precision = before
    assert 1e-4 < errors[0] < 0.1
    assert errors[1] < 5e-5


def test_parameters_are_rows_of_one_table() -> None:
    """As in training: the replicas of a parameter are far apart in memory."""
    (bias, weight), odds = boltzmann(2, 6, 10), log_odds(2, 5, 16)
    table = torch.full((2, 100), torch.nan, device=DEVICE)
    table[:, 3:19], table[:, 20:80] = bias, weight.flatten(1)
    apart = mean_field.mean_field(odds, table[:, 3:19], table[:, 20:80].view(2, 6, 10), 3)
    assert all(torch.equal(x, y) for x, y in zip(apart, mean_field.mean_field(odds, bias, weight, 3), strict=True))


def test_blocks_that_do_not_fit_on_a_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two block sizes, the one that fits is used; if none does, the error says so."""
    (bias, weight), odds = boltzmann(2, 6, 10), log_odds(2, 5, 16)
    right, settle, tried = mean_field.mean_field(odds, bias, weight, 3), gpu_mean_field.settle, []

    class Small:
        failures = 0

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
            def launch(*given: object, ROWS: int, **options: object) -> object:
                tried.append(ROWS)
                if len(tried) <= self.failures:
                    raise OutOfResources(131072, 101376, "shared memory")
                return settle[grid](*given, ROWS=ROWS, **options)

            return launch

    monkeypatch.setattr(gpu_mean_field, "settle", Small())
    Small.failures = 1
    found = mean_field.mean_field(odds, bias, weight, 3)
    assert tried == [64, 128]
    assert all(torch.allclose(x, y, atol=1e-5) for x, y in zip(found, right, strict=True))
    Small.failures = 9
    with pytest.raises(TooLargeError, match="6 x 10 units do not fit"):
        mean_field.mean_field(odds, bias, weight, 3)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
def test_beside_other_work(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound and its gradients are the same, and so is the other work, which uses memory that is free meanwhile."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    rows = 5 if INTERPRETED else 2500
    inputs = [x.requires_grad_() for x in (log_odds(2, rows, 16), *boltzmann(2, 6, 10))]

    def both(odds: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        copied = odds * 1.0  # only the kernel needs it, and its memory is free for what follows
        return mean_field.mean_field_bound_beside(copied, bias, weight, 3, lambda: (odds * 2).cos().exp().sum(-1))

    backend = "aot_eager" if INTERPRETED else "inductor"
    bound, other = (torch.compile(both, backend=backend, fullgraph=True) if compiled else both)(*inputs)
    got = with_gradients(bound, inputs)
    odds, bias, weight = (x.detach() for x in inputs)
    for x, y in zip(got, by_kernel(odds, bias, weight, 3), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(other, (inputs[0] * 2).cos().exp().sum(-1))


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
def test_a_compiled_bound_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    # The compiler disables the validation of all distributions permanently.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    odds, bias, weight = inputs = [x.requires_grad_() for x in (log_odds(2, 5, 16), *boltzmann(2, 6, 10))]
    compiled = torch.compile(mean_field.mean_field_bound, backend="aot_eager", fullgraph=True)
    got = with_gradients(compiled(odds, bias, weight, 3), inputs)
    for x, y in zip(got, by_kernel(odds.detach(), bias.detach(), weight.detach(), 3), strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
@pytest.mark.parametrize(("n", "m", "fused"), [(40, 24, True), (200, 200, True), (33, 24, False), (300, 20, False)])
def test_the_relaxation_uses_the_kernel_on_a_gpu(n: int, m: int, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def called(odds: Tensor, bias: Tensor, weight: Tensor, steps: int) -> Tensor:
        calls.append(steps)
        return mean_field.mean_field_bound(odds, bias, weight, steps)

    monkeypatch.setattr(overlap, "mean_field_bound", called)
    bias, weight = boltzmann(3, n, m)
    odds = log_odds(3, 2, 7, n + m)
    got = OverlapRelaxation(BipartiteBoltzmann(bias, weight), 5).log_unnormalized(soft_bits(odds))
    want = by_torch(odds.flatten(1, 2), bias, weight, 5)[0].reshape(got.shape)
    assert len(calls) == fused
    torch.testing.assert_close(got.double().cpu(), want, rtol=2e-6, atol=1e-4)


def test_on_a_cpu_torch_computes_the_bound() -> None:
    _, weight = boltzmann(1, 4, 6)
    assert not mean_field.is_fused(torch.zeros(1, 2, 10), weight.cpu())
