"""Every method, likelihood, network and kind of condition together: 20 steps, resumed, saved, loaded and evaluated.

The combinations contain all pairs of two of these four. Some, with all methods of the paper, likelihoods, networks and
kinds of conditions, are in the fast tests; the others are slow ones.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from likelihoods.cases import CASES, ONE_HOT, Case
from training.runs import small

import softspin
from softspin import paper
from softspin.evaluation import exact_nll
from softspin.parts import LIKELIHOODS, METHODS, NETS
from softspin.training import checkpoint

DATA = (*CASES, ONE_HOT)
CONDITIONS: dict[str, Any] = {"none": None, "class": np.arange(40) % 3 + 4, "numbers": np.arange(40.0) % 7}
"""Of 40 rows: no condition, three classes, and seven numbers, which the prior bins."""
SHAPES = {"mlp": (6,), "resnet": (6,), "leaky-mlp": (6,), "conv1d": (6,), "conv": (2, 3)}


class Combination(NamedTuple):
    """What one run trains."""

    method: str
    case: Case
    net: str
    condition: str

    @property
    def id(self) -> str:
        return f"{self.method}-{self.case.id}-{self.net}-{self.condition}"

    def config(self) -> softspin.Config:
        options: dict[str, Any] = {"channels": 3} if self.net.startswith("conv") else {}
        return small(method=self.method, likelihood=self.case.name, net=self.net, **self.case.settings, **options,
                     condition_values=4, seeds=(0, 3), steps=20, importance_samples=2, test_samples=500)  # fmt: skip

    def data(self) -> np.ndarray:
        shape = SHAPES[self.net]
        return self.case.make(40, 6).reshape(40, *shape, *([-1] if self.case is ONE_HOT else []))

    def given(self, rows: int) -> dict[str, Any]:
        """The condition of the first rows, as an argument."""
        condition = CONDITIONS[self.condition]
        return {} if condition is None else {"condition": condition[:rows]}


def combinations() -> list[Combination]:
    """All pairs of a method and a likelihood; network and condition follow from both."""
    nets, conditions = list(NETS), list(CONDITIONS)
    return [
        Combination(method, case, nets[(i + j // 2) % len(nets)], conditions[(i + j) % len(conditions)])
        for (i, method), (j, case) in itertools.product(enumerate(METHODS), enumerate(DATA))
    ]


def is_fast(combination: Combination) -> bool:
    """One of each likelihood, with the paper's methods; tests/estimators trains and resumes the others."""
    methods = sorted(paper.METHODS)
    chosen = methods[DATA.index(combination.case) % len(methods)]
    return combination.method == chosen


def test_the_combinations_contain_all_pairs() -> None:
    names = [(one.method, one.case.id, one.net, one.condition) for one in combinations()]
    kinds = [list(METHODS), [case.id for case in DATA], list(NETS), list(CONDITIONS)]
    assert {case.name for case in DATA} == set(LIKELIHOODS)
    for a, b in itertools.combinations(range(4), 2):
        assert {(name[a], name[b]) for name in names} == set(itertools.product(kinds[a], kinds[b]))
    fast = [name for name, one in zip(names, combinations(), strict=True) if is_fast(one)]
    assert len(fast) == len(DATA)
    kinds[0] = list(paper.METHODS)
    for kind, found in zip(kinds, zip(*fast, strict=True), strict=True):
        assert set(found) == set(kind)


def stop_at_12(line: dict[str, Any]) -> None:
    if line["step"] >= 12:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "combination",
    [pytest.param(one, id=one.id, marks=[] if is_fast(one) else [pytest.mark.slow]) for one in combinations()],
)
def test_train_resume_save_load_evaluate(combination: Combination, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=combination.data(), **combination.given(40))
    quiet: dict[str, Any] = {"progress": False, "pictures": False}
    whole = softspin.fit(combination.config(), tmp_path / "own.npz", tmp_path / "whole", **quiet)
    with pytest.raises(KeyboardInterrupt):
        softspin.fit(combination.config(), tmp_path / "own.npz", tmp_path / "cut", callbacks=stop_at_12, **quiet)
    resumed = softspin.fit(folder=tmp_path / "cut", resume=True, **quiet)
    assert whole.result is not None
    assert resumed.result is not None
    assert [row.nll for row in resumed.result] == [row.nll for row in whole.result]
    (last, _), (again, _) = (checkpoint.load(tmp_path / name, "last") for name in ("whole", "cut"))
    assert last.keys() == again.keys()
    for name, value in last.items():  # parameters, moments of Adam, chains, random numbers
        assert torch.equal(value, again[name]), name

    (file,) = whole.save(tmp_path / "model.safetensors")
    shared = softspin.load(file)
    x, given, two = combination.data()[:9], combination.given(9), combination.given(2)
    found = shared.nll(x, **given)
    assert torch.equal(found.nll, whole.nll(x, **given).nll)
    assert torch.equal(shared.encode(x, seed=0, **given), whole.encode(x, seed=0, **given))
    assert shared.sample(2, **two).shape == (2, *x.shape[1:]) == shared.reconstruct(x[:2], **two).shape
    # The estimate from 500 samples is near the sum over all 64 states; other tests bound its error more closely.
    rows, condition = torch.from_numpy(x).reshape(len(x), -1), shared.net.condition
    encoded = None if condition is None else condition.table.encode(torch.from_numpy(given["condition"])[:, None])
    assert (found.nll - exact_nll(shared.net, rows, condition=encoded).nll).abs().max() < 0.3
