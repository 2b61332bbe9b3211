"""Compare the fused step of Adam with its formula in float64: on a GPU, or under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.test_gpu import DEVICE, INTERPRETED, pytestmark  # noqa: F401
from torch import Tensor, nn

from softspin.training.adam import Adam

gpu_adam = pytest.importorskip("softspin.kernels.gpu_adam", reason="Triton is not installed")


def table(replicas: int, count: int, seed: int) -> Tensor:
    return torch.randn(replicas, count, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize(
    ("replicas", "count", "own_epsilons", "by_replica"),
    [
        (1, 1, False, False), (3, 1023, False, False), (2, 1028, False, False), (2, 2050, False, False),
        (3, 1023, True, False), (2, 2052, True, False), (3, 1023, False, True), (2, 2052, True, True),
    ],
)  # fmt: skip
def test_the_kernel_equals_the_formula(replicas: int, count: int, own_epsilons: bool, by_replica: bool) -> None:
    value, first, gradient = (table(replicas, count, seed) for seed in range(3))
    second = table(replicas, count, 3).square()
    decay = torch.linspace(0, 0.1, count, device=DEVICE)
    sizes = torch.tensor([0.3, 1.7], device=DEVICE)
    if by_replica:
        decay = table(replicas, count, 4).square()
        sizes = torch.tensor([[0.3 + i, 1.7 * i + 1] for i in range(replicas)], device=DEVICE)
    s, r = (one.double()[..., None] for one in sizes.unbind(-1))
    squares = torch.full((replicas, -(-count // gpu_adam.BLOCK)), torch.nan, device=DEVICE)
    g = gradient.double() + decay.double() * value.double()
    m = 0.9 * first.double() + 0.1 * g
    v = 0.999 * second.double() + 0.001 * g.square()
    epsilons = torch.linspace(0.01, 1, count, device=DEVICE) if own_epsilons else None
    want = value.double() - s * m / (r * v.sqrt() + (0.01 if epsilons is None else epsilons.double()))
    gpu_adam.launch(value, first, second, gradient, decay, sizes, squares, 0.9, 0.999, 0.01, epsilons)
    for got, expected in ((value, want), (first, m), (second, v)):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(squares.sum(-1), gradient.square().sum(-1))


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="operators on tensors of a GPU need a GPU")
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_steps_on_a_gpu_equal_those_of_a_cpu(corrected: bool, compiled: bool) -> None:
    made = {}
    for device in ("cpu", "cuda"):
        parameters = [(nn.Parameter(table(3, 700, 5).to(device)), 0.1), (nn.Parameter(table(3, 9, 6).to(device)), 0.0)]
        adam = Adam(parameters, 3, corrected=corrected)
        step = torch.compile(adam.step) if compiled and device == "cuda" else adam.step
        for number in range(1, 5):
            gradient = table(3, 709, 10 + number).to(device)
            norm = step(gradient, torch.tensor(0.01, device=device), torch.tensor(number, device=device))
        made[device] = adam.value, adam.first, adam.second, norm, parameters[0][0].detach()
    for one, other in zip(*made.values(), strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-5, atol=1e-6)
