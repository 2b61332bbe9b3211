"""Compare the kernel for small products with float64: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401
from torch import Tensor

from softspin.kernels import matmul
from softspin.nets import Linear

gpu_matmul = pytest.importorskip("softspin.kernels.gpu_matmul", reason="Triton is not installed")

TILE = gpu_matmul.Tile(32, 32, 16, warps=2, stages=3, split_k=1)
TILES = [TILE._replace(rows=16, depth=32), TILE, TILE._replace(rows=64)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def error(got: Tensor, a: Tensor, b: Tensor) -> float:
    """Compute the largest error, in units of the Cauchy-Schwarz bound on an entry."""
    got, a, b = (x.detach().double() for x in (got, a, b))
    scale = a.norm(dim=-1)[..., :, None] * b.norm(dim=-2)[..., None, :]
    return float(((got - a @ b).abs() / scale.clamp_min(1e-300)).max())


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def table(x: Tensor) -> Tensor:
    """Store x like the parameters of a model: each replica is part of a longer row, at an odd offset."""
    replicas = len(x)
    row = torch.full((replicas, 3 + x[0].numel() + 2), torch.nan, device=x.device)
    row[:, 3 : 3 + x[0].numel()] = x.reshape(replicas, -1)
    return row[:, 3 : 3 + x[0].numel()].view(x.shape)


def spaced(x: Tensor) -> Tensor:
    """Store x without a dimension of stride 1."""
    return x.repeat_interleave(2, -1)[..., ::2]


LAYOUTS: list[Callable[[Tensor], Tensor]] = [torch.clone, transposed, table, spaced]


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 3, 70), (33, 65, 31), (40, 68, 100)])
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("tile", TILES)
def test_products_of_odd_shapes(m: int, n: int, k: int, split_k: int, tile: Any) -> None:
    """The error of an entry is about 1e-7 of its bound in float32, and 1e-4 in TF32. Empty parts are zeros."""
    a, b = normal(2, m, k), normal(2, k, n, seed=1)
    parts = gpu_matmul.launch(a, b, tile._replace(split_k=split_k), tf32=False)
    assert parts.shape == (split_k, 2, m, n)
    assert error(parts.sum(0), a, b) < 5e-7


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize(("m", "n", "k"), [(28, 40, 44), (7, 9, 35)])
def test_any_strides(
    left: Callable[[Tensor], Tensor], right: Callable[[Tensor], Tensor], m: int, n: int, k: int
) -> None:
    a, b = left(normal(2, m, k)), right(normal(2, k, n, seed=1))
    assert error(gpu_matmul.launch(a, b, TILE, tf32=False)[0], a, b) < 5e-7


def test_numbers_are_rounded_to_the_nearest_of_tf32() -> None:
    """A product with 1 is the number itself, rounded to ten bits or exact."""
    x = torch.tensor([1 + 2**-11 - 2**-20, 1 + 2**-11 + 2**-20, -3 - 2**-10 - 2**-20, 2.0**-100, 0.0], device=DEVICE)
    near = torch.tensor([1.0, 1 + 2**-10, -3 - 2**-9, 2.0**-100, 0.0], device=DEVICE)
    one = torch.ones(1, 1, 1, device=DEVICE)
    assert torch.equal(gpu_matmul.launch(x[None, :, None], one, TILE, tf32=True).flatten(), near)
    assert torch.equal(gpu_matmul.launch(x[None, :, None], one, TILE, tf32=False).flatten(), x)


def test_tf32_is_used_where_torch_may_use_it() -> None:
    a, b = normal(1, 20, 50), normal(1, 50, 30, seed=1)
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "tf32"
        assert 1e-5 < error(matmul.joined(a, b), a, b) < 1e-3
        products.fp32_precision = "ieee"
        assert error(matmul.joined(a, b), a, b) < 5e-7
    finally:
        products.fp32_precision = before


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, under the interpreter
@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("nan", [0x7FC00000, 0x7FFFFFFF, -1])  # of a CPU, of a GPU, and with a sign
def test_non_finite_values_propagate(tf32: bool, nan: int) -> None:
    a, b = normal(1, 4, 8), normal(1, 8, 4, seed=1)
    a[0, 1, 2], b[0, 3, 3] = torch.tensor(nan, dtype=torch.int32).view(torch.float32), torch.inf
    found = gpu_matmul.launch(a, b, gpu_matmul.tile_for(4, 4, 8), tf32)[0, 0].isfinite()
    assert not found[1].any()
    assert not found[:, 3].any()
    assert found[[0, 2, 3], :3].all()


@pytest.mark.parametrize(("m", "n", "k"), [(20, 30, 200), (7, 66, 33)])
def test_gradients(m: int, n: int, k: int) -> None:
    a, b, back = normal(2, m, k).requires_grad_(), normal(2, k, n, seed=1).requires_grad_(), normal(2, m, n, seed=2)
    out = matmul._Product.apply(a, b)
    found = torch.autograd.grad(out, (a, b), back)
    assert error(out, a, b) < 5e-7
    assert error(found[0], back, b.mT) < 5e-7
    assert error(found[1], a.mT, back) < 5e-7
    summed = torch.autograd.grad(matmul._Product.apply(a, b).sum(), a)[0]  # an expanded scalar as gradient
    assert error(summed, torch.ones_like(back), b.mT) < 5e-7


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k", "p", "q", "r"),
    [
        (3, 7, 600, 33, 40, 9),
        pytest.param(36, 72, 40, 5, 9, 600, marks=pytest.mark.slow),
        pytest.param(100, 800, 3, 40, 3, 7, marks=pytest.mark.slow),
    ],
)
def test_two_products_in_one_launch_equal_two_launches(
    layout: Callable[[Tensor], Tensor], m: int, n: int, k: int, p: int, q: int, r: int
) -> None:
    """The results agree bit for bit, for different shapes, strides, tiles and split_k."""
    a, b = layout(normal(2, m, k)), normal(2, k, n, seed=1)
    c, d = normal(2, p, r, seed=2), layout(normal(2, r, q, seed=3))
    one, two = matmul.matmul_pair(a, b, c, d)
    assert torch.equal(one, matmul.joined(a, b))
    assert torch.equal(two, matmul.joined(c, d))


def test_two_products_of_unlike_tiles() -> None:
    """The tile of one product is 16 high, with a split sum; that of the other is 64 high."""
    tiles = [gpu_matmul.tile_for(*shape) for shape in ((5, 9, 600), (130, 800, 2))]
    assert [(tile.rows, tile.split_k > 1) for tile in tiles] == [(16, True), (64, False)]
    test_two_products_in_one_launch_equal_two_launches(transposed, 130, 800, 2, 5, 9, 600)


def test_a_replica_does_not_depend_on_the_others() -> None:
    a, b = normal(3, 30, 600), normal(3, 600, 40, seed=1)
    assert gpu_matmul.tile_for(30, 40, 600).split_k > 1
    together = matmul.joined(a, b)
    for own in (slice(0, 1), slice(1, 3)):
        assert torch.equal(matmul.joined(a[own], b[own]), together[own])


@pytest.mark.parametrize("rows", [1, 100, 2500, 4096])
def test_tiles_cover_the_shapes_of_networks(rows: int) -> None:
    """Two products share a launch, so all tiles have the same warps and stages. No part of a sum is empty."""
    for n in (1, 200, 784):
        for k in (1, 100, 200, 784, 2500, 4096):
            tile = gpu_matmul.tile_for(rows, n, k)
            steps = -(-k // tile.depth)
            assert (tile.warps, tile.stages) == (2, 3)
            assert 1 <= tile.split_k <= 7
            assert -(-steps // tile.split_k) * (tile.split_k - 1) < steps


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
def test_a_compiled_layer_has_the_products_and_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a layer with two inputs as one graph, forward and backward."""
    monkeypatch.setattr(matmul, "latency_bound", lambda rows, weight: True)
    # The compiler disables the validation of all distributions permanently.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    layer = Linear(50, 12, [torch.Generator().manual_seed(s) for s in range(2)]).to(DEVICE)
    parts = [normal(2, 1, 7, 20).requires_grad_(), normal(2, 3, 7, 30, seed=1).requires_grad_()]
    wanted = [*parts, layer.weight]
    out = torch.compile(layer, backend="aot_eager", fullgraph=True)(*parts)
    found = torch.autograd.grad(out.square().sum(), wanted)
    monkeypatch.setattr(matmul, "latency_bound", lambda rows, weight: False)
    exact = layer.double()(*(part.double() for part in parts))
    assert torch.allclose(out.double(), exact, atol=1e-5)
    for got, right in zip(found, torch.autograd.grad(exact.square().sum(), wanted), strict=True):
        assert torch.allclose(got.double(), right.double(), rtol=1e-4, atol=1e-4)


def test_on_a_cpu_torch_computes_the_product() -> None:
    a, b = normal(2, 30, 20).cpu().requires_grad_(), normal(2, 20, 10).cpu()
    assert not matmul.latency_bound(a, b)
    assert torch.equal(matmul.product(a, b), a @ b)
    assert not matmul.latency_bound(a.double().to(DEVICE), b.double().to(DEVICE))
    far = torch.empty(2, 5000, 20, device=DEVICE).requires_grad_()
    assert not matmul.latency_bound(far, b.to(DEVICE))
    assert matmul.latency_bound(far[:, :100], b.to(DEVICE)) == (DEVICE == "cuda")
