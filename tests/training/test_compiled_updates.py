"""Updates through the part of torch.compile that replaces changes in place, which the backend `eager` leaves out.

All parameters are views of one table, which the step of Adam changes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu import needs_gpu, with_torch_warnings
from training.runs import bars, engine, small

from softspin.data import Dataset, with_condition
from softspin.model import build
from softspin.training.engine import Engine

PAIRS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))
CASES: dict[str, dict[str, Any]] = {
    "rbm": {"input_flips": 0.1, "decoder_dropout": 0.2, "decoder_decay": 1e-3, "learning_rate": (1e-3, 3e-3)},
    "factorial": {"prior": "factorial", "method": "disarm"},
    "graph": {"graph": PAIRS, "centred": True, "ema_decay": 0.9},
    "conditional": {"method": "dvae#-gauss_int", "prior_epsilon": 1e-5},
    "conditional factorial": {"prior": "factorial", "adam_corrected": True},
}


def data(name: str) -> Dataset:
    whole = bars()
    classes = torch.arange(len(whole.train)) % 3
    return with_condition(whole, classes) if name.startswith("conditional") else whole


@with_torch_warnings
@pytest.mark.parametrize("name", CASES)
def test_the_compiled_end_of_an_update_equals_the_plain_one(name: str) -> None:
    torch.compiler.reset()  # torch limits how often one function is compiled
    plain, compiled = (engine(small(sampler="pcd", **CASES[name]), data(name)).update for _ in range(2))
    stages = compiled.stages
    stages = stages._replace(descend=torch.compile(stages.descend, backend="aot_eager"))
    for _ in range(3):
        plain.run(plain.stages)
        compiled.run(stages)
    for (key, one), other in zip(plain.state().items(), compiled.state().values(), strict=True):
        assert torch.allclose(other, one, rtol=1e-5, atol=1e-6), key


@needs_gpu
@pytest.mark.parametrize("name", [name for name in CASES if name != "graph"])  # graph priors are not compiled
def test_compiled_and_captured_updates_on_a_gpu_equal_plain_ones(name: str) -> None:
    made: dict[str, Engine] = {}
    for compile in ("on", "off"):
        config = small(sampler="pcd", device="cuda", compile=compile, **CASES[name])
        made[compile] = Engine(config, build(config, data(name).spec), data(name), torch.device("cuda"))
        for _ in range(12):
            made[compile].step()
        assert made[compile]._run._graph is not None
    on, off = (one.model.state_dict() for one in made.values())
    for key, value in off.items():
        assert torch.allclose(on[key], value, rtol=1e-3, atol=1e-3), key
