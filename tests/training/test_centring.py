"""Centred gradients of the prior against the moments of both phases, for an RBM and for a graph."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import needs_gpu
from samplers.capture import NoHostData
from torch import Tensor
from training.runs import bars, engine, small, trainer

from softspin.data import with_condition
from softspin.errors import ConfigError, OutOfTimeError
from softspin.model import build
from softspin.training import checkpoint
from softspin.training.centring import Centring
from softspin.training.engine import Engine

GRAPH = ((0, 1), (0, 3), (1, 2), (2, 5), (3, 4), (4, 5), (1, 4))


def phases(made: Any, pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random z of a positive and a negative phase in float64; gradients of bias `(1, D)` and of the edges."""
    generator = torch.Generator().manual_seed(0)
    positive, negative = (torch.rand(1, 7, 6, dtype=torch.float64, generator=generator) for _ in range(2))
    bias = negative.mean(1) - positive.mean(1)
    weight = torch.stack(
        [
            (negative[..., i] * negative[..., j]).mean(1) - (positive[..., i] * positive[..., j]).mean(1)
            for i, j in pairs
        ],
        dim=-1,
    )
    return positive, negative, bias, weight


@pytest.mark.parametrize("graph", [None, GRAPH])
def test_the_gradient_is_the_difference_of_centred_moments(graph: Any) -> None:
    """0.5 is the weight of the KL. The new offsets have 1% of the mean of both phases."""
    made = engine(small(graph=graph, centred=True))
    made.model.double()
    centring = Centring(made.model, made.update.adam)
    pairs = [(i, j) for i in range(3) for j in range(3, 6)] if graph is None else sorted(graph)
    positive, negative, bias, weight = phases(made, pairs)
    offset = torch.rand(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    centring.offset = offset.clone()
    gradient = torch.zeros(made.update.adam.value.shape, dtype=torch.float64)
    gradient[:, centring.columns[0]] = 0.5 * bias
    gradient[:, centring.columns[1]] = 0.5 * weight
    found = centring.apply(gradient, negative.mean(1), torch.tensor(0.5, dtype=torch.float64))
    change = torch.zeros(6, 6, dtype=torch.float64)
    for number, (i, j) in enumerate(pairs):
        a, b = ((z[0, :, i] - offset[0, i]) * (z[0, :, j] - offset[0, j]) for z in (negative, positive))
        change[i, j] = change[j, i] = 0.5 * (a.mean() - b.mean())
        torch.testing.assert_close(found[0, centring.columns[1]][number], change[i, j])
    torch.testing.assert_close(found[:, centring.columns[0]], 0.5 * bias - offset @ change)
    others = torch.ones_like(gradient, dtype=torch.bool)
    for columns in centring.columns:
        others[:, columns] = False
    assert not found[others].any()
    mean = 0.5 * (negative.mean(1) + positive.mean(1))
    torch.testing.assert_close(centring.offset, 0.99 * offset + 0.01 * mean)


def test_training_with_it_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    config = small(centred=True, seeds=(0, 1), warmup=0.3)
    trainer(config, tmp_path / "whole").train()
    part = trainer(config, tmp_path / "part")
    part.deadline = -math.inf
    with pytest.raises(OutOfTimeError, match="step 1 of 10"):
        part.train()
    trainer(config, tmp_path / "part").train(resume=True)
    one, other, plain = (checkpoint.load(tmp_path / name, "last")[0] for name in ("whole", "part", "part"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert bool((plain["prior_offset"] != 0.5).any())
    usual = engine(small(seeds=(0, 1)))
    assert usual.update.centring is None
    assert "prior_offset" not in usual.state()


@pytest.mark.parametrize("conditional", [False, True])
def test_a_captured_step_copies_nothing_from_the_host(conditional: bool) -> None:
    data = with_condition(bars(), torch.arange(len(bars().train)) % 3) if conditional else bars()
    update = engine(small(centred=True, sampler="pcd"), data).update

    def descend(*given: Any) -> None:
        with NoHostData():
            update.descend(*given)

    for _ in range(2):
        update.run(update.stages._replace(descend=descend))


@needs_gpu
@pytest.mark.parametrize("compile", ["on", "off"])
def test_it_is_captured_on_a_gpu(compile: str) -> None:
    config = small(centred=True, sampler="pcd", device="cuda", compile=compile)
    made = Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))
    for _ in range(12):
        made.step()
    assert made._run._graph is not None
    assert bool((made.record.first_nonfinite < 0).all())


def test_a_prior_without_couplings_is_an_error() -> None:
    with pytest.raises(ConfigError, match="centred = true is not possible: prior = factorial trains no couplings"):
        engine(small(prior="factorial", centred=True))
