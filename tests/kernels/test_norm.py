"""Compare fused batch norm and tanh with torch in float64: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

import copy

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, pytestmark  # noqa: F401
from torch import Tensor

from softspin.kernels import norm
from softspin.nets import MLP

gpu_norm = pytest.importorskip("softspin.kernels.gpu_norm", reason="Triton is not installed")

EPSILON = 1e-2


def inputs(
    samples: int, batch: int, features: int, shared: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """Rows with means far from 0 against their deviation, the shared part, scale, shift and the result's gradient."""
    g = torch.Generator().manual_seed(features)
    y = torch.randn(3, samples * batch, features, generator=g) + 3 * torch.randn(3, 1, features, generator=g)
    addend = torch.randn(3, batch, features, generator=g) if shared else None
    scale, shift = 2 * torch.rand(3, features, generator=g), torch.randn(3, features, generator=g)
    return y, addend, scale, shift, torch.randn(y.shape, generator=g)


def reference(
    y: Tensor, shared: Tensor | None, scale: Tensor, shift: Tensor, to_t: Tensor
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Result, mean and variance, and the gradients of y, scale and shift, in float64."""
    own, scale, shift = (one.double().requires_grad_() for one in (y, scale, shift))
    addend = None if shared is None else shared.double().requires_grad_()
    x = own if addend is None else own + addend.repeat(1, y.shape[1] // addend.shape[1], 1)
    variance, mean = torch.var_mean(x, 1, correction=0)
    out = torch.tanh((x - mean[:, None]) / (variance + EPSILON).sqrt()[:, None] * scale[:, None] + shift[:, None])
    out.backward(to_t.double())
    assert own.grad is not None
    assert scale.grad is not None
    assert shift.grad is not None
    return out.detach(), mean.detach(), variance.detach(), [own.grad, scale.grad, shift.grad]


def check(got: Tensor, want: Tensor) -> None:
    """Float32 sums of up to 2,500 terms: an absolute error of 1e-5 at values of order 1."""
    assert (got.double().cpu() - want).abs().max() < 1e-5 * (1 + want.abs().max())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("shape", [(1, 2, 1), (3, 50, 7), (7, 43, 65)])
def test_the_kernels_equal_torch(shape: tuple[int, int, int], shared: bool) -> None:
    given = inputs(*shape, shared)
    out, mean, variance, gradients = reference(*given)
    y, addend, scale, shift, to_t = (None if x is None else x.to(DEVICE) for x in given)
    got, statistics = gpu_norm.launch(y, addend, scale, shift, EPSILON)
    to_y, sums = gpu_norm.launch_backward(y, addend, got, statistics, scale, to_t)
    check(got, out)
    check(statistics[:, 0], mean)
    check(statistics[:, 1], variance)
    check(to_y, gradients[0])
    check(sums[:, 1], gradients[-2])
    check(sums[:, 0], gradients[-1])


def test_tanh_has_a_small_relative_error_near_zero() -> None:
    """Two values, symmetric about 0, normalized to +-shift: tanh of a small number, where 1 - e^(-2x) cancels."""
    y = torch.tensor([[[-1.0], [1.0]]], device=DEVICE)
    for size in (1e-6, 1e-3, 0.05, 0.07):
        shift, scale = torch.full((1, 1), size, device=DEVICE), torch.zeros(1, 1, device=DEVICE)
        got, _ = gpu_norm.launch(y, None, scale, shift, EPSILON)
        want = torch.tanh(torch.tensor(size, dtype=torch.float64)).item()
        assert abs(got[0, 0, 0].item() - want) < 2e-6 * want


def test_a_replica_does_not_depend_on_the_others() -> None:
    y, _, scale, shift, _ = (None if x is None else x.to(DEVICE) for x in inputs(3, 50, 7, False))
    together = gpu_norm.launch(y, None, scale, shift, EPSILON)
    alone = gpu_norm.launch(*(None if x is None else x[1:2].contiguous() for x in (y, None, scale, shift)), EPSILON)
    assert all(torch.equal(one[1:2], other) for one, other in zip(together, alone, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_net_on_a_gpu_equals_its_twin_on_a_cpu(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, gradients and running statistics of a net with a shared input."""
    monkeypatch.setattr(norm, "MANY_ROWS", 1)
    g = torch.Generator().manual_seed(0)
    twin = MLP(11, 5, 2, 9, [torch.Generator().manual_seed(seed) for seed in range(2)]).double().train()
    net = copy.deepcopy(twin).float().cuda()
    parts = torch.randn(2, 1, 6, 4, generator=g), torch.randn(2, 3, 6, 7, generator=g)
    to_out = torch.randn(2, 3, 6, 5, generator=g)
    function = torch.compile(net) if compiled else net
    own = [part.cuda().requires_grad_() for part in parts]
    out = function(*own)
    out.backward(to_out.cuda())
    other = [part.double().requires_grad_() for part in parts]
    want = twin(*other)
    want.backward(to_out.double())
    check(out.detach(), want.detach())
    for one, two in zip([*own, *net.parameters()], [*other, *twin.parameters()], strict=True):
        assert two.grad is not None
        check(torch.zeros_like(one) if one.grad is None else one.grad, two.grad)
    for (name, one), two in zip(net.named_buffers(), twin.buffers(), strict=True):
        assert (one.double().cpu() - two).abs().max() < 1e-5, name
