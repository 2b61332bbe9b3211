"""Convolutions as products of patches, against torch's own in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, conv_transpose1d, conv_transpose2d

from softspin.nets import Convolution, convolutions
from softspin.nets.patches import patches, sum_patches

SIZES = [(7,), (12,), (5, 6), (4, 9)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def halved(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-size // 2) for size in sizes)


def layer(sizes: tuple[int, ...], transposed: bool) -> Convolution:
    """Two replicas of a convolution of 3 channels to 4, from `sizes` to their half, or its transpose."""
    generators = [torch.Generator().manual_seed(seed) for seed in (3, 1)]
    inputs, outputs, result = (4, 3, sizes) if transposed else (3, 4, halved(sizes))
    return Convolution(inputs, outputs, result, generators, transposed=transposed).double()


def by_torch(one: Convolution, maps: Tensor) -> Tensor:
    """Each replica by torch's function for channels before the axes."""
    axes, found = len(one.sizes), []
    for weight, own in zip(one.weight, maps.movedim(-1, 2), strict=True):
        if one.transposed:
            rest = [size - 2 * before + 1 for size, before in zip(one.sizes, own.shape[2:], strict=True)]
            transpose = conv_transpose1d if axes == 1 else conv_transpose2d
            found.append(transpose(own, weight, stride=2, padding=2, output_padding=rest))
        else:
            found.append((conv1d if axes == 1 else conv2d)(own, weight, stride=2, padding=2))
    return torch.stack(found).movedim(2, -1)


def outcome(out: Tensor, maps: Tensor, weight: Tensor) -> list[Tensor]:
    """The result, and the gradients of maps and weight for a random one of the result."""
    towards = normal(*out.shape, seed=5).to(out)
    return [out, *torch.autograd.grad((out * towards).sum(), [maps, weight])]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_product_is_the_convolution(
    sizes: tuple[int, ...], transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients in float64, with torch's product in place of the kernel."""
    one = layer(sizes, transposed)
    maps = normal(2, 3, *(halved(sizes) if transposed else sizes), 4 if transposed else 3).requires_grad_()
    expected = outcome(by_torch(one, maps), maps, one.weight)
    torch.testing.assert_close(outcome(one(maps), maps, one.weight), expected)  # grouped
    monkeypatch.setattr(convolutions, "is_fused", lambda maps: True)
    monkeypatch.setattr(convolutions, "linear", torch.matmul)
    torch.testing.assert_close(outcome(one(maps, bounded=True), maps, one.weight), expected)


@pytest.mark.parametrize("sizes", SIZES)
def test_sums_of_patches_are_the_transpose_of_patches(sizes: tuple[int, ...]) -> None:
    """<patches(a), b> = <a, sum_patches(b)>."""
    a = normal(2, 3, *sizes, 4)
    b = normal(2, 3, *halved(sizes), 4 * 5 ** len(sizes), seed=1)
    torch.testing.assert_close((patches(a) * b).sum(), (a * sum_patches(b, sizes)).sum())
