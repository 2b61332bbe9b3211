"""A training step can be replayed as a CUDA graph: sampler steps copy no value between host and device.

Without a GPU this is tested on meta tensors, which have shapes and no values: any read is an error. Copies from host to
device, a tensor made from Python numbers, are detected where they are made. The launcher of the GPU kernels runs; only
the kernels themselves are left out. With a GPU the graph is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu import needs_gpu
from samplers.capture import NoHostData, unknown
from torch import Tensor

from softspin import kernels
from softspin.distributions import BipartiteBoltzmann
from softspin.parts import SAMPLERS
from softspin.samplers import (
    Gibbs,
    GibbsState,
    PopulationAnnealing,
    PopulationInfo,
    PopulationState,
    gibbs,
    negative_phase,
    population,
    with_negative_phase,
)

gpu = pytest.importorskip("softspin.kernels.gpu", reason="Triton is not installed here")


class Launched:
    """Replaces a Triton kernel: it can be launched, and does nothing."""

    def __init__(self) -> None:
        self.times = 0

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            self.times += 1

        return launch


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """The sweeps' kernel, launched by the code that launches it on a GPU."""
    launched = Launched()
    monkeypatch.setattr(gpu.gpu_narrow, "sweep", launched)
    monkeypatch.setattr(gpu, "quantize_weights", Launched())
    monkeypatch.setattr(kernels, "choose", lambda implementation, device, dtype: gpu)
    return launched


@pytest.fixture
def small_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without enough shared memory for the sweeps' kernel; its random numbers are unknown, and on the device."""
    monkeypatch.setattr(gpu, "LARGEST", 5)
    monkeypatch.setattr(kernels, "choose", lambda implementation, device, dtype: gpu)
    monkeypatch.setattr(kernels.plain, "noise", lambda rng_state, shape, domain: unknown(len(rng_state), *shape))


def boltzmann(replicas: tuple[int, ...]) -> BipartiteBoltzmann:
    return BipartiteBoltzmann(unknown(*replicas, 13), unknown(*replicas, 6, 7), validate_args=False)


def a_population(replicas: tuple[int, ...], members: int = 40) -> PopulationState:
    return PopulationState(
        unknown(*replicas, members, 13),
        unknown(*replicas, 13),
        unknown(*replicas, 6, 7),
        unknown(*replicas, dtype=torch.float64),
        unknown(*replicas, members, dtype=torch.int64),
        unknown(*replicas, 2, dtype=torch.int64),
    )


def properties_of(kind: type) -> list[str]:
    """Names of the properties that are not deprecated."""
    found = {name: value for name, value in vars(kind).items() if isinstance(value, property)}
    return [name for name, value in found.items() if not str(value.__doc__).startswith("Deprecated")]


shapes = pytest.mark.parametrize("replicas", [(), (3,), (2, 3)])


@shapes
def test_a_single_step_of_a_population_reads_nothing(kernel: Launched, replicas: tuple[int, ...]) -> None:
    state = a_population(replicas)
    with NoHostData():
        new, info = population.step(state, boltzmann(replicas), sweeps=3, single_step=True)
    assert kernel.times == 1
    for before, after in zip(state, new, strict=True):
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
    assert info.effective_sample_size.shape == replicas
    assert info.ancestors.shape == (*replicas, 40)
    with NoHostData():
        assert population.reset_ancestors(new).ancestors.shape == new.ancestors.shape
        derived = [getattr(info, name) for name in properties_of(PopulationInfo)]
    assert len(derived) >= 5, "properties of the info can be captured as well"


@shapes
def test_persistent_chains_read_nothing(kernel: Launched, replicas: tuple[int, ...]) -> None:
    state = GibbsState(unknown(*replicas, 40, 13), unknown(*replicas, 2, dtype=torch.int64))
    with NoHostData():
        new, info = gibbs.step(state, boltzmann(replicas), sweeps=3)
    assert kernel.times == 1
    assert new.z.shape == state.z.shape
    assert info.flip_rate.shape == replicas


@shapes
@pytest.mark.parametrize("name", ["pa", "pcd"])
def test_all_methods_that_training_uses_read_nothing(kernel: Launched, name: str, replicas: tuple[int, ...]) -> None:
    """Methods of a capturable sampler: step, samples, quality, log Z, and setting log Z."""
    kind = SAMPLERS.get(name)
    assert kind.capturable
    sampler = kind()
    chains = GibbsState(unknown(*replicas, 40, 13), unknown(*replicas, 2, dtype=torch.int64))
    state = a_population(replicas) if name == "pa" else chains
    with NoHostData():
        new, info = sampler.step(state, boltzmann(replicas), 3)
        samples, quality, log_z = sampler.samples(new), sampler.quality(info), sampler.log_z(new)
        better = sampler.set_log_z(new, unknown(*replicas))
    assert kernel.times == 1
    assert samples.shape == (*replicas, 40, 13)
    assert (quality.shape, quality.dtype) == (replicas, torch.float32)
    assert (log_z is None) is (name == "pcd")
    for one in (new, better):
        assert [(x.shape, x.dtype) for x in one] == [(x.shape, x.dtype) for x in state]


