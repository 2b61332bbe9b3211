"""Settings with one value for each replica: their definitions, and replicas that do not depend on each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from training.runs import engine, small, trainer
from training.test_engine import replica_rows
from training.test_phases import equal, run

import softspin
from softspin.config import Config, list_settings
from softspin.errors import ConfigError, OutOfTimeError
from softspin.experiments.combinations import cell_of
from softspin.experiments.planning import plan_cell
from softspin.experiments.sweep import plan
from softspin.formatting import replica_name
from softspin.training import checkpoint

LISTS: dict[str, Any] = {
    "betas": (5.0, 9.0), "decoder_dropout": (0.0, 0.25), "input_flips": (0.0, 0.1), "decoder_decay": (None, 0.3),
    "scale_decay": (0.2, None), "weight_decay": (0.1, 0.2), "learning_rate": (0.01, 0.002),
}  # fmt: skip
SHARED: dict[str, Any] = {"layers": 2, "importance_samples": 2, "gradient": "dreg"}


def test_all_lists_are_tried_here() -> None:
    assert LISTS.keys() == {"betas", *list_settings()}


@pytest.mark.parametrize(
    ("number", "place", "net"), [(0, 0, "mlp"), (1, 0, "mlp"), (1, 1, "leaky-mlp"), (1, 1, "conv")]
)
def test_a_replica_is_equal_to_that_of_a_run_without_lists(number: int, place: int, net: str) -> None:
    """Bit for bit, with as many replicas: of other seeds, or of other values.

    At another place among the replicas, the last bits of other nets differ.
    """
    lists = run(engine(small(net=net, **LISTS, **SHARED, seeds=(3,))), 5)
    alone = lists.update.config.of_replica(number)
    assert len(alone.variants) == 1
    assert replica_name(alone.replicas[0]) == f"seed 3, beta {LISTS['betas'][number]:g}"
    plain = run(engine(alone.replace(seeds=(4, 3) if place else (3, 4))), 5)
    rates = tuple(rate if i == number else 0.5 for i, rate in enumerate(LISTS["learning_rate"]))
    others = run(engine(small(net=net, **LISTS | SHARED | {"learning_rate": rates}, seeds=(3,))), 5)
    mine = replica_rows(lists, number)
    equal(mine, replica_rows(plain, place))
    equal(mine, replica_rows(others, number))
    assert not torch.equal(lists.update.adam.value[1 - number], others.update.adam.value[1 - number])


def test_the_values_of_each_replica() -> None:
    made = engine(small(**LISTS, **SHARED, seeds=(3, 4))).update
    assert made.adam.decay.shape == made.adam.value.shape
    start = 0
    decays = {"weight": (0.1, 0.2), "scale": (0.2, 0.2), "decoder.linears.2.weight": (0.1, 0.3)}
    for name, parameter in made.model.named_parameters():
        size = parameter.numel() // 4
        found = made.adam.decay[:, start : start + size]
        wanted = decays.get(name, decays.get(name.rpartition(".")[2], (0.0, 0.0)))
        assert torch.equal(found, torch.tensor(wanted * 2)[:, None].expand(-1, size)), name
        start += size
    rates = made.schedules.learning_rate(torch.tensor(5))
    assert torch.equal(rates, torch.tensor([[0.01], [0.002]] * 2))
    drawn = made.regularization.noise(made.rng_state, 4, 9, made.shards)
    with made.regularization.applied(drawn):
        dropout, flips = made.model.decoder.dropout, made.model.flips.at
        assert dropout is not None
        assert flips is not None
        kept = torch.cat(list(dropout.factors), -1)
        assert [(part == 0).any().item() for part in kept] == [False, True] * 2
        assert [part.any().item() for part in flips] == [False, True] * 2


def test_a_run_with_lists_is_resumed_bit_for_bit_and_shared_by_replica(tmp_path: Path) -> None:
    config = small(**LISTS, **SHARED, seeds=(3, 4))
    rows = trainer(config, tmp_path / "whole").train()
    part = trainer(config, tmp_path / "part")
    part.deadline = -math.inf
    with pytest.raises(OutOfTimeError, match="step 1 of 10"):
        part.train()
    again = trainer(config, tmp_path / "part").train(resume=True)
    assert [row.nll for row in again] == [row.nll for row in rows]
    equal(*(checkpoint.load(tmp_path / name, "last")[0] for name in ("whole", "part")))
    model = softspin.load(tmp_path / "whole")
    assert model.default_replica == min(range(4), key=lambda i: rows[i].valid_nll or math.inf)
    model.only(1).save(tmp_path / "one")
    shared = softspin.load(tmp_path / "one")
    assert shared.config == config.of_replica(1)
    assert shared.config.decoder_dropout == 0.25


def test_a_replica_is_named_by_its_settings() -> None:
    config = Config(decoder_dropout=(0.0, 0.1), scale_decay=(None, 0.01), method="dvae#-gauss_int", beta=3)
    assert [replica_name(one) for one in config.replicas] == [
        "seed 0, beta 3, decoder_dropout 0, scale_decay none", "seed 0, beta 3, decoder_dropout 0.1, scale_decay 0.01",
    ]  # fmt: skip
    assert config.replicas[1].to_json() == {"seed": 0, "beta": 3.0, "decoder_dropout": 0.1, "scale_decay": 0.01}


def test_a_sweep_and_a_cell_have_no_lists(tmp_path: Path) -> None:
    config = small(learning_rate=(0.1, 0.2))
    with pytest.raises(ConfigError, match=r"learning_rate = 0\.1,0\.2 is a grid of its own; sweep it: learning_rate="):
        plan(config, ["width=3,4"], tmp_path)
    with pytest.raises(ConfigError, match=r"learning_rate = 0\.1,0\.2 is not possible in a cell"):
        plan_cell(cell_of(small()), config, {}, tmp_path)
