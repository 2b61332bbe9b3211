"""Compare the fused layer and likelihood with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401
from torch import Tensor

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.kernels import bernoulli
from softspin.likelihoods import Bernoulli
from softspin.model import DiscreteVAE, build
from softspin.nets import MLP
from softspin.numerics import softplus

gpu_halves = pytest.importorskip("softspin.kernels.gpu_halves", reason="Triton is not installed")


@dataclasses.dataclass
class Case:
    """Inputs of the operation and a gradient for its result."""

    x: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor
    grad: Tensor

    @classmethod
    def random(cls, replicas: int, k: int, batch: int, hidden: int, pixels: int, scale: float = 1.0) -> Case:
        """Activations of tanh, and logits of standard deviation `scale` around a bias of about 2 `scale`."""
        g = torch.Generator().manual_seed(0)
        made = cls(
            (torch.rand(replicas, batch, pixels, generator=g) < 0.4).float(),
            torch.tanh(2 * torch.randn(replicas, k, batch, hidden, generator=g)),
            scale * torch.randn(replicas, hidden, pixels, generator=g) / hidden**0.5,
            2 * scale * torch.randn(replicas, pixels, generator=g),
            torch.softmax(3 * torch.randn(replicas, k, batch, generator=g), 1) / batch,
        )
        return cls(*(value.to(DEVICE) for value in vars(made).values()))

    def outcome(self, fused: bool) -> list[Tensor]:
        """Value and gradients with respect to activations, weights and bias: fused, or plain in float64."""
        dtype = torch.float32 if fused else torch.float64
        x, *wanted, grad = (value.to(dtype) for value in vars(self).values())
        wanted = [value.detach().requires_grad_() for value in wanted]
        value = bernoulli.log_prob(x, *wanted) if fused else plain(x, *wanted)
        return [value.detach(), *torch.autograd.grad(value, wanted, grad)]

    def replica(self, index: int) -> Case:
        return Case(*(value[index : index + 1] for value in vars(self).values()))


def plain(x: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    logits = hidden @ weight[:, None] + bias[:, None, None]
    return (x[:, None] * logits - softplus(logits)).sum(-1)


def small_model() -> DiscreteVAE:
    config = Config(groups=1, bits_per_group=6, layers=1, width=9, seeds=(0, 1))
    return build(config, DataSpec((12,), torch.linspace(0, 1, 12))).to(DEVICE).eval()


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest error, relative to the largest number of the same tensor."""
    each = [(a.double() - b).abs().max() / b.abs().max().clamp_min(1e-300) for a, b in zip(found, exact, strict=True)]
    return float(torch.stack(each).max())


@pytest.mark.parametrize(
    ("k", "batch", "hidden", "pixels"),
    [
        *((1, 1, 3, 1), (3, 7, 200, 7), (1, 5, 3, 784), (2, 70, 9, 130), (5, 15, 70, 140), (1, 131, 33, 1)),
        pytest.param(25, 2, 200, 784, marks=pytest.mark.slow),
    ],
)
def test_value_and_gradients(k: int, batch: int, hidden: int, pixels: int) -> None:
    """The errors of float32 are up to 4e-7: rounding of logits, and of sums over hidden units, pixels or rows."""
    case = Case.random(2, k, batch, hidden, pixels)
    assert error(case.outcome(fused=True), case.outcome(fused=False)) < 1e-6


@pytest.mark.parametrize("rows", [6, 4200])
def test_an_evaluation_has_the_same_values(rows: int) -> None:
    """Without gradients, no residual is stored, and the number of rows is not limited."""
    case = Case.random(2, 3, rows // 3, 9, 20)
    x, *given, _ = vars(case).values()
    with torch.no_grad():
        assert bernoulli.is_fused(x, *given[:2]) is (DEVICE == "cuda")
        found = bernoulli.log_prob(x, *given)
    assert torch.equal(found, bernoulli.log_prob(x, *given))
    assert error([found], [plain(*(value.double() for value in (x, *given)))]) < 1e-6


@pytest.mark.parametrize("scale", [6.0, 50.0, 1e-3])
def test_large_and_small_logits(scale: float) -> None:
    """Logits of up to 24 and 200, and of about 0. Rounding a logit of 200 to float32 is an error of 8e-6 at most."""
    case = Case.random(2, 2, 9, 40, 50, scale)
    found = case.outcome(fused=True)
    assert all(value.isfinite().all() for value in found)
    assert error(found, case.outcome(fused=False)) < (1e-6 if scale < 10 else 4e-6)


@pytest.mark.parametrize("logit", [-200.0, -100.0, -12.0, -1.0, 0.0, 1.0, 12.0, 100.0, 200.0])
@pytest.mark.parametrize("pixel", [0.0, 1.0])
def test_one_logit(logit: float, pixel: float) -> None:
    """One pixel, where no other hides an error.

    That of exp(-l) is about l times the rounding of float32, and that of the gradient is absolute: 1 - sigmoid(l).
    """
    one = torch.ones(1, 1, 1, 1, device=DEVICE)
    case = Case(one[0] * pixel, 0 * one, one[0], one[0, 0] * logit, one[0])
    (value, _, _, gradient), (right, _, _, slope) = case.outcome(fused=True), case.outcome(fused=False)
    torch.testing.assert_close(value.double(), right, rtol=3e-7 + 2e-7 * abs(logit), atol=1e-38)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-6, atol=1.5e-7)


