"""Compare fused draws of Gaussian soft bits with `SmoothedBernoulli` in float64: on a GPU, or interpreted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, pytestmark  # noqa: F401
from torch import Tensor

from softspin.distributions import SmoothedBernoulli
from softspin.kernels.draw import draw_gaussian
from softspin.numerics import open_uniform
from softspin.smoothing import Gaussian, ShiftedGaussian

triton = pytest.importorskip("triton", reason="Triton is not installed")
gpu_gaussian = pytest.importorskip("softspin.kernels.gpu_gaussian", reason="Triton is not installed")

import triton.language as tl  # noqa: E402

WIDTHS = (0.05, 40**-0.5, 0.3, 1.5)
"""Smallest width of a replica; the second is that of beta = 40. The first is the smallest of the method."""


class Inputs(NamedTuple):
    """Outputs of a net, noise, parameters and gradients. Slices of them, so that rows are not adjacent, are used."""

    out: Tensor
    """Logits to +-12 and shifts, `(R, 1 or K, batch, 2 bits)`."""
    uniforms: Tensor
    """`(R, 2, K, batch, bits + 3)`, with both ends of the interval."""
    width: Tensor
    """`(R, 1, 1, bits)` if it is trained, else `(R, 1, 1, 1)`."""
    to_zeta: Tensor
    """`(R, K, batch, 2 bits)`."""
    to_rows: Tensor
    """Gradients of log ratios and log bases, `(2, R, K, batch)`."""

    @property
    def bits(self) -> int:
        return self.out.shape[-1] // 2

    @property
    def shifted(self) -> bool:
        return self.width.shape[-1] == self.bits

    @property
    def logits(self) -> Tensor:
        return self.out[..., : self.bits]

    @property
    def shift(self) -> Tensor | None:
        return self.out[..., self.bits :] if self.shifted else None

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        return self.uniforms[:, 0, ..., 3:], self.uniforms[:, 1, ..., 3:]

    def on(self, device: str, dtype: torch.dtype) -> Inputs:
        """A copy whose outputs and widths are leaves that require gradients."""
        made = Inputs(*(x.detach().to(device, dtype) for x in self))
        made.out.requires_grad_(), made.width.requires_grad_(self.shifted)
        return made

    def replica(self, index: int) -> Inputs:
        at = slice(index, index + 1)
        return Inputs(self.out[at], self.uniforms[at], self.width[at], self.to_zeta[at], self.to_rows[:, at])


def inputs(shared: bool, shifted: bool, samples: int, batch: int, bits: int) -> Inputs:
    g = torch.Generator().manual_seed(bits)
    replicas = len(WIDTHS)
    out = torch.rand(replicas, 1 if shared else samples, batch, 2 * bits, generator=g) - 0.5
    out[..., :bits] *= 24
    uniforms = open_uniform((replicas, 2, samples, batch, bits + 3), generator=g)
    uniforms[:, 1, 0, 0, 3:5] = torch.tensor([2.0**-25, 1 - 2.0**-24])[:bits]
    width = torch.tensor(WIDTHS)[:, None, None, None]
    if shifted:
        width = width * (1 + torch.rand(replicas, 1, 1, bits, generator=g))
    to_zeta = torch.randn(replicas, samples, batch, 2 * bits, generator=g)
    return Inputs(out, uniforms, width, to_zeta, torch.randn(2, replicas, samples, batch, generator=g))


Way: TypeAlias = Callable[[Inputs], tuple[Tensor, Tensor, Tensor]]


def plain(given: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """zeta, and sums of log ratios and log bases, by the distribution."""
    smoothing = Gaussian(given.width**-2) if given.shift is None else ShiftedGaussian(given.width, given.shift)
    posterior = SmoothedBernoulli(given.logits.expand(given.pair[0].shape), smoothing)
    soft = posterior.draw(uniforms=given.pair)
    return soft.zeta, posterior.log_ratio(soft).sum(-1), soft.log_base.sum(-1)


def fused(given: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    return draw_gaussian(given.logits, *given.pair, given.width**-2, given.shift)


def with_gradients(way: Way, given: Inputs, device: str, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Results of one implementation, and all gradients."""
    given = given.on(device, dtype)
    results = way(given)
    torch.autograd.backward(results, [given.to_zeta[..., : given.bits], *given.to_rows])
    assert given.out.grad is not None
    found = dict(zip(("zeta", "ratio", "base"), results, strict=True))
    found |= {"to_logits": given.out.grad[..., : given.bits], "to_shift": given.out.grad[..., given.bits :]}
    if given.width.grad is not None:
        found["to_width"] = given.width.grad
    return {name: value.detach().cpu() for name, value in found.items()}


def errors(got: dict[str, Tensor], want: dict[str, Tensor]) -> dict[str, float]:
    """Largest error of each, relative to 1 + abs(value); for widths, to 1 + the largest of the replica."""
    scales = {name: 1 + value.abs() for name, value in want.items()}
    if "to_width" in want:
        scales["to_width"] = 1 + want["to_width"].abs().amax(-1, keepdim=True)
    assert got.keys() == want.keys()
    return {name: ((got[name].double() - want[name]).abs() / scales[name]).max().item() for name in want}


