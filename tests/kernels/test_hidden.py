"""Compare the fused hidden layer with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401
from torch import Tensor

from softspin.kernels import hidden, support
from softspin.kernels.matmul import tf32_allowed
from softspin.nets import MLP, BatchNorm, Linear
from softspin.nets.layers import hidden_layer

gpu_halves = pytest.importorskip("softspin.kernels.gpu_halves", reason="Triton is not installed")
EPSILON = 1e-2


@dataclasses.dataclass
class Case:
    """Inputs of the operation and a gradient for its result."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor
    grad: Tensor

    @classmethod
    def random(cls, replicas: int, rows: int, inputs: int, outputs: int, period: int, spread: float = 1.0) -> Case:
        g = torch.Generator().manual_seed(0)
        made = cls(
            torch.tanh(torch.randn(replicas, rows, inputs, generator=g)),
            spread * torch.randn(replicas, inputs, outputs, generator=g) / inputs**0.5,
            spread * torch.randn(replicas, period, outputs, generator=g),
            torch.rand(replicas, outputs, generator=g) + 0.5,
            torch.randn(replicas, outputs, generator=g),
            torch.randn(replicas, rows, outputs, generator=g),
        )
        return cls(*(value.to(DEVICE) for value in vars(made).values()))

    def outcome(self, fused: bool) -> list[Tensor]:
        """Activations, mean, variance, and gradients with respect to all inputs: fused, or plain in float64."""
        dtype = torch.float32 if fused else torch.float64
        *wanted, grad = (value.to(dtype) for value in vars(self).values())
        wanted = [value.detach().requires_grad_() for value in wanted]
        found = (fused_layer if fused else plain)(*wanted)
        if self.bias.shape[1] == 1:  # batch norm subtracts it, so its gradient is 0
            del wanted[2]
        return [*(value.detach() for value in found), *torch.autograd.grad(found[0], wanted, grad)]

    def replica(self, index: int) -> Case:
        return Case(*(value[index : index + 1] for value in vars(self).values()))


def fused_layer(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> hidden.Activations:
    return hidden.activations(x, weight, bias, scale, shift, EPSILON)


def plain(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> hidden.Activations:
    y = x @ weight + bias.repeat(1, x.shape[1] // bias.shape[1], 1)
    variance, mean = torch.var_mean(y, 1, correction=0)
    normal = (y - mean[:, None]) / torch.sqrt(variance + EPSILON)[:, None]
    return hidden.Activations(torch.tanh(scale[:, None] * normal + shift[:, None]), mean, variance)


def errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """The largest error of each tensor, relative to its largest number."""
    return [
        float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-300)) for a, b in zip(found, exact, strict=True)
    ]


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "period"),
    [(6, 3, 1, 2), (70, 33, 65, 7), (65, 8, 5, 1), (130, 200, 72, 65), (700, 5, 9, 100)],
)
def test_value_statistics_and_gradients(rows: int, inputs: int, outputs: int, period: int) -> None:
    """One and several tiles and parts of sums, all of odd shapes."""
    case = Case.random(2, rows, inputs, outputs, period)
    assert max(errors(case.outcome(fused=True), case.outcome(fused=False))) < 2e-6


@pytest.mark.parametrize("factor", [1e-20, 1e-6, 1e6])
def test_gradients_of_any_size(factor: float) -> None:
    """The range of float16 does not limit the incoming gradient, nor differences between its rows."""
    case = Case.random(2, 40, 20, 30, 4)
    case.grad *= factor * torch.logspace(-6, 0, 40, device=DEVICE)[:, None]
    assert max(errors(case.outcome(fused=True), case.outcome(fused=False))) < 2e-6
    case.grad.zero_()
    assert not any(value.any() for value in case.outcome(fused=True)[3:])


@pytest.mark.parametrize(("spread", "offset"), [(100.0, 0.0), (1e-3, 0.0), (1.0, 1000.0)])
def test_statistics_of_any_size(spread: float, offset: float) -> None:
    """A large mean does not cancel in the variance. With y = 1000, rounding is an error of 1e-4 per operation."""
    case = Case.random(2, 90, 20, 30, 1, spread)
    case.bias += offset
    limit = 2e-6 if offset == 0 else 2e-3
    assert max(errors(case.outcome(fused=True), case.outcome(fused=False))) < limit


def test_one_row_that_differs() -> None:
    """The gradient of a column is dominated by one row: the worst case of the bound on its size.

    The deviations of the other rows are a 20th of the mean, so rounding the mean is an error of 1e-5.
    """
    case = Case.random(1, 500, 8, 8, 1)
    case.x[:, 1:] = case.x[:, 1:2]
    case.grad[:, 1:] = 0
    assert max(errors(case.outcome(fused=True), case.outcome(fused=False))) < 1e-4


def test_a_replica_does_not_depend_on_the_others() -> None:
    case = Case.random(3, 80, 50, 140, 40)
    whole = case.outcome(fused=True)
    for index in range(3):
        for one, all_of_them in zip(case.replica(index).outcome(fused=True), whole, strict=True):
            assert torch.equal(one[0], all_of_them[index])


def test_parameters_are_rows_of_one_table() -> None:
    """As in training: the replicas of a parameter are far apart in memory."""
    case = Case.random(3, 80, 16, 24, 1)
    strided = copy.copy(case)
    for name in ("bias", "scale", "shift"):
        table = torch.full((3, 100), 1e6, device=DEVICE)
        view = table[:, 7:31].view(getattr(case, name).shape)
        setattr(strided, name, view.copy_(getattr(case, name)))
        assert not view.is_contiguous()
    wanted = [value.requires_grad_() for value in list(vars(strided).values())[:-1]]
    found = fused_layer(*wanted)
    del wanted[2]
    got = [*(value.detach() for value in found), *torch.autograd.grad(found[0], wanted, strided.grad)]
    assert all(torch.equal(x, y) for x, y in zip(got, case.outcome(fused=True), strict=True))


