"""Convolutions by the kernels of products against float64: on a GPU if there is one, else by Triton's interpreter."""

from __future__ import annotations

import copy
import math
from unittest.mock import MagicMock

import pytest
import torch
from kernels.test_gpu import DEVICE, pytestmark  # noqa: F401
from kernels.test_hidden import errors
from nets.test_patches import by_torch, halved, layer, normal, outcome
from training.runs import small

from softspin.data.dataset import DataSpec
from softspin.kernels import hidden, support
from softspin.nets import Conv, NetSpec, convolutions

pytest.importorskip("softspin.kernels.gpu_halves", reason="Triton is not installed")


@pytest.mark.parametrize("scale", [1.0, 1e9])
@pytest.mark.parametrize("transposed", [False, True])
def test_kernels_have_the_accuracy_of_float32(transposed: bool, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for data beyond the range of float16, one replica of which is much smaller than the other."""
    sizes = (9, 6)
    one = layer(sizes, transposed).to(DEVICE)
    images = math.ceil(400 / math.prod(halved(sizes)))
    maps = normal(2, images, *(halved(sizes) if transposed else sizes), 4 if transposed else 3)
    maps = maps * torch.tensor([scale, 1e-3], dtype=torch.float64).view(2, *(1 for _ in maps.shape[1:]))
    maps = maps.to(DEVICE).requires_grad_()
    expected = outcome(by_torch(one, maps), maps, one.weight)
    monkeypatch.setattr(support, "DEVICES", {"cuda", torch.device(DEVICE).type})
    linear = MagicMock(wraps=hidden.linear)
    monkeypatch.setattr(convolutions, "linear", linear)
    small = maps.detach().float().requires_grad_()
    found = outcome(one.float()(small), small, one.weight)
    assert linear.call_count == 1
    for a, b in zip(found, expected, strict=True):
        for r in range(2):
            assert (a[r].double() - b[r]).abs().max() < 2e-6 * b[r].abs().max()


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
    grad = normal(2, 3, 4, spec.outputs, seed=1).to(DEVICE)
    results = []
    for one, dtype in ((net, torch.float32), (twin, torch.float64)):
        backend = "inductor" if DEVICE == "cuda" else "aot_eager"
        run = torch.compile(one, backend=backend, fullgraph=True) if one is net else one
        parts = [part.to(DEVICE, dtype) for part in inputs]
        bits = parts[-1].requires_grad_()
        out = run(*parts)
        # Biases under batch norm have no gradient.
        trained = [p for name, p in one.named_parameters() if not name.endswith("linears.0.bias")]
        results.append([out.detach(), *torch.autograd.grad(out, [bits, *trained], grad.to(dtype))])
        results[-1] += list(one.buffers())
    assert max(errors(*results)) < 2e-5
