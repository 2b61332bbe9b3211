"""Boltzmann machines and BQMs have equal energies in all states, by dimod's enumeration, in both directions."""

from __future__ import annotations

import math
from typing import Any

import dimod
import numpy as np
import pytest
import torch
from evaluation.models import small_model
from samplers.laws import log_weights, small_graph, small_rbm, states, true_log_z

from softspin.config import Config
from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.dwave import from_bqm, to_bqm
from softspin.errors import ShapeError, SupportError
from softspin.trained import Model

BOLTZMANNS: dict[str, Boltzmann] = {"rbm": small_rbm(), "graph": small_graph(), "float32": small_rbm(torch.float32)}


@pytest.mark.parametrize("boltzmann", BOLTZMANNS.values(), ids=list(BOLTZMANNS))
@pytest.mark.parametrize("labels", [None, ["p", ("q", 1), 7, "s", "t"]])
def test_a_bqm_has_the_energies_of_its_boltzmann_machine(boltzmann: Boltzmann, labels: list[Any] | None) -> None:
    bqm = to_bqm(boltzmann, labels)
    names = labels or list(range(5))
    assert list(bqm.variables) == names
    energies = bqm.energies((states(5).numpy().astype(np.int8), names))
    np.testing.assert_allclose(energies, -log_weights(boltzmann).numpy(), rtol=0, atol=1e-12)
    assert bqm.vartype is dimod.BINARY


def test_pairs_of_an_rbm_are_kept_even_if_zero() -> None:
    bqm = to_bqm(BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3)))
    assert bqm.num_interactions == 6
    assert to_bqm(small_graph()).num_interactions == 6
    assert to_bqm(GraphBoltzmann(torch.zeros(3), torch.zeros(3, 3))).num_interactions == 0


def a_bqm(vartype: str, edges: list[tuple[Any, Any]], seed: int = 0) -> dimod.BinaryQuadraticModel:
    random = np.random.default_rng(seed)
    bqm = dimod.BinaryQuadraticModel(vartype)
    for pair in edges:
        for variable in pair:
            bqm.add_linear(variable, random.normal())
        bqm.add_quadratic(*pair, random.normal())
    bqm.add_linear("alone", 0.3)
    bqm.offset = 1.7
    return bqm


TREE = [("b", "a"), ("b", "c"), (0, 1), (1, 2)]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")]


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize(("edges", "kind"), [(TREE, BipartiteBoltzmann), (RING, GraphBoltzmann), ([], GraphBoltzmann)])
@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_a_boltzmann_machine_has_the_energies_of_its_bqm(
    vartype: str, edges: list[Any], kind: type, beta: float
) -> None:
    bqm = a_bqm(vartype, edges)
    boltzmann, labels, offset = from_bqm(bqm, beta)
    assert type(boltzmann) is kind
    assert set(labels) == set(bqm.variables)
    found = dimod.ExactSolver().sample(bqm)  # an independent enumeration
    columns = [list(found.variables).index(label) for label in labels]
    z = torch.from_numpy((found.record.sample[:, columns] > 0).astype(np.float64))
    np.testing.assert_allclose(boltzmann.energy(z).numpy() + offset, beta * found.record.energy, rtol=0, atol=1e-12)
    log_sum = np.log(np.exp(-beta * found.record.energy).sum())
    assert math.isclose(boltzmann.log_z.item() - offset, log_sum, abs_tol=1e-12)


@pytest.mark.parametrize("kind", [dimod.Float32BQM, dimod.DictBQM])
def test_the_input_bqm_is_not_modified(kind: Any) -> None:
    bqm = kind({"a": 0.5, "b": 0.25}, {("a", "b"): -1.5}, 1.0, "SPIN")
    boltzmann, labels, offset = from_bqm(bqm)
    assert bqm.vartype is dimod.SPIN
    energy = boltzmann.energy(torch.tensor([1.0, 0.0], dtype=torch.float64)).item() + offset
    assert (labels, energy) == (["a", "b"], 0.5 - 0.25 + 1.5 + 1.0)


def test_the_sides_of_a_tree_are_found() -> None:
    boltzmann, labels, _ = from_bqm(a_bqm("SPIN", TREE))
    assert isinstance(boltzmann, BipartiteBoltzmann)
    assert labels == ["b", 0, 2, "alone", "a", "c", 1]
    assert boltzmann.left == 4


@pytest.mark.parametrize("boltzmann", BOLTZMANNS.values(), ids=list(BOLTZMANNS))
def test_round_trip(boltzmann: Boltzmann) -> None:
    converted, labels, offset = from_bqm(to_bqm(boltzmann), dtype=boltzmann.bias.dtype)
    assert type(converted) is type(boltzmann)
    assert torch.equal(converted.bias, boltzmann.bias)
    assert torch.equal(converted.coupling, boltzmann.coupling)
    assert (labels, offset) == (list(range(5)), 0)
    assert math.isclose(converted.log_z.item(), true_log_z(boltzmann), rel_tol=1e-6)


def test_bad_input_raises_a_clear_error() -> None:
    with pytest.raises(ShapeError, match=r"a Boltzmann machine with replicas \(2,\); a BQM has none, so convert"):
        to_bqm(small_rbm(replicas=(2,)))
    with pytest.raises(ShapeError, match="4 labels, 4 of them different, for 5 units; give each unit one"):
        to_bqm(small_rbm(), "abcd")
    with pytest.raises(ShapeError, match="5 labels, 4 of them different, for 5 units"):
        to_bqm(small_rbm(), "abcda")
    with pytest.raises(SupportError, match="the BQM has no variables; it needs at least one"):
        from_bqm(dimod.BinaryQuadraticModel("SPIN"))
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SupportError, match="it must be positive and finite"):
            from_bqm(a_bqm("SPIN", TREE), beta)
    with pytest.raises(SupportError, match=r"bias of a Boltzmann machine .* NaN"):
        from_bqm(dimod.BQM.from_ising({"a": math.nan}, {}))
    weight = torch.full((1, 1), math.nan)
    with pytest.raises(SupportError, match=r"weight of a Boltzmann machine .* NaN"):
        to_bqm(BipartiteBoltzmann(torch.zeros(2), weight, validate_args=False))


def test_the_prior_of_a_trained_model_becomes_a_bqm() -> None:
    model = Model(small_model(), Config(), (3, 3))
    bqm = to_bqm(model.prior(1))
    z = states(8)
    energies = bqm.energies((z.numpy().astype(np.int8), list(range(8))))
    np.testing.assert_allclose(energies, model.net.prior().energy(z.expand(2, -1, -1))[1].detach().numpy(), atol=1e-12)
    with pytest.raises(SupportError, match="replica 2; this model has 2, counted from 0"):
        model.prior(2)
