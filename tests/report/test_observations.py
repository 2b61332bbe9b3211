"""The paper's observations, tested on its own values, on opposite values, and on too few."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from report.synthetic import CELLS, NOWHERE, TABLES, as_published, rows

from softspin.report.claims import (
    MOST,
    PLAIN,
    Case,
    Claim,
    Measured,
    Observation,
    against_the_lowest,
    enough,
    near_each_other,
    weighted,
)
from softspin.report.content import Report, gather

NAMES = ["i", "ii", "iii", "iv", "v", "vi", "Table 2"]


def verdicts(report: Report) -> dict[str, str]:
    return {one.observation.name: one.verdict for one in report.judged}


def tallies(report: Report) -> dict[str, list[tuple[int, int, int, int]]]:
    return {
        one.observation.name: [
            (tally.cases, tally.count("supports"), tally.count("inconclusive"), tally.count("contradicts"))
            for tally in one.tallies
        ]
        for one in report.judged
    }


@pytest.fixture(scope="module")
def as_in_paper() -> Report:
    """Rows with the published means and standard deviations."""
    return gather(TABLES, as_published(), NOWHERE)


def test_all_are_reproduced_by_the_published_values(as_in_paper: Report) -> None:
    assert verdicts(as_in_paper) == dict.fromkeys(NAMES, "reproduced")
    # Counted with separate code; iii, v and Table 2 also by hand.
    assert tallies(as_in_paper) == {
        "i": [(64, 48, 7, 9), (120, 89, 5, 26)],
        "ii": [(24, 22, 1, 1)],
        "iii": [(8, 6, 1, 1)],
        "iv": [(24, 20, 1, 3), (144, 126, 6, 12)],
        "v": [(24, 24, 0, 0)],
        "vi": [(24, 21, 1, 2), (24, 21, 1, 2)],
        "Table 2": [(6, 6, 0, 0), (6, 6, 0, 0)],
    }


def test_rows_with_the_published_values_agree_with_the_paper(as_in_paper: Report) -> None:
    for one in as_in_paper.judged:
        for ours, theirs in zip(one.tallies, one.published, strict=True):
            assert [(f.case, f.outcome) for f in ours.findings] == [(f.case, f.outcome) for f in theirs.findings]


def swapped(one: str, other: str) -> dict[str, float]:
    """Swap two methods, samplers or K in every cell."""
    found = {}
    for name in CELLS:
        parts = name.split("/")
        if one in parts or other in parts:
            partner = "/".join({one: other, other: one}.get(part, part) for part in parts)
            if partner in CELLS:
                found[name] = CELLS[partner].nll or math.nan
    return found | {name: cell.nll or math.nan for name, cell in CELLS.items() if name not in found}


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("i", "k1", "k25"),
        ("ii", "dvae++-power", "dvae++-exp"),
        ("iii", "dvae#-power", "dvae++-power"),
        ("iv", "dvae#-gaussian", "dvae#-power"),
        ("v", "dvae#-un_exp", "dvae#-exp"),
        ("vi", "dvae#-power", "dvae#-gauss_int"),
        ("Table 2", "pa", "pcd"),
    ],
)
def test_each_is_not_reproduced_if_the_opposite_holds(name: str, one: str, other: str) -> None:
    assert verdicts(gather(TABLES, as_published(swapped(one, other)), NOWHERE))[name] == "not reproduced"


def test_nothing_is_tested_without_rows() -> None:
    report = gather(TABLES, [], NOWHERE)
    assert verdicts(report) == dict.fromkeys(NAMES, "not yet tested")
    nothing = dict.fromkeys(("run", "all_seeds", "outdated", "flagged", "compared", "near"), 0)
    assert report.summary == {"cells": 204} | nothing


def test_some_cells_decide_only_if_the_rest_cannot_change_the_verdict() -> None:
    names = ["dvae#-power/pa", "dvae++-power/pa"]
    some = [row for row in as_published() if (row.cell or "").split("/", 3)[3] in names]
    report = gather(TABLES, some, NOWHERE)
    assert verdicts(report) == dict.fromkeys(NAMES, "not yet tested") | {"i": "reproduced so far", "iii": "reproduced"}
    fewer = [row for row in some if (row.cell or "").startswith("mnist/")]
    assert tallies(gather(TABLES, fewer, NOWHERE))["iii"] == [(8, 3, 0, 1)]
    assert verdicts(gather(TABLES, fewer, NOWHERE))["iii"] == "reproduced so far"


def test_short_rows_single_seeds_and_other_data_are_no_evidence() -> None:
    power, plus = (CELLS[f"mnist/2-nonlinear/k1/{name}/pa"] for name in ("dvae#-power", "dvae++-power"))
    full = list(rows(power, 83.4))
    for given in (
        [*full, *rows(plus, 84.0, settings=["steps=1000"])],
        [*full, *rows(plus, 84.0, settings=["clamp=1e-7"])],
        [*full, *list(rows(plus, 84.0))[:1]],
        [*full, *rows(plus, 84.0, fingerprint="other bits")],
    ):
        assert tallies(gather(TABLES, given, NOWHERE))["iii"] == [(8, 0, 0, 0)]
    assert tallies(gather(TABLES, [*full, *rows(plus, 84.0)], NOWHERE))["iii"] == [(8, 1, 0, 0)]


def claim(count: int, share: Fraction, within: float | None = None) -> Claim:
    cases = tuple(Case(str(n), (f"{n}/a", f"{n}/b"), weighted(1, -1)) for n in range(count))
    return Claim("a below b", "", cases, share, within)


def measured(*differences: float, error: float = 0.1, runs: int = 10_000) -> dict[str, Measured]:
    each = error / math.sqrt(2)
    pairs = [
        (f"{n}/{side}", Measured(nll, each, runs, ""))
        for n, d in enumerate(differences)
        for side, nll in (("a", d), ("b", 0))
    ]
    return dict(pairs)


def test_the_number_of_comparisons_needed() -> None:
    assert [enough(MOST, n) for n in (1, 2, 3, 8, 24)] == [1, 2, 2, 5, 13]
    assert [enough(PLAIN, n) for n in (1, 4, 6, 24)] == [1, 3, 5, 18]


def test_two_standard_errors_make_a_difference() -> None:
    found = claim(4, MOST).judge(measured(-0.21, -0.19, 0.19, 0.21)).findings
    assert [finding.outcome for finding in found] == ["supports", "inconclusive", "inconclusive", "contradicts"]
    assert found[0].difference[:2] == pytest.approx((-0.21, 0.1))
    # Of two runs a side, 4.53 are as unlikely as 2 would be if the spread were known; of five, 2.37.
    for runs, few, enough_ in ((2, 0.44, 0.47), (5, 0.23, 0.24)):
        found = claim(2, MOST).judge(measured(-few, -enough_, runs=runs)).findings
        assert [finding.outcome for finding in found] == ["inconclusive", "supports"]
    near = claim(4, MOST, within=0.15).judge(measured(-0.16, -0.15, 0.15, 0.16)).findings
    assert [finding.outcome for finding in near] == ["contradicts", "supports", "supports", "contradicts"]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((), "not yet tested"),
        ((-1, -1), "reproduced so far"),
        ((-1, 0), "not reproduced so far"),
        ((-1, -1, -1), "reproduced"),
        ((1, 1), "not reproduced"),
        ((0, 1), "not reproduced"),
        ((1,), "not reproduced so far"),
    ],
)
def test_a_verdict_is_provisional_until_it_cannot_change(differences: tuple[float, ...], verdict: str) -> None:
    assert claim(4, MOST).judge(measured(*differences)).verdict == verdict


def test_an_observation_needs_all_of_its_claims() -> None:
    for differences, verdict in (
        ((-1, -1), "reproduced"),
        ((-1,), "reproduced so far"),
        ((1,), "not reproduced"),
        ((-1, 0), "not reproduced"),
        ((), "not yet tested"),
    ):
        one = Observation("x", "", (claim(1, MOST), claim(2, MOST)))
        assert one.judge(measured(*differences))[0] == verdict
    elsewhere = Claim("c below d", "", (Case("", ("c", "d"), weighted(1, -1)),), MOST)
    for difference, verdict in (
        (-1, "not yet tested"),
        (1, "not reproduced"),
    ):  # one claim that is not reproduced is enough
        one = Observation("x", "", (claim(1, MOST), elsewhere))
        assert one.judge(measured(difference))[0] == verdict


def test_sums_of_several_likelihoods() -> None:
    a, b, c, d = (Measured(nll, error, 5, "") for nll, error in ((1.0, 0.1), (5.0, 0.2), (4.0, 0.2), (2.0, 0.4)))
    assert weighted(1, -1, -1, 1)([a, b, c, d])[:2] == pytest.approx((-6.0, 0.5))
    assert against_the_lowest([b, c, d])[:2] == pytest.approx((3.0, math.hypot(0.2, 0.4)))
    # 5 and 4 are 1 apart, and 4 is 3 above 1: -2, whichever of the two comes first.
    for pair in ([b, c], [c, b]):
        assert near_each_other([*pair, a])[:2] == pytest.approx((-2.0, math.sqrt(0.2**2 + (2 * 0.2) ** 2 + 0.1**2)))
