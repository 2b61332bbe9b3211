"""The bound of every method on a GPU: the needs of a CUDA graph are tested on meta tensors; the rest on a GPU."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from evaluation.models import objective
from gpu import needs_gpu
from samplers.capture import NoHostData, unknown
from torch import Tensor
from training.runs import bars, small

from softspin.methods.gaussian_integral import REFRESH_EVERY, GaussianIntegral
from softspin.model import build
from softspin.paper import METHODS
from softspin.samplers import NegativePhase
from softspin.training import capture
from softspin.training.capture import EAGER_UPDATES
from softspin.training.engine import Engine

groups = pytest.mark.parametrize("groups", [1, 2])
DREG: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in METHODS] + [
    (name, {"gradient": "dreg"}) for name in METHODS if name.startswith("dvae#")
]
gradients = pytest.mark.parametrize(("method", "gradient"), DREG)


def on_gpu(**changes: Any) -> Engine:
    """Two replicas of 2 samples."""
    config = small(
        bits_per_group=4,
        layers=2,
        importance_samples=2,
        seeds=(0, 1),
        chains=100,
        steps=1000,
        sweeps=3,
        device="cuda",
        **changes,
    )
    return Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))


@gradients
@groups
def test_the_bound_and_its_gradient_read_no_values(method: str, gradient: dict[str, Any], groups: int) -> None:
    config = small(method=method, groups=groups, bits_per_group=4, importance_samples=2, seeds=(0, 1), **gradient)
    model = build(config, bars().spec).to("meta").train()
    model.method.begin_training()
    noise = unknown(2, *model.method.noise_shape(2, 5, model.units))
    with NoHostData():
        prior = model.prior(unknown(2), validate=False)
        terms = model.method.objective(model, unknown(2, 5, 9), noise, prior, unknown())
        terms.loss.sum().backward()
    assert all(part.shape == (2,) for part in terms)


@needs_gpu
@gradients
@groups
def test_the_compiled_bound_and_its_gradient_equal_those_of_the_cpu(
    method: str, gradient: dict[str, Any], groups: int
) -> None:
    made = on_gpu(method=method, groups=groups, **gradient)
    twin = build(made.update.config, bars().spec).train()
    twin.method.begin_training()
    with torch.no_grad():
        made.model.prior_parameters.weight.normal_(generator=torch.Generator("cuda").manual_seed(0)).mul_(0.3)
    twin.load_state_dict({name: value.cpu() for name, value in made.model.state_dict().items()})
    generator = torch.Generator().manual_seed(1)
    rows = bars().train[:4].expand(2, 4, 9)
    uniforms = torch.rand(2, 2, 2, 4, twin.units, generator=generator).clamp(1e-4, 1 - 1e-4)
    if isinstance(twin.method, GaussianIntegral):
        twin.method.prior_beta.copy_(made.model.method.training_state()["prior_beta"])
    kl_weight, log_z = torch.tensor(0.7), made.update.log_z.cpu()
    loss, terms = made._run.stages.bound(rows.cuda(), None, uniforms.cuda(), kl_weight.cuda())
    loss.backward()
    expected = objective(twin, rows.float(), uniforms, log_z, kl_weight)
    expected.loss.sum().backward()
    assert torch.allclose(loss.cpu(), expected.loss.sum(), rtol=1e-4, atol=1e-4)
    assert torch.allclose(terms.cpu(), torch.stack(expected[1:], dim=-1).detach(), rtol=1e-4, atol=1e-4)
    for (name, one), other in zip(made.model.named_parameters(), twin.parameters(), strict=True):
        if other.grad is None:
            assert one.grad is None or not one.grad.any(), name
            continue
        found = torch.zeros_like(one) if one.grad is None else one.grad  # biases under batch norm have none
        assert (found.cpu() - other.grad).abs().max() < 1e-3 * (1 + other.grad.abs().max()), name


@needs_gpu
@gradients
@pytest.mark.parametrize("compile", ["on", "off"])
def test_captured_updates_equal_eager_ones(
    method: str, gradient: dict[str, Any], compile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_captured_updates(monkeypatch, method=method, compile=compile, **gradient)


@needs_gpu
@pytest.mark.parametrize("net", ["resnet", "leaky-mlp", "conv", "conv1d"])
@pytest.mark.parametrize("compile", ["on", "off"])
def test_captured_updates_of_other_nets_equal_eager_ones(
    net: str, compile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_captured_updates(monkeypatch, net=net, compile=compile)


@needs_gpu
@pytest.mark.parametrize(
    ("net", "gradient"), [("mlp", "plain"), ("mlp", "dreg"), ("leaky-mlp", "plain"), ("conv", "plain")]
)
@pytest.mark.parametrize("compile", ["on", "off"])
def test_captured_updates_with_regularization_equal_eager_ones(
    net: str, gradient: str, compile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    regularization = {"decoder_dropout": 0.2, "input_flips": 0.1, "decoder_decay": 0.01}
    check_captured_updates(monkeypatch, net=net, gradient=gradient, compile=compile, **regularization)


def check_captured_updates(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Twelve updates, captured and eager, without non-finite numbers, past two eigenvalue checks."""
    captured = on_gpu(**changes)
    for _ in range(12):
        captured.step()
    assert captured._run._graph is not None
    monkeypatch.setattr(capture, "EAGER_UPDATES", 12)
    eager = on_gpu(**changes)
    for _ in range(12):
        eager.step()
    assert eager._run._graph is None
    for (name, one), other in zip(captured.model.state_dict().items(), eager.model.state_dict().values(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), name
    for _ in range(2 * REFRESH_EVERY):
        captured.step()
    assert bool((captured.record.first_nonfinite < 0).all())


class Cycle:
    """An object in a reference cycle, like a finished engine and its compiled stages."""

    def __init__(self) -> None:
        self.itself = self


def test_a_finished_engine_is_not_collected_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch no longer collects garbage before a capture, and a graph that is freed during a capture breaks it."""

    class Graph:
        """Replaces torch's context manager, which needs a GPU."""

        def replay(self) -> None: ...

    @contextlib.contextmanager
    def capturing(graph: Graph) -> Iterator[None]:
        assert alive() is None
        yield

    config = small()
    made = Engine(config, build(config, bars().spec), bars(), torch.device("cpu"))
    runner = made._run
    monkeypatch.setattr(runner, "_side_stream", object())
    monkeypatch.setattr(runner, "_run", lambda: made.update.run(runner.stages))
    runner._eager_updates = EAGER_UPDATES
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    gc.disable()
    try:
        alive = weakref.ref(Cycle())
        assert alive() is not None
        made.step()
    finally:
        gc.enable()
    assert isinstance(runner._graph, Graph)


@needs_gpu
def test_a_second_engine_can_be_captured_after_a_first_is_finished() -> None:
    gc.disable()
    try:
        done = on_gpu(method="dvae#-power", compile="off")
        for _ in range(EAGER_UPDATES + 1):
            done.step()
        assert done._run._graph is not None
        cycle: Any = Cycle()
        cycle.engine = done
        del done, cycle
        made = on_gpu(method="dvae#-power", compile="off")
        for _ in range(EAGER_UPDATES):
            made.step()
        moments: Callable[[Tensor], NegativePhase] = made._run.stages.moments

        def collecting(z: Tensor) -> NegativePhase:
            gc.collect()
            return moments(z)

        made._run.stages = made._run.stages._replace(moments=collecting)
        made.step()
    finally:
        gc.enable()
    assert made._run._graph is not None


@needs_gpu
@pytest.mark.parametrize("compile", ["auto", "off"])
def test_parallel_tempering_trains_without_a_capture(compile: str) -> None:
    """Its replica exchanges cannot be captured in a CUDA graph, so all updates are eager; the other stages are
    compiled where allowed. The chains are bits, replicas are exchanged, and the recorded metrics are finite."""
    made = on_gpu(method="dvae#-power", sampler="pt", compile=compile, part_settings={"temperatures": 4})
    start = made.update.adam.value.clone()
    for _ in range(EAGER_UPDATES + 10):
        made.step()
    assert made._run._graph is None
    z = made.update.sampler.samples(made.update.sampler_state)
    assert z.device.type == "cuda"
    assert z.shape == (2, 100, made.model.units)
    assert bool(((z == 0) | (z == 1)).all())
    assert bool((made.record.first_nonfinite < 0).all())
    report = made.report()
    assert all(bool(value.isfinite().all()) for value in report.values())
    assert bool(((report["sampler"] > 0) & (report["sampler"] <= 1)).all())
    assert bool((made.update.adam.value != start).any(1).all())