def check(way: Way, given: Inputs) -> None:
    """Compare with float64. The limits are about 10 times the errors under the interpreter."""
    found = errors(with_gradients(way, given, DEVICE), with_gradients(plain, given, "cpu", torch.float64))
    assert all(error < LIMITS[name] for name, error in found.items()), found


LIMITS = {"zeta": 2e-6, "ratio": 1e-5, "base": 2e-5, "to_logits": 1e-4, "to_width": 5e-5, "to_shift": 2e-6}
shifts = pytest.mark.parametrize("shifted", [True, False], ids=["shifted", "fixed"])


@shifts
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 3, 33), (3, 7, 3)])
def test_the_kernels_equal_the_distribution(shared: bool, shifted: bool, shape: tuple[int, int, int]) -> None:
    check(fused, inputs(shared, shifted, *shape))


@shifts
def test_the_kernels_are_as_accurate_as_the_distribution_in_float32(shifted: bool) -> None:
    """At most three times its errors, or three roundings; on a GPU, with fast logarithms, ten times."""
    given = inputs(False, shifted, 5, 8, 40)
    want = with_gradients(plain, given, "cpu", torch.float64)
    found, other = (errors(with_gradients(way, given, at), want) for way, at in ((fused, DEVICE), (plain, "cpu")))
    assert all(error < (3 if INTERPRETED else 10) * max(other[name], 1.2e-7) for name, error in found.items()), (
        found,
        other,
    )


@shifts
def test_a_replica_does_not_depend_on_the_others(shifted: bool) -> None:
    given = inputs(False, shifted, 3, 7, 5)
    together = with_gradients(fused, given, DEVICE)
    for i in range(len(WIDTHS)):
        alone = with_gradients(fused, given.replica(i), DEVICE)
        assert all(torch.equal(together[name][i : i + 1], alone[name]) for name in together)


@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")  # Dynamo's own
@shifts
def test_compiled_as_one_graph(shifted: bool) -> None:
    """The operators have shapes for the compiler. Under the interpreter, it calls them without generated code."""
    check(
        torch.compile(fused, fullgraph=True, backend="aot_eager" if INTERPRETED else "inductor"),
        inputs(True, shifted, 3, 5, 7),
    )


@pytest.mark.parametrize("blocks", [1, 32, 71])
def test_sums_over_blocks(blocks: int) -> None:
    parts = torch.randn(blocks, 45, generator=torch.Generator().manual_seed(blocks))
    out = torch.empty(45, device=DEVICE)
    gpu_gaussian.totals[(2,)](parts.to(DEVICE), out, blocks, 45)
    torch.testing.assert_close(out.cpu(), parts.sum(0))


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="many rows are slow under the interpreter")
@shifts
@pytest.mark.parametrize("shared", [True, False])
def test_many_rows_on_a_gpu(shared: bool, shifted: bool) -> None:
    given = inputs(shared, shifted, 25, 20, 200)
    check(fused, given)
    one, other = (with_gradients(fused, given, DEVICE) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@triton.jit  # type: ignore[untyped-decorator]
def evaluate(x, out, n, QUANTILE: tl.constexpr, FAST: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, mask=at < n, other=0.5)
    value = gpu_gaussian.normal_quantile(value, FAST) if QUANTILE else gpu_gaussian.mills(value)
    tl.store(out + at, value, mask=at < n)


def evaluated(x: Tensor, quantile: bool) -> Tensor:
    x, size = x.float().to(DEVICE), 4096
    out = torch.empty_like(x)
    evaluate[(triton.cdiv(len(x), size),)](x, out, len(x), QUANTILE=quantile, FAST=gpu_gaussian.FAST, SIZE=size)
    return out.double().cpu()


def test_normal_quantiles() -> None:
    """Both ends, the center, and a grid of uniforms that are multiples of 2^-24, to a relative error of 1e-6."""
    ends = torch.arange(1, 1000, dtype=torch.float64) * 2.0**-24
    grid = torch.linspace(2, 2**24 - 2, 50_000, dtype=torch.float64).round() * 2.0**-24
    u = torch.cat([ends, 1 - ends, 0.5 + ends, 0.5 - ends, grid, torch.tensor([0.5, 2.0**-25])])
    want = torch.special.ndtri(u)
    assert ((evaluated(u, quantile=True) - want).abs() <= 1e-6 * want.abs()).all()


def test_mills_ratios() -> None:
    """From 0 to 1e4, to a relative error of 1e-6."""
    y = torch.cat([torch.zeros(1), torch.logspace(-6, 4, 50_000)]).float().double()
    want = math.sqrt(math.pi / 2) * torch.special.erfcx(y / math.sqrt(2))
    assert ((evaluated(y, quantile=False) - want).abs() <= 1e-6 * want).all()
