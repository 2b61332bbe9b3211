"""Compare the fused draws of soft bits with `SmoothedBernoulli` in float64: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.kernels.draw import FAMILIES, draw
from softspin.numerics import open_uniform
from softspin.smoothing import Exponential, Power, Smoothing, UniformExponential

gpu_draw = pytest.importorskip("softspin.kernels.gpu_draw", reason="Triton is not installed")

BETAS = (40.0, 8.0, 1.5)
families = pytest.mark.parametrize("family", FAMILIES)


def smoothing(family: str, beta: Tensor) -> Smoothing:
    beta = beta.double().reshape(-1, 1, 1, 1)
    return {"power": Power, "exp": Exponential, "un_exp": UniformExponential}[family](beta)


def inputs(groups: int, samples: int, batch: int, bits: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Logits to +-12, uniforms, betas, and gradients of the three results.

    Near 1, the exponential quantile amplifies the rounding of a uniform by 1 / (1 - u), so these stay below 0.999.
    """
    g = torch.Generator().manual_seed(bits)
    logits = 24 * torch.rand(len(BETAS), groups, batch, bits, generator=g) - 12
    uniforms = open_uniform((len(BETAS), 2, samples, batch, bits + 3), generator=g)
    uniforms[:, 1].clamp_(max=0.999)
    shape = len(BETAS), samples, batch, bits
    gradients = [torch.randn(shape, generator=g), torch.randn(shape, generator=g), torch.randn(shape[:-1], generator=g)]
    return logits, uniforms[..., 3:], torch.tensor(BETAS), gradients


def reference(
    family: str, logits: Tensor, uniforms: Tensor, beta: Tensor, gradients: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """zeta, log odds, log ratios and the gradient of the logits, in float64."""
    own = logits.double().requires_grad_()
    posterior = SmoothedBernoulli(own.expand(uniforms[:, 0].shape), smoothing(family, beta))
    soft = posterior.draw(uniforms=(uniforms[:, 0].double(), uniforms[:, 1].double()))
    results = soft.zeta, soft.log_odds, posterior.log_ratio(soft).sum(-1)
    torch.autograd.backward(results, [g.double() for g in gradients])
    assert own.grad is not None
    zeta, odds, ratio = (one.detach() for one in results)
    return zeta, odds, ratio, own.grad


def check(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    """Compare to 1e-5, about 100 roundings of float32; log odds at beta = 40 and gradients amplify them."""
    for name, one, other in zip(("zeta", "odds", "ratio", "gradient"), got, want, strict=True):
        error = (one.double().cpu() - other).abs() / (1 + other.abs())
        assert error.max() < {"odds": 5e-5, "gradient": 1e-4}.get(name, 1e-5), f"{name}: {error.max():.1e}"


@families
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 3, 33)])
def test_the_kernels_equal_the_distribution(family: str, shared: bool, shape: tuple[int, int, int]) -> None:
    logits, uniforms, beta, gradients = inputs(1 if shared else shape[0], *shape)
    want = reference(family, logits, uniforms, beta, gradients)
    on = [x.to(DEVICE) for x in (logits, uniforms, beta, *gradients)]
    epsilon, number = 0.05, FAMILIES.index(family)
    zeta, odds, nears, ratio = gpu_draw.launch(on[0], on[1][:, 0], on[1][:, 1], on[2], epsilon, number)
    wide = [torch.cat([g, g], dim=-1)[..., : g.shape[-1]] for g in on[3:5]]  # rows that are not adjacent
    each = gpu_draw.launch_backward(on[0], nears, on[2], *wide, on[5], epsilon, number)
    check((zeta, odds, ratio, each.sum_to_size(logits.shape)), want)
    assert ((zeta >= 0) & (zeta <= 1)).all()


@families
def test_the_ends_of_the_interval(family: str) -> None:
    """The smallest uniform is exact. The largest is a rounding away from 1, by which 1 - u can change by a factor."""
    logits, uniforms, beta, gradients = inputs(1, 2, 2, 6)
    uniforms[:, 1, ..., ::2], uniforms[:, 1, ..., 1::2] = 2.0**-25, 1 - 2.0**-24  # those of `open_uniform`
    want = reference(family, logits, uniforms, beta, gradients)[0]
    on = [x.to(DEVICE) for x in (logits, uniforms, beta, *gradients)]
    number = FAMILIES.index(family)
    *results, nears, ratio = gpu_draw.launch(on[0], on[1][:, 0], on[1][:, 1], on[2], 0.05, number)
    gradient = gpu_draw.launch_backward(on[0], nears, on[2], *on[3:], 0.05, number)
    assert all(bool(one.isfinite().all()) for one in (*results, nears, ratio, gradient))
    error = (results[0].double().cpu() - want).abs()
    assert error[..., ::2].max() < 1e-5
    assert bool((error[..., 1::2] < 1 / beta[:, None, None, None]).all()), "a factor of e"


@pytest.mark.parametrize("batch", [1, 4])
def test_rows_are_equally_far_apart(batch: int) -> None:
    """Also those of a batch of one image, whose stride torch ignores."""
    from softspin.kernels.gpu_draw import even_rows

    x = torch.randn(2, batch, 3, 5).transpose(1, 2)
    even = even_rows(x)
    assert torch.equal(even, x)
    assert even.stride() == (15 * batch, 5 * batch, 5, 1)
    assert even_rows(even) is even


def test_a_replica_does_not_depend_on_the_others() -> None:
    logits, uniforms, beta, _ = inputs(2, 2, 3, 5)
    on = [x.to(DEVICE) for x in (logits, uniforms[:, 0], uniforms[:, 1], beta)]
    together = gpu_draw.launch(*on, 0.0, 0)
    alone = gpu_draw.launch(*(x[1:2] for x in on), 0.0, 0)
    assert all(torch.equal(one[1:2], other) for one, other in zip(together, alone, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
@families
@pytest.mark.parametrize("compiled", [True, False])
def test_the_operator_on_a_gpu(family: str, compiled: bool) -> None:
    logits, uniforms, beta, gradients = inputs(1, 25, 10, 200)
    want = reference(family, logits, uniforms, beta, gradients)
    own, on = logits.cuda().requires_grad_(), uniforms.cuda()
    function = torch.compile(draw) if compiled else draw
    got = function(own, on[:, 0], on[:, 1], beta.cuda(), family, 0.05)
    torch.autograd.backward(got, [g.cuda() for g in gradients])
    assert own.grad is not None
    check((*got, own.grad), want)
