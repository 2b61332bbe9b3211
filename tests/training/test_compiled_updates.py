"""Updates through the part of torch.compile that replaces changes in place, which the backend `eager` leaves out.

All parameters are views of one table, which the step of Adam changes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu import with_torch_warnings
from training.runs import bars, engine, small

from softspin.data import Dataset, with_condition

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
