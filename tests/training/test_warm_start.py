"""A second run of the same shape compiles nothing, and the loop does not wait for the GPU between reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import needs_gpu, with_torch_warnings
from torch import fx
from torch._dynamo.utils import counters
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.evaluation import evaluate, log_z_for
from softspin.model import build
from softspin.paper import METHODS
from softspin.precision import tf32
from softspin.training.capture import EAGER_UPDATES
from softspin.training.engine import Engine
from softspin.training.stages import Stages

FEW = ("dvae#-power", "dvae#-gauss_int", "dvae-spike_exp")


def graphs(config: Config) -> list[str]:
    """The code of the graphs that torch.compile makes of the stages of an update."""
    torch.compiler.reset()
    made = engine(config)
    found: list[str] = []

    def backend(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        found.extend(part.code for part in graph.modules() if isinstance(part, fx.GraphModule))
        found.append(str([(tuple(value.shape), value.dtype) for value in inputs if isinstance(value, torch.Tensor)]))
        return graph.forward

    stages: list[Any] = [torch.compile(stage, backend=backend) for stage in made.update.stages]
    made._run.stages = Stages(*stages)
    made.step()
    made.step()
    return found


@with_torch_warnings
@pytest.mark.parametrize(
    "method",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def test_runs_that_differ_in_seeds_beta_and_steps_are_compiled_once(method: str) -> None:
    """Their graphs are equal, so the second finds the first in the cache; another K has other graphs."""
    shape = {"groups": 1, "bits_per_group": 6}
    one = graphs(small(method=method, seeds=(0, 1), beta=8.0, steps=1000, **shape))
    other = graphs(small(method=method, seeds=(7, 9), beta=5.0, steps=300, **shape))
    assert len(one) > 8
    assert one == other
    if method == "dvae#-power":
        assert graphs(small(method=method, seeds=(7, 9), importance_samples=3, **shape)) != one


@pytest.mark.parametrize("allowed", [False, True])
def test_the_precision_of_products_is_restored(allowed: bool) -> None:
    """It is part of the key of compiled code, so the second run in a process would not find that of the first."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = products.fp32_precision, convolutions.fp32_precision
    with tf32(allowed):
        assert products.allow_tf32 is allowed
        assert convolutions.fp32_precision == ("tf32" if allowed else "ieee")
    assert (products.fp32_precision, convolutions.fp32_precision) == before


def on_gpu(**changes: Any) -> Engine:
    config = small(device="cuda", chains=100, sweeps=2, **changes)
    return Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))


@needs_gpu
@pytest.mark.parametrize("method", FEW)
def test_a_second_run_compiles_nothing(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `torch.compiler.reset`, as between the runs of a grid, everything is found in the cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    seen = []
    for changes in ({"seeds": (0, 1), "beta": 8.0, "steps": 1000}, {"seeds": (7, 9), "beta": 5.0, "steps": 300}):
        torch.compiler.reset()
        counters.clear()
        made = on_gpu(method=method, sampler="pa", **changes)
        for _ in range(EAGER_UPDATES + 2):
            made.step()
        assert bool((made.record.first_nonfinite < 0).all())
        seen.append(
            {
                "missed": counters["inductor"]["fxgraph_cache_miss"],
                "bypassed": counters["aot_autograd"]["autograd_cache_bypass"],
                "hit": counters["aot_autograd"]["autograd_cache_hit"],
            }
        )
    assert seen[0]["missed"] > 0
    assert seen[0]["bypassed"] == seen[1]["bypassed"] == seen[1]["missed"] == 0
    assert seen[1]["hit"] > 0


@needs_gpu
def test_a_compiled_evaluation_equals_a_plain_one() -> None:
    """In float32: log weights are sums of about 50 terms of size 1, with rounding errors of 1e-7 each."""
    made = on_gpu(method="dvae#-power", seeds=(0, 1), bits_per_group=4, layers=2, width=16)
    for _ in range(20):
        made.step()
    log_z = log_z_for(made.model, temperatures=10, chains=10)
    options: dict[str, Any] = {"log_z": log_z, "samples": 30, "seed": [0, 1], "image_batch": 5, "sample_chunk": 10}
    plain, compiled = (evaluate(made.model, bars().valid, **options, compiled=choice) for choice in (False, True))
    for name in ("nll", "standard_error", "elbo", "kl", "reconstruction", "effective_sample_size"):
        torch.testing.assert_close(getattr(compiled, name), getattr(plain, name), rtol=1e-4, atol=1e-5, msg=name)


@needs_gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sampler", ["pcd", "pa"])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_nothing_is_read_from_the_gpu_between_reports(method: str, sampler: str) -> None:
    """Past the capture, an epoch and a refresh of the Gaussian integral's beta; a report does read."""
    made = on_gpu(method=method, sampler=sampler, steps=1000, compile="off")  # what is captured is compiled or not
    for _ in range(EAGER_UPDATES + 1):
        made.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(120):
            made.step()
        with pytest.raises(RuntimeError, match="synchronizing"):
            made.report()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool((made.record.first_nonfinite < 0).all())
