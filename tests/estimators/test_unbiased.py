"""Estimators against the gradient by enumeration.

The rule: the gradient is projected on fixed directions, and the draws are split into two independent halves. A case
fails if in some direction both halves differ from the enumerated gradient by more than 4 standard errors, to the same
side. For an unbiased estimator the probability of that is 2 (3.2e-5)^2 = 2e-9 in each direction. There are 9 directions
in a case, 3 for each of encoder, decoder and prior, and at most 50 cases, so the false-alarm rate of the whole suite is
below 1e-6. Each value is a mean over 100 data points, and each half has 1000 of them, so that their mean is normal.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from estimators.cases import BY_NAME, CASES, Case, images, many, reference
from torch import Tensor

from softspin.experiments.estimators import draw_gradients, exact_blocks
from softspin.methods import METHODS
from softspin.methods.antithetic import DisARM
from softspin.methods.multi_sample import OVIS
from softspin.methods.reinforce import LeaveOneOut

COPIES, REPEATS, PASSES = 100, 50, 10
KL_WEIGHT = 0.7
LIMIT = 4.0
UNBIASED = [case for case in CASES if case.unbiased]


def directions(exact: Tensor) -> Tensor:
    """The exact gradient and two random sign vectors, `(parameters, 3)`."""
    signs = torch.randint(2, (2, len(exact)), generator=torch.Generator().manual_seed(7)).double() * 2 - 1
    return torch.cat([exact[None], signs]).T


def deviations(case: Case, groups: int, samples: int, **changes: Any) -> dict[str, Tensor]:
    """Differences in standard errors, `(2 halves, 3 directions)`, for each block."""
    x = images()
    kind = METHODS.get(case.method)
    prior = {name: changes[name] for name in ("prior", "graph", "likelihood", "net") if name in changes}
    truth = exact_blocks(
        reference(groups, **prior).double(),
        x.double(),
        samples,
        importance_weighted=kind.importance_weighted,
        kl_weight=KL_WEIGHT,
    )
    model = many(case, groups, samples, COPIES, **changes)
    generator = torch.Generator().manual_seed(3)
    seen: dict[str, list[Tensor]] = {block: [] for block in truth}
    for _ in range(2 * PASSES):
        found = draw_gradients(model, x.repeat(REPEATS, 1), samples, generator, KL_WEIGHT)
        assert found.evaluations == case.evaluations(samples, groups, model.units)
        for block, gradient in found.blocks.items():
            seen[block].append((gradient - truth[block]) @ directions(truth[block]))
    result = {}
    for block, values in seen.items():
        halves = torch.stack(values).reshape(2, -1, 3)
        error = halves.std(1) / halves.shape[1] ** 0.5
        # Where a term is exact, as the prior's gradient with one group, there is only rounding.
        rounding = 1e-5 * truth[block].abs().sum()
        result[block] = halves.mean(1) / (error + rounding)
    return result


def is_biased(found: dict[str, Tensor]) -> bool:
    """The rule above."""
    return any(bool(((one > LIMIT).all(0) | (one < -LIMIT).all(0)).any()) for one in found.values())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("case", UNBIASED, ids=str)
def test_the_mean_is_the_enumerated_gradient(case: Case, groups: int) -> None:
    found = deviations(case, groups, case.fewest_samples)
    assert not is_biased(found), found


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("case", [case for case in UNBIASED if case.fewest_samples == 1], ids=str)
def test_the_mean_of_three_samples_is_the_enumerated_gradient(case: Case, groups: int) -> None:
    found = deviations(case, groups, 3)
    assert not is_biased(found), found


@pytest.mark.parametrize(
    "changes", [{"prior": "factorial"}, {"graph": ((0, 1), (1, 2), (0, 3))}, {"likelihood": "gaussian"}], ids=str
)
@pytest.mark.parametrize("name", ["disarm", pytest.param("rebar", marks=pytest.mark.slow)])
def test_other_priors_and_likelihoods(name: str, changes: dict[str, Any]) -> None:
    found = deviations(BY_NAME[name], 2, 1, **changes)
    assert not is_biased(found), found


class Wrong:
    """Slightly wrong estimators, which the rule detects."""

    class HalfBaseline(LeaveOneOut):
        """A baseline that includes the sample itself, without the factor K / (K - 1)."""

        def centered(self, group: int, signal: Tensor, found: Any) -> tuple[Tensor, None]:
            return signal - signal.mean(1, keepdim=True), None

    class Unreflected(DisARM):
        """The factor sigmoid(l) instead of sigmoid(abs(l))."""

        def logit_gradient(self, difference: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
            return super().logit_gradient(difference, logits, noise) * (
                torch.sigmoid(logits) / torch.sigmoid(logits.abs())
            )

    class Optimal(OVIS):
        """OVIS with gamma = 1, whose baseline of a sample depends on it."""

        def baselines(self, log_w: Tensor) -> Tensor:
            samples = log_w.shape[-2]
            others = super().baselines(log_w) - torch.log(torch.tensor(1 - 1 / samples))
            return others - torch.softmax(log_w, -2)


@pytest.mark.parametrize(
    ("wrong", "case"),
    [(Wrong.HalfBaseline, "loo"), (Wrong.Unreflected, "disarm"), (Wrong.Optimal, "ovis")],
    ids=["loo", "disarm", "ovis"],
)
def test_the_rule_detects_slightly_wrong_estimators(wrong: type, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = METHODS.get(case)
    monkeypatch.setitem(METHODS._parts, case, wrong)
    assert issubclass(wrong, right)
    assert is_biased(deviations(BY_NAME[case], 2, BY_NAME[case].fewest_samples))
