"""Steps of a Boltzmann machine as a compiled CUDA graph; the trace of the compiler is tested on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from boltzmann_machine.truth_by_states import some_data
from gpu import needs_gpu, with_torch_warnings

from softspin.boltzmann_machine.config import BoltzmannConfig
from softspin.boltzmann_machine.engine import Engine
from softspin.data import from_arrays
from softspin.training import capture


def engine(device: str, x: Any = None, **changes: Any) -> Engine:
    settings: dict[str, Any] = {"hidden": 3, "steps": 1000, "chains": 64, "batch_size": 8, "seeds": (0, 1)}
    config = BoltzmannConfig(**{**settings, "device": device, **changes})
    return Engine(config, from_arrays(some_data() if x is None else x), torch.device(device))


def run(made: Engine, steps: int) -> Engine:
    for _ in range(steps):
        made.step()
    return made


@with_torch_warnings
def test_the_compiled_stages_are_single_graphs_and_equal_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as for a GPU, without changes in place, and run by eager torch: real compilation takes minutes."""
    compile_, compiled = torch.compile, list[str]()

    def traced_whole(part: Any, **_: Any) -> Any:
        compiled.append(part.__name__)
        return compile_(part, backend="aot_eager", fullgraph=True)

    monkeypatch.setattr(torch, "compile", traced_whole)
    plain, traced = (run(engine("cpu", sampler="pt", compile=how), 4) for how in ("off", "on"))
    assert compiled == ["next_batch", "ascend"]
    for (name, one), other in zip(plain.state().items(), traced.state().values(), strict=True):
        assert torch.equal(one, other), name


@needs_gpu
@pytest.mark.parametrize("sampler", ["pcd", "pa"])
@pytest.mark.parametrize("compile", ["on", "off"])
@pytest.mark.parametrize("gray", [False, True])
def test_captured_steps_equal_eager_ones(
    sampler: str, compile: str, gray: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(40, 30, generator=torch.Generator().manual_seed(0)) if gray else None
    options: dict[str, Any] = {"sampler": sampler, "compile": compile, "weight_decay": 1e-3}
    captured = run(engine("cuda", x, **options), 12)
    assert captured._run._graph is not None
    monkeypatch.setattr(capture, "EAGER_UPDATES", 12)
    eager = run(engine("cuda", x, **options), 12)
    assert eager._run._graph is None
    for (name, one), other in zip(captured.state().items(), eager.state().values(), strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-5), name
    assert bool((run(captured, 50).update.first_nonfinite < 0).all())


@needs_gpu
def test_an_rbm_that_is_too_large_for_the_sweep_kernel_is_captured() -> None:
    """784 visible units do not fit on the chip: the sweeps run in plain torch, inside the graph."""
    x = (torch.rand(200, 784, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)
    made = run(engine("cuda", x, hidden=500, batch_size=100, seeds=(0,)), 20)
    assert made._run._graph is not None
    assert bool((made.update.first_nonfinite < 0).all())