@shapes
@pytest.mark.usefixtures("small_chip")
def test_sweeps_too_large_for_shared_memory_read_nothing(replicas: tuple[int, ...]) -> None:
    state = GibbsState(unknown(*replicas, 40, 13), unknown(*replicas, 2, dtype=torch.int64))
    with NoHostData():
        chains, _ = gibbs.step(state, boltzmann(replicas), sweeps=3)
        members, _ = population.step(a_population(replicas), boltzmann(replicas), sweeps=3, single_step=True)
    assert chains.z.shape == members.z.shape == state.z.shape


@shapes
def test_the_negative_phase_reads_nothing(replicas: tuple[int, ...]) -> None:
    with NoHostData():
        moments = negative_phase(boltzmann(replicas), unknown(*replicas, 40, 13))
    assert (moments.mean.shape, moments.pair.shape) == ((*replicas, 13), (*replicas, 6, 7))


@shapes
def test_the_gradient_of_log_z_reads_nothing(replicas: tuple[int, ...]) -> None:
    bias, weight = unknown(*replicas, 13).requires_grad_(), unknown(*replicas, 6, 7).requires_grad_()
    trained = BipartiteBoltzmann(bias, weight, validate_args=False)
    with NoHostData():
        value, z = unknown(*replicas, dtype=torch.float64), unknown(*replicas, 40, 13)
        log_z = with_negative_phase(trained, z, value).log_z
        gradients = torch.autograd.grad(log_z.sum(), (bias, weight))
    assert [g.shape for g in gradients] == [bias.shape, weight.shape]


@pytest.mark.usefixtures("kernel")
def test_a_step_with_several_tempering_steps_is_caught_reading() -> None:
    """The companion: the number of tempering steps depends on values."""
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"), NoHostData():
        population.step(a_population((3,)), boltzmann((3,)), sweeps=3)


READS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool((x > 0).any()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "equal": lambda x: torch.equal(x, x + 1),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "repeat": lambda x: x.repeat_interleave(x.to(torch.int64)),
    "made from a list": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "made from a number": lambda x: x + torch.tensor(1.0),
    "sent": lambda x: x + torch.ones(3).to(x.device),
    "copied": lambda x: x.copy_(torch.ones(3)),
    "index by a list": lambda x: x[[0, 2]],
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_every_copy_between_host_and_device_is_caught(read: Callable[[Tensor], object]) -> None:
    x = unknown(3)
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError)), NoHostData():
        read(x)


CAPTURED = {"pcd": Gibbs(), "pa": PopulationAnnealing(), "pa, compiled": PopulationAnnealing(compiled=True)}


@needs_gpu
@pytest.mark.parametrize("sampler", CAPTURED.values(), ids=list(CAPTURED))
@pytest.mark.parametrize("left", [25, gpu.LARGEST + 1])
def test_a_captured_step_replays_as_the_eager_one(left: int, sampler: Gibbs | PopulationAnnealing) -> None:
    """Six steps with changing parameters, replayed and in eager mode: the same state bit for bit."""
    generator = torch.Generator().manual_seed(0)
    scale = (25 / left) ** 0.5
    bias, weight = (scale * torch.randn(*s, generator=generator) for s in ((2, left + 15), (2, left, 15)))
    path = [(bias.cuda() * x, weight.cuda() * x) for x in (0.4, 0.5, 2.0, 2.0, 2.1, 2.1)]
    now = [x.clone() for x in path[0]]
    target = BipartiteBoltzmann(now[0], now[1], validate_args=False)
    start: Any = sampler.init(target, 500, seed=0)

    def step(state: Any) -> tuple[Any, Any]:
        return sampler.step(state, target, 3)

    def move(k: int) -> None:
        for mine, new in zip(now, path[k], strict=True):
            mine.copy_(new)

    eager, seen = start, []
    for k in range(6):
        move(k)
        eager, info = step(eager)
        seen.append(SimpleNamespace(state=eager, info=info))
    if isinstance(sampler, PopulationAnnealing):
        assert min(one.info.effective_sample_size.min().item() for one in seen) < 250, (
            "some step was too long for the weights"
        )
    held = type(start)(*[x.clone() for x in start])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        new, info = step(held)
        quality = sampler.quality(info)
        for mine, moved in zip(held, new, strict=True):
            mine.copy_(moved)
    for k in range(6):
        move(k)
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(held, seen[k].state, strict=True)), k
        assert all(torch.equal(a, b) for a, b in zip(info, seen[k].info, strict=True)), k
        assert torch.equal(quality, sampler.quality(seen[k].info)), k
        assert torch.equal(sampler.samples(held), seen[k].state.z), k