@pytest.mark.parametrize("factor", [1e-20, 1e-6, 1e6])
def test_gradients_of_any_size(factor: float) -> None:
    """The range of float16 does not limit the incoming gradient, nor differences between its entries."""
    case = Case.random(2, 3, 9, 20, 30)
    case.grad *= factor * torch.logspace(-6, 0, 9, device=DEVICE)
    assert error(case.outcome(fused=True), case.outcome(fused=False)) < 1e-6
    case.grad.zero_()
    assert not any(value.any() for value in case.outcome(fused=True)[1:])


def test_a_replica_does_not_depend_on_the_others() -> None:
    case = Case.random(3, 2, 40, 50, 140)
    whole = case.outcome(fused=True)
    for index in range(3):
        for one, all_of_them in zip(case.replica(index).outcome(fused=True), whole, strict=True):
            assert torch.equal(one[0], all_of_them[index])


def test_parts_of_the_sum_over_rows() -> None:
    case = Case.random(1, 7, 100, 5, 9)
    assert gpu_halves.row_parts(700) == 3
    assert error(case.outcome(fused=True), case.outcome(fused=False)) < 1e-6


def test_tf32_is_used_where_torch_may_use_it() -> None:
    case = Case.random(1, 2, 20, 50, 30)
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "tf32"
        assert 1e-5 < error(case.outcome(fused=True), case.outcome(fused=False)) < 1e-3
    finally:
        products.fp32_precision = before


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, under the interpreter
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_non_finite_values_propagate() -> None:
    """A weight beyond the range of float16 gives a non-finite value, which training reports."""
    for wrong in (torch.nan, torch.inf, 1e5):
        case = Case.random(2, 1, 4, 8, 4)
        case.weight[0, 2, 3] = wrong
        value = case.outcome(fused=True)[0].isfinite()
        assert not value[0].any()
        assert value[1].all()


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
def test_a_compiled_model_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile decoder and likelihood as one graph, forward and backward; the plain path in float64 is the reference."""
    # The compiler disables the validation of all distributions permanently.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    monkeypatch.setattr(bernoulli, "is_fused", lambda x, hidden, weight: x.dtype == torch.float32)
    model = small_model()
    case = Case.random(2, 3, 7, model.units, 12)
    wanted = [case.hidden.requires_grad_(), *model.decoder.parameters()]
    backend = "inductor" if DEVICE == "cuda" else "aot_eager"
    value = torch.compile(model.reconstruction, backend=backend, fullgraph=True)(case.x, case.hidden)
    found = [value.detach(), *torch.autograd.grad(value, wanted, case.grad)]
    model.double()
    bits = case.hidden.detach().double().requires_grad_()
    value = model.log_likelihood(case.x.double(), model.decode(bits))
    exact = torch.autograd.grad(value, [bits, *model.decoder.parameters()], case.grad.double())
    assert error(found, [value.detach(), *exact]) < 2e-6


def test_only_small_float32_products_on_a_gpu_are_fused() -> None:
    case = Case.random(1, 2, 3, 4, 5)
    assert bernoulli.is_fused(case.x, case.hidden, case.weight) == (DEVICE == "cuda")
    assert not bernoulli.is_fused(case.x.cpu(), case.hidden.cpu(), case.weight.cpu())
    assert not bernoulli.is_fused(*(value.double() for value in (case.x, case.hidden, case.weight)))
    assert not bernoulli.is_fused(case.x.requires_grad_(), case.hidden, case.weight)


def test_subclasses_that_compute_something_else_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Brighter(Bernoulli):
        def parameters_of(self, out: Tensor) -> Tensor:
            return super().parameters_of(out) + 1

    class Louder(MLP):
        def forward(self, *parts: Tensor) -> Tensor:
            return 2 * super().forward(*parts)

    model = small_model()
    x = torch.ones(2, 5, 12, device=DEVICE)
    bits = torch.rand(2, 3, 5, model.units, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    monkeypatch.setattr(bernoulli, "is_fused", lambda *_: True)
    monkeypatch.setattr(bernoulli, "log_prob", lambda x, hidden, weight, bias: hidden[..., 0])
    assert model.reconstruction(x, bits).abs().max() <= 1, "the stand-in returns a tanh"
    for part, other in ((model.likelihood, Brighter), (model.decoder, Louder)):
        own = part.__class__
        part.__class__ = other
        assert torch.equal(model.reconstruction(x, bits), model.log_likelihood(x, model.decode(bits)))
        part.__class__ = own
