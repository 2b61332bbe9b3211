"""The bound of every method on a GPU: what a CUDA graph needs is shown on tensors without values; the rest on a GPU."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from samplers.capture import NoHostData, unknown
from torch import Tensor
from training.runs import bars, small

from softspin.methods import METHODS
from softspin.model import build
from softspin.samplers import NegativePhase
from softspin.training import engine
from softspin.training.engine import REFRESH, Engine
from softspin.training.objective import objective

methods = pytest.mark.parametrize("method", METHODS)
groups = pytest.mark.parametrize("groups", [1, 2])
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# What torch 2.11 says when it compiles for a GPU, of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch._prims_common.check:FutureWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]


def on_gpu(**changes: Any) -> Engine:
    """Two replicas of 2 samples."""
    config = small(
        bits=4, layers=2, samples=2, seeds=(0, 1), chains=100, steps=1000, sweeps=3, device="cuda", **changes
    )
    return Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))


@methods
@groups
def test_the_bound_and_its_gradient_read_nothing(method: str, groups: int) -> None:
    config = small(method=method, groups=groups, bits=4, samples=2, seeds=(0, 1))
    model = build(config, bars().spec).to("meta").train()
    with NoHostData():
        terms = objective(
            model, unknown(2, 5, 9), unknown(2, 2, 2, 5, model.units), unknown(2), unknown(2), unknown(), 3
        )  # fmt: skip
        terms.bound.sum().backward()
    assert all(part.shape == (2,) for part in terms)


@needs_gpu
@methods
@groups
def test_the_compiled_bound_and_its_gradient_are_those_of_the_cpu(method: str, groups: int) -> None:
    made = on_gpu(method=method, groups=groups)
    twin = build(made.config, bars().spec).train()
    with torch.no_grad():
        made.model.prior_parameters.weight.normal_(generator=torch.Generator("cuda").manual_seed(0)).mul_(0.3)
    twin.load_state_dict({name: value.cpu() for name, value in made.model.state_dict().items()})
    generator = torch.Generator().manual_seed(1)
    rows = bars().train[:4].expand(2, 4, 9)
    uniforms = torch.rand(2, 2, 2, 4, twin.units, generator=generator).clamp(1e-4, 1 - 1e-4)
    warmup, log_z, beta = torch.tensor(0.7), made.log_z.cpu(), made.prior_beta.cpu()
    loss, terms = made._forward(rows.cuda(), None, uniforms.cuda(), warmup.cuda())
    loss.backward()
    expected = objective(twin, rows.float(), uniforms, log_z, beta, warmup, made.config.mean_field_steps)
    (-expected.bound.sum()).backward()
    assert torch.allclose(terms.cpu(), torch.stack(expected, dim=-1).detach(), rtol=1e-4, atol=1e-4)
    for (name, one), other in zip(made.model.named_parameters(), twin.parameters(), strict=True):
        if other.grad is None:
            assert one.grad is None or not one.grad.any(), name
            continue
        assert one.grad is not None, name
        assert (one.grad.cpu() - other.grad).abs().max() < 1e-3 * (1 + other.grad.abs().max()), name


@needs_gpu
@methods
@pytest.mark.parametrize("compile", ["on", "off"])
def test_captured_updates_are_the_eager_ones(method: str, compile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve updates one way and the other, and no number that is not one beyond two looks at the eigenvalues."""
    captured = on_gpu(method=method, compile=compile)
    for _ in range(12):
        captured.step()
    assert captured._graph is not None
    monkeypatch.setattr(engine, "EAGER", 12)
    eager = on_gpu(method=method, compile=compile)
    for _ in range(12):
        eager.step()
    assert eager._graph is None
    for (name, one), other in zip(captured.model.state_dict().items(), eager.model.state_dict().values(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), name
    for _ in range(2 * REFRESH):
        captured.step()
    assert bool((captured.broken < 0).all())


class Cycle:
    """What only the garbage collector finds, as an engine that is done: its compiled parts know it, and it them."""

    def __init__(self) -> None:
        self.itself = self


def test_an_engine_that_is_done_does_not_end_within_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch does not collect before it captures any more, and a graph that is freed meanwhile spoils the capture."""

    class Graph:
        """In place of torch's, which needs a GPU."""

        def replay(self) -> None: ...

    @contextlib.contextmanager
    def capture(graph: Graph) -> Iterator[None]:
        assert alive() is None
        yield

    config = small()
    made = Engine(config, build(config, bars().spec), bars(), torch.device("cpu"))
    made._eager = engine.EAGER
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    gc.disable()
    try:
        alive = weakref.ref(Cycle())
        assert alive() is not None
        made._replay()
    finally:
        gc.enable()


@needs_gpu
def test_a_second_engine_can_be_captured_when_a_first_is_done() -> None:
    gc.disable()
    try:
        done = on_gpu(method="dvae#-power", compile="off")
        for _ in range(engine.EAGER + 1):
            done.step()
        assert done._graph is not None
        cycle: Any = Cycle()
        cycle.engine = done
        del done, cycle
        made = on_gpu(method="dvae#-power", compile="off")
        for _ in range(engine.EAGER):
            made.step()

        def collecting(z: Tensor, measure: Callable[[Tensor], NegativePhase] = made._measure) -> NegativePhase:
            gc.collect()
            return measure(z)

        made._measure = collecting
        made.step()
    finally:
        gc.enable()
    assert made._graph is not None