def test_tf32_is_used_where_torch_may_use_it() -> None:
    case = Case.random(1, 40, 50, 30, 1)
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "tf32"
        assert tf32_allowed()
        assert 1e-5 < max(errors(case.outcome(fused=True), case.outcome(fused=False))) < 5e-3
    finally:
        products.fp32_precision = before


@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e6])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 3, 1), (70, 33, 65), (700, 5, 9)])
def test_a_linear_layer(rows: int, inputs: int, outputs: int, factor: float) -> None:
    case = Case.random(2, rows, inputs, outputs, 1)
    case.grad *= factor
    x, weight = (value.detach().requires_grad_() for value in (case.x, case.weight))
    out = hidden.linear(x, weight)
    found = [out.detach(), *torch.autograd.grad(out, (x, weight), case.grad)]
    x, weight, grad = (value.detach().double() for value in (x, weight, case.grad))
    assert max(errors(found, [x @ weight, grad @ weight.mT, x.mT @ grad])) < 2e-6


@pytest.mark.parametrize(("rows", "bounded", "fused"), [(9, True, False), (200, True, True), (200, False, False)])
def test_hidden_layers_of_a_net(rows: int, bounded: bool, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs with and without samples; many rows of bounded inputs are fused, others are not."""
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    used: list[bool] = []
    operation = hidden.activations

    def counted(*given: Any) -> hidden.Activations:
        used.append(True)
        return operation(*given)

    monkeypatch.setattr(hidden, "activations", counted)
    g = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    linear, norm = Linear(5 + 7, 9, g).to(DEVICE), BatchNorm(9, 2).to(DEVICE)
    with torch.no_grad():
        linear.bias.copy_(torch.randn(2, 9, generator=g[0]))
        norm.shift.copy_(torch.randn(2, 9, generator=g[0]))
    data, bits = (torch.randn(2, k, rows, n, generator=g[0]).to(DEVICE) for k, n in ((1, 5), (3, 7)))
    bits = bits.sigmoid()
    plain_linear, plain_norm = Linear(12, 9, g).to(DEVICE).double(), BatchNorm(9, 2).to(DEVICE).double()
    plain_linear.load_state_dict(linear.state_dict())
    plain_norm.load_state_dict(norm.state_dict())

    found = hidden_layer(linear, norm, data, bits, bounded=bounded)
    exact = torch.tanh(plain_norm(plain_linear(data.double(), bits.double())))
    assert used == [True] * fused
    grad = torch.randn(found.shape, generator=g[0]).to(DEVICE)
    wanted = [linear.weight, norm.scale, norm.shift]
    exact_wanted = [plain_linear.weight, plain_norm.scale, plain_norm.shift]
    got = [found, norm.mean, norm.variance, *torch.autograd.grad(found, wanted, grad)]
    right = [exact, plain_norm.mean, plain_norm.variance, *torch.autograd.grad(exact, exact_wanted, grad.double())]
    assert max(errors([value.detach() for value in got], [value.detach() for value in right])) < 3e-6


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
def test_a_compiled_net_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a net with two hidden layers as one graph, forward and backward; the reference is plain, in float64."""
    # The compiler disables the validation of all distributions permanently.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", 12)
    g = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    net = MLP(5 + 7, 6, 2, 9, g).to(DEVICE).train()
    twin = copy.deepcopy(net).double()
    data, bits = (torch.randn(2, k, 70, n, generator=g[0]).to(DEVICE) for k, n in ((1, 5), (3, 7)))
    bits, grad = bits.sigmoid(), torch.randn(2, 3, 70, 6, generator=g[0]).to(DEVICE)
    results = []
    for one, dtype in ((net, torch.float32), (twin, torch.float64)):
        backend = "inductor" if DEVICE == "cuda" else "aot_eager"
        run = torch.compile(one, backend=backend, fullgraph=True) if one is net else one
        soft = bits.to(dtype).requires_grad_()
        out = run(data.to(dtype), soft)
        trained = [p for name, p in one.named_parameters() if not name.startswith("linears") or "weight" in name]
        results.append([out.detach(), *torch.autograd.grad(out, [soft, *trained], grad.to(dtype))])
        results[-1] += list(one.buffers())
    assert max(errors(*results)) < 5e-6


def test_constant_statistics_and_a_weight_without_gradient() -> None:
    """The gradient of x alone, with mean and variance as constants, in two layers."""
    case = Case.random(2, 70, 9, 12, 35)

    def slope(fused: bool) -> Tensor:
        dtype = torch.float32 if fused else torch.float64
        x, *others, grad = (value.to(dtype) for value in vars(case).values())
        x.requires_grad_()
        if fused:
            weight, bias, scale, shift = others
            out = hidden.activations(x, weight, bias, scale, shift, EPSILON, constant_statistics=True).values
            out = hidden.linear(out, others[0].mT) @ others[0]
        else:
            weight, bias, scale, shift = others
            y = x @ weight + bias.repeat(1, 2, 1)
            variance, mean = (one.detach()[:, None] for one in torch.var_mean(y, 1, correction=0))
            out = torch.tanh(scale[:, None] * (y - mean) / torch.sqrt(variance + EPSILON) + shift[:, None])
            out = out @ weight.mT @ weight
        return torch.autograd.grad(out, x, grad)[0]

    assert errors([slope(True)], [slope(False)])[0] < 2e-6
