"""Random domains: no two of a kind have the same number, and no other module uses literal numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import softspin
from softspin.evaluation.draws import replica_keys
from softspin.random import DrawDomain, KeyDomain, init_rng_state, uniforms

SOURCE = Path(softspin.__file__).parent
TAKE_A_DOMAIN = {
    "init_rng_state": 2, "streams": 2, "replica_rng_states": 2, "replica_uniforms": 3, "noise": 2, "uniforms": 4,
    "one_uniform": 1,
}  # fmt: skip
"""Functions that take a domain, with its position among their arguments."""


def domains(kind: type[KeyDomain] | type[DrawDomain]) -> dict[str, int]:
    """Numbers of all domains of one kind, by name."""
    return {name: number for name, number in vars(kind).items() if name.isupper()}


def coinciding(named: dict[str, int]) -> list[tuple[str, str]]:
    """List the pairs of names with the same number."""
    names = list(named)
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if named[a] == named[b]]


def test_no_two_domains_of_a_kind_coincide_but_the_one_known_pair() -> None:
    assert coinciding(domains(DrawDomain)) == []
    assert coinciding(domains(KeyDomain)) == [("EVALUATION", "FIGURES")]
    assert coinciding({"A": 1, "B": 2, "C": 1}) == [("A", "C")]


@pytest.mark.parametrize("kind", [KeyDomain, DrawDomain])
def test_domains_are_plain_integers(kind: type[KeyDomain] | type[DrawDomain]) -> None:
    """Triton and torch.compile take integers, but not enums."""
    assert len(domains(kind)) > 8
    assert {type(number) for number in domains(kind).values()} == {int}


def test_the_numbers_never_change() -> None:
    """Stored runs, result rows and figures depend on them. If this test fails, restore the numbers."""
    keys = {"DEFAULT": 0, "GIBBS": 1, "POPULATION": 2, "TEMPERING": 3, "FORWARD_AIS": 4, "REVERSE_AIS": 5, "DIMOD": 6,
            "AIS_SAMPLES": 7, "SEARCH": 8, "GUARD_FORWARD": 9, "GUARD_REVERSE": 10,
            "TRAINING": 101, "AVERAGING": 102, "EVALUATION": 111, "FIGURES": 111}  # fmt: skip
    draws = {"SWEEP": 0, "START": 1, "RESAMPLE": 2, "EXCHANGE": 3, "DIMOD_SEED": 4, "POSTERIOR": 101,
             "BINARIZATION": 102, "SHUFFLE": 103, "DROPOUT": 104, "FLIPS": 105, "FIGURE_IMAGES": 111,
             "FIGURE_BINARIZATION": 112, "FIGURE_POSTERIOR": 113}  # fmt: skip
    assert (domains(KeyDomain), domains(DrawDomain)) == (keys, draws)


def test_the_pair_that_shares_a_key_shares_no_draw() -> None:
    """Figures and evaluations have the same key, but use two generators."""
    from softspin.evaluation.draws import uniforms as evaluation_uniforms

    state = init_rng_state(0, 1, domain=KeyDomain.FIGURES)
    keys = replica_keys(0, 1)
    assert torch.equal(keys, state[:, 0])
    one = evaluation_uniforms(keys, torch.arange(10), torch.arange(10), 10).flatten()
    other = uniforms(state, 0, (1000,), torch.float64, DrawDomain.FIGURE_IMAGES).flatten()
    correlation = ((one.double() - 0.5) * (other - 0.5)).mean() * 12
    assert correlation.abs() < 5 / len(one) ** 0.5


def literal_domains(source: str) -> list[str]:
    """Find calls that pass a domain as a literal number."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in TAKE_A_DOMAIN:
            continue
        given = [word.value for word in node.keywords if word.arg in ("domain", "rng_domain")]
        given += node.args[TAKE_A_DOMAIN[name] : TAKE_A_DOMAIN[name] + 1]
        found += [ast.unparse(node) for value in given if isinstance(value, ast.Constant)]
    return found


def test_every_domain_comes_from_the_list() -> None:
    for path in SOURCE.rglob("*.py"):
        assert literal_domains(path.read_text()) == [], path.relative_to(SOURCE)
    assert literal_domains("noise(state, shape, 7)\nr.init_rng_state(0, 1, domain=3)\nnoise(s, (3,), D.START)") == [
        "noise(state, shape, 7)",
        "r.init_rng_state(0, 1, domain=3)",
    ]
