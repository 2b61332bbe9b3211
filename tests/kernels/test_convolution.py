"""Compare the kernels of convolutions with torch in float64: on a GPU if there is one, else by Triton's interpreter."""

from __future__ import annotations

import copy
from unittest.mock import MagicMock

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401
from kernels.test_hidden import errors
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from training.runs import small

from softspin.data.dataset import DataSpec
from softspin.kernels import hidden, support
from softspin.kernels.convolution import convolution, is_fused, transposed_convolution
from softspin.nets import Conv, Convolution, NetSpec, convolutions

pytest.importorskip("softspin.kernels.gpu_convolution", reason="Triton is not installed")

CASES = [
    ((7,), 3, 4, 3), ((12,), 9, 17, 3), ((40,), 2, 3, 40), ((5, 6), 1, 4, 16), ((4, 5), 33, 5, 2), ((3,), 70, 3, 2),
    ((3,), 2, 130, 1),
    pytest.param((3, 2), 70, 3, 2, marks=pytest.mark.slow), pytest.param((2, 3), 2, 130, 1, marks=pytest.mark.slow),
]  # fmt: skip
"""Sizes of the larger maps, channels of the larger and of the smaller ones, images: of one and of several tiles."""


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def halved(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-size // 2) for size in sizes)


def by_torch(maps: Tensor, weight: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
    """Each replica by torch's functions, whose maps have channels first; with `sizes` the transpose."""
    axes, found = maps.ndim - 3, []
    for kernel, own in zip(weight, maps.movedim(-1, 2), strict=True):
        if sizes is None:
            function = conv1d if axes == 1 else conv2d
            found.append(function(own, kernel.movedim((-1, -2), (0, 1)), stride=2, padding=2))
        else:
            rest = [size - 2 * before + 1 for size, before in zip(sizes, own.shape[2:], strict=True)]
            transpose = conv_transpose1d if axes == 1 else conv_transpose2d
            kernel_first = kernel.movedim((-2, -1), (0, 1))
            found.append(transpose(own, kernel_first, stride=2, padding=2, output_padding=rest))
    return torch.stack(found).movedim(2, -1)


def outcome(out: Tensor, *wanted: Tensor) -> list[Tensor]:
    """The result, and the gradients of its factors for a random gradient of the result."""
    towards = normal(*out.shape, seed=5).to(out)
    return [out.detach(), *torch.autograd.grad((out * towards).sum(), wanted)]


def both(*tensors: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Trained tensors in float64 and in float32."""
    exact, rounded = ([one.to(dtype).requires_grad_() for one in tensors] for dtype in (torch.float64, torch.float32))
    return exact, rounded


@pytest.mark.parametrize(("sizes", "many", "few", "images"), CASES)
def test_values_and_gradients(sizes: tuple[int, ...], many: int, few: int, images: int) -> None:
    """Convolutions from `many` to `few` channels, and their transposes from `few` to `many`."""
    kernel = (5,) * len(sizes)
    exact, rounded = both(normal(2, images, *sizes, many), normal(2, *kernel, many, few, seed=1) / many**0.5)
    found = outcome(convolution(rounded[0], rounded[1]), *rounded)
    assert max(errors(found, outcome(by_torch(exact[0], exact[1]), *exact))) < 2e-6
    exact, rounded = both(normal(2, images, *halved(sizes), few), normal(2, *kernel, few, many, seed=1) / few**0.5)
    found = outcome(transposed_convolution(rounded[0], rounded[1], sizes), *rounded)
    assert max(errors(found, outcome(by_torch(exact[0], exact[1], sizes), *exact))) < 2e-6


@pytest.mark.parametrize("factor", [1e-20, 1e6])
def test_gradients_of_any_size(factor: float) -> None:
    """The range of float16 does not limit the gradient of the result, and a gradient of 0 gives 0."""
    exact, rounded = both(normal(2, 2, 4, 5, 3), normal(2, 5, 5, 3, 4, seed=1))
    for size in (factor, 0.0):
        towards = size * normal(2, 2, 2, 3, 4, seed=2)
        found = torch.autograd.grad(convolution(rounded[0], rounded[1]), rounded, towards.float())
        expected = torch.autograd.grad(by_torch(exact[0], exact[1]), exact, towards)
        assert max(errors(list(found), list(expected))) < 2e-6


def test_a_replica_does_not_depend_on_the_others() -> None:
    """Bit for bit, also if another is not finite."""
    maps, weight = normal(3, 2, 5, 4, 3).float(), normal(3, 5, 5, 3, 9, seed=1).float()
    maps[0] = torch.nan
    several = outcome(convolution(maps.requires_grad_(), weight.requires_grad_()), maps, weight)
    one, own = maps.detach()[1:2].requires_grad_(), weight.detach()[1:2].requires_grad_()
    out = convolution(one, own)
    towards = normal(*several[0].shape, seed=5).float()[1:2]
    single = [out.detach(), *torch.autograd.grad((out * towards).sum(), [one, own])]
    assert several[0][0].isnan().all()
    assert all(torch.equal(x[1], y[0]) for x, y in zip(several, single, strict=True))


def test_maps_with_more_places_than_32_bits_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "DEVICES", {"meta"})
    few, many = torch.empty(1, 1000, 14, 14, 32, device="meta"), torch.empty(1, 11_000, 64, 64, 32, device="meta")
    assert is_fused(few, (28, 28), 1)
    assert not is_fused(few[:, :1, :2], (4, 28), 1)  # too few
    assert is_fused(many, (32, 32), 32)
    assert not is_fused(many, (128, 128), 32)


@pytest.mark.parametrize("transposed", [False, True])
def test_data_beyond_the_range_of_float16(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of 1e9 in one replica and of 1e-3 in the other."""
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", 8)
    used = MagicMock(wraps=transposed_convolution if transposed else convolution)
    monkeypatch.setattr(convolutions, used._mock_wraps.__name__, used)
    generators = [torch.Generator().manual_seed(seed) for seed in (3, 1)]
    one = Convolution(3, 4, (5, 4) if transposed else (3, 2), generators, transposed=transposed).to(DEVICE)
    maps = normal(2, 2, *((3, 2) if transposed else (5, 4)), 3) * torch.tensor([1e9, 1e-3]).view(2, 1, 1, 1, 1).to(
        DEVICE
    )
    found = one(maps.float())
    assert used.call_count == 1
    expected = one.double()(maps)
    assert max(errors(list(found.detach()), list(expected.detach()))) < 2e-6


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler about its imports
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_a_compiled_net_has_the_same_gradients(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a net with two convolutions as one graph, forward and backward; the reference is plain, in float64."""
    # The compiler disables the validation of all distributions permanently.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    monkeypatch.setattr(support, "DEVICES", {DEVICE})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", 12)
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    data = DataSpec((9, 6), torch.full((54,), 0.5))
    decodes = role == "decoder"
    spec = NetSpec("decoder", 0, (7,), 54, data) if decodes else NetSpec("encoder", 1, (54, 4), 5, data)
    net = Conv.build(small(net="conv", channels=3), spec, generators).to(DEVICE).train()
    twin = copy.deepcopy(net).double()
    inputs = [normal(2, 3, 4, 7).sigmoid()] if decodes else [normal(2, 1, 4, 54), normal(2, 3, 4, 4).sigmoid()]
    grad = normal(2, 3, 4, spec.outputs, seed=1)
    results = []
    for one, dtype in ((net, torch.float32), (twin, torch.float64)):
        backend = "inductor" if DEVICE == "cuda" else "aot_eager"
        run = torch.compile(one, backend=backend, fullgraph=True) if one is net else one
        parts = [part.to(dtype) for part in inputs]
        bits = parts[-1].requires_grad_()
        out = run(*parts)
        # Biases under batch norm have no gradient.
        trained = [p for name, p in one.named_parameters() if not name.endswith("linears.0.bias")]
        results.append([out.detach(), *torch.autograd.grad(out, [bits, *trained], grad.to(dtype))])
        results[-1] += list(one.buffers())
    assert max(errors(*results)) < 2e-5
