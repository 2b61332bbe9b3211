"""Rows that count, their means and standard deviations, and rows that are rejected."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import pytest
from report.synthetic import CELLS, row, rows

from softspin import data
from softspin.errors import DataError
from softspin.records import ResultRow
from softspin.report.results import RECONSTRUCTED, Results, sort_rows

POWER = CELLS["mnist/2-nonlinear/k1/dvae#-power/pa"]
GLYPHS = CELLS["omniglot/2-nonlinear/k1/dvae#-power/pa"]


def sort(*given: ResultRow) -> Results:
    return sort_rows(given, CELLS)


def test_mean_spread_and_interval_of_log_z_over_seeds() -> None:
    group = sort(*(row(POWER, seed, nll) for seed, nll in enumerate((83.0, 84.0, 88.0)))).cells[POWER.id]
    assert (group.mean, group.seeds) == (85.0, (0, 1, 2))
    assert group.std == pytest.approx(math.sqrt(7))  # (4 + 1 + 9) / 2
    assert group.error == pytest.approx(math.sqrt(7 / 3))
    assert [group.low, group.high] == pytest.approx([84.9, 85.3])
    assert group.flags == ["3 of 5 seeds"]


def test_one_seed_has_no_spread_and_an_unbounded_interval_no_limit() -> None:
    group = sort(row(POWER, 3, 84.0, nll_high=None)).cells[POWER.id]
    assert (group.std, group.error, group.low, group.high) == (None, None, 83.9, None)


def test_five_seeds_of_the_recipe_have_no_flag() -> None:
    assert sort(*rows(POWER, 83.4)).cells[POWER.id].flags == []


def test_short_runs_and_variants_are_never_mixed_with_the_cell() -> None:
    full, short = list(rows(POWER, 83.4)), list(rows(POWER, 87.0, settings=["steps=50000"]))
    fast, clamped = (
        list(rows(POWER, 87.5, settings=["steps=50000", "tf32=true"])),
        list(rows(POWER, 83.6, settings=["clamp=1e-7"])),
    )
    found = sort(*fast, *short, *full, *clamped)
    assert found.cells[POWER.id].mean == pytest.approx(83.4)
    assert [(round(group.mean, 6), group.flags) for group in found.others] == [
        (83.6, ["clamp=1e-07"]),
        (87.0, ["short: 50,000 steps"]),
        (87.5, ["short: 50,000 steps", "tf32=true"]),
    ]
    assert sort(*short, *clamped).cells == {}
    assert len(found.accepted) == 20


def test_outdated_rows_are_flagged_never_mixed_and_replaced() -> None:
    old = list(rows(POWER, 83.9, outdated="it rounded down"))
    alone = sort(*old).cells[POWER.id]
    assert alone.mean == pytest.approx(83.9)
    assert alone.flags == ["outdated: it rounded down"]
    both = sort(*old, row(POWER, 0, 83.4))
    assert (both.cells[POWER.id].mean, both.cells[POWER.id].flags) == (83.4, ["1 of 5 seeds"])
    assert [(group.mean, group.flags) for group in both.others] == [(alone.mean, alone.flags)]


def test_reconstructed_omniglot_is_flagged_and_replaced_by_the_original() -> None:
    rebuilt = list(rows(GLYPHS, 99.0, fingerprint=RECONSTRUCTED))
    reconstructed = list(rows(GLYPHS, 99.0, source="OMNIGLOT (reconstructed 28 x 28 split)"))
    config = GLYPHS.config(seeds=(5, 6)).to_dict()
    original = [row(GLYPHS, seed, 98.0, source="OMNIGLOT (original chardata.mat)", config=config) for seed in (5, 6)]
    assert sort(*rebuilt).cells[GLYPHS.id].flags == ["reconstructed OMNIGLOT"]
    assert sort(*reconstructed).cells[GLYPHS.id].flags == ["reconstructed OMNIGLOT"]
    assert sort(*rows(GLYPHS, 99.0)).cells[GLYPHS.id].flags == ["OMNIGLOT of unknown origin"]
    both = sort(*rebuilt, *original)
    assert (both.cells[GLYPHS.id].mean, both.cells[GLYPHS.id].flags) == (98.0, ["2 of 5 seeds"])
    assert [group.mean for group in both.others] == [pytest.approx(99.0)]


@pytest.mark.data
def test_the_fingerprint_of_the_reconstruction_is_that_of_its_file() -> None:
    try:
        found = data.load("omniglot", folder=os.environ.get("SOFTSPIN_DATA"), download=False)
    except DataError as error:
        pytest.skip(f"no OMNIGLOT here: {error}")
    assert ("reconstructed" in found.source) == (found.fingerprint == RECONSTRUCTED)


def test_cells_of_no_table_are_other_runs() -> None:
    found = sort(*rows(POWER, 83.4, cell="digits/1-linear/k1/dvae#-power/pa"))
    assert found.cells == {}
    assert [group.cell for group in found.others] == ["digits/1-linear/k1/dvae#-power/pa"]


REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"commit": None}, "its commit is unknown"),
    ({"commit": ""}, "its commit is unknown"),
    ({"commit": "unknown"}, "its commit is unknown"),
    ({"commit": "abc123+"}, "made by commit abc123 with changes that were not committed"),
    ({"start_commit": None}, "its commit is unknown"),
    ({"start_commit": "abc123+"}, "made by commit abc123 with changes that were not committed"),
    ({"config": None}, "its config is unknown"),
    ({"config": {}}, "its config is unknown"),
    ({"config": {"chainz": 3}}, "its config cannot be read: unknown setting 'chainz'; did you mean 'chains'?"),
    ({"steps": 10, "short": True}, "its config has 1,000,000 steps, which is not what the row says"),
    ({"short": True}, "its config has 1,000,000 steps, which is not what the row says"),
    ({"seed": 7}, "its config does not have the seed 7"),
    ({"variant": {"tf32": True}}, "its config differs from the cell's by nothing, which is not what the row says"),
    ({"nll_low": "83"}, "it has 'nll_low' = '83'; it must be a finite number"),
    ({"nll_high": math.inf}, "it has 'nll_high' = inf; it must be a finite number"),
    ({"standard_error": math.nan}, "it has 'standard_error' = nan; it must be a finite number"),
    ({"fingerprint": None}, "its fingerprint is unknown"),
    ({"device": ""}, "its device is unknown"),
    ({"elbo": [1]}, "it has 'elbo' = [1]; it must be a finite number"),
    ({"provenance": 5}, "its commit is unknown"),
    ({"nll": 80.0, "nll_low": 83.3, "nll_high": 83.7}, "its NLL, 80.0, is not between nll_low and nll_high"),
    ({"nll": 90.0, "nll_low": None, "nll_high": 83.7}, "its NLL, 90.0, is not between nll_low and nll_high"),
    ({"test_samples": 10}, "its config has 4,000 importance samples, which is not what the row says"),
]


@pytest.mark.parametrize(("changes", "why"), REJECTED, ids=[why[:30] for _, why in REJECTED])
def test_rows_of_unknown_origin_are_rejected(changes: dict[str, Any], why: str) -> None:
    found = sort(row(POWER, **{"seed": 0, "nll": 83.4, **changes}), row(POWER, 1, 84.0))
    assert [one.reason for one in found.rejected] == [why]
    assert found.cells[POWER.id].mean == 84.0


def test_an_interval_that_is_a_point_may_be_off_by_rounding() -> None:
    assert sort(row(POWER, 0, 83.4, nll_low=83.4 + 1e-12, nll_high=83.4 + 1e-12)).rejected == []


def test_a_row_with_an_undeclared_variant_is_rejected() -> None:
    found = sort(row(POWER, 0, 83.4, ["clamp=1e-7", "tf32=true"], variant={}))
    assert [one.reason for one in found.rejected] == [
        "its config differs from the cell's by clamp=1e-07, tf32=true, which is not what the row says"
    ]


def test_failures_are_kept_also_after_a_retry() -> None:
    failed = [row(POWER, seed, 0.0, status="failed", error="not finite") for seed in (0, 1)]
    found = sort(*failed, row(POWER, 1, 83.4))
    assert [(one.row.seed, one.retried) for one in found.failed] == [(0, False), (1, True)]
    assert found.cells[POWER.id].seeds == (1,)
    outdated = dataclasses.replace(failed[0], outdated="a slip")
    assert [one.retried for one in sort(outdated, row(POWER, 0, 83.4)).failed] == [True]
