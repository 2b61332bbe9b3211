"""Tables of obtained and published values: numbers, texts and layout."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

import pytest
from report.synthetic import CELLS, TABLES, row, rows

from softspin.experiments.cells import choose
from softspin.report.results import sort_rows
from softspin.report.tables import (
    Entry,
    blocks,
    difference_text,
    direction,
    grid_command,
    interval_text,
    obtained_text,
)
from softspin.report.welch import as_normal, degrees_of_freedom

CELL = CELLS["mnist/1-linear/k1/dvae#-power/pa"]  # published: 89.35 ± 0.06


def entry(mean: float, std: float, seeds: int = 5) -> Entry:
    given = list(rows(CELL, mean, std))[:seeds]
    return Entry(CELL, sort_rows(given, CELLS).cells[CELL.id])


def test_standard_errors_apart_combine_our_spread_and_the_published_one() -> None:
    found = entry(89.60, 0.08)
    # 0.08²/5 + 0.06²/5 = 0.1²/5
    assert found.apart == pytest.approx(
        as_normal(0.25 / (0.1 / math.sqrt(5)), degrees_of_freedom([(0.08, 5), (0.06, 5)]))
    )
    assert found.difference == pytest.approx(0.25)
    assert difference_text(found) == "▲ +0.25 (+3.4 SE)"


def test_text_and_sign_of_a_difference() -> None:
    for mean, kind, text in (
        (89.35, "level", "≈ 0.00 (0.0 SE)"),
        (89.43, "level", "≈ +0.08 (+1.6 SE)"),
        (89.48, "higher", "▲ +0.13 (+2.3 SE)"),
        (89.22, "lower", "▼ −0.13 (−2.3 SE)"),
        (88.95, "lower strong", "▼ −0.40 (−4.2 SE)"),
        (89.75, "higher strong", "▲ +0.40 (+4.2 SE)"),
    ):
        found = entry(mean, 0.08)
        assert (direction(found), difference_text(found)) == (kind, text)
    single = Entry(CELL, sort_rows([row(CELL, 0, 89.95)], CELLS).cells[CELL.id])
    assert (direction(single), difference_text(single)) == ("level", "+0.60, spread unknown")
    assert difference_text(Entry(replace(CELL, nll=None), single.found)) == "no published value"


def test_far_is_beyond_the_margin_and_three_published_deviations() -> None:
    assert not entry(89.35 + 0.18, 0.1).far  # 3 x 0.06
    assert entry(89.35 - 0.185, 0.1).far
    precise = replace(CELL, std=0.01)
    assert not Entry(precise, entry(89.5, 0.1).found).far
    assert Entry(precise, entry(89.51, 0.1).found).far


def test_texts_of_a_value() -> None:
    group = entry(89.6, 0.08).found
    assert group is not None
    assert obtained_text(group) == "89.60 ± 0.08"
    assert interval_text(group) == "89.50 to 89.90; width 0.40, sandwich"
    open_end = sort_rows([row(CELL, 0, 89.6, nll_high=None, log_z_method="ais")], CELLS).cells[CELL.id]
    assert (obtained_text(open_end), interval_text(open_end)) == ("89.60", "89.50 to ∞; ais")


def test_every_cell_is_in_its_row_and_its_command_selects_it() -> None:
    results = sort_rows([], CELLS)
    found = {name: blocks(name, cells, results) for name, cells in TABLES.items()}
    assert [(block.table, block.data) for block in found["table1"] + found["table2"]] == [
        ("table1", "mnist"), ("table1", "omniglot"), ("table2", "mnist"),
    ]  # fmt: skip
    for name, cells in TABLES.items():
        assert [entry.cell for block in found[name] for entry in block.entries] == cells
        for block in found[name]:
            made = [choose(cells, [shlex.split(command)[-1]]) for command in block.commands]
            assert [cell for part in made for cell in part] == [entry.cell for entry in block.entries]
            assert all(command.startswith(f"softspin grid {name} --only ") for command in block.commands)
            for line in block.lines:
                for (method, sampler), one in zip(block.columns, line.entries, strict=True):
                    assert one is not None
                    assert one.cell.id == f"{block.data}/{line.structure}/k{line.k}/{method}/{sampler}"
    assert found["table1"][0].names[0] == "dvae-spike_exp"
    assert found["table2"][0].names == ["PCD", "PA"]


def test_the_command_of_a_variant_contains_all_differences() -> None:
    given = list(rows(CELL, 90.0, settings=["steps=50000", "tf32=true", "learning_rate_schedule=0.5:1,1:0.1"]))[1:]
    (group,) = sort_rows(given, CELLS).others
    command = grid_command(group, TABLES.items())
    assert command is not None
    words = shlex.split(command)
    assert words[:4] == ["softspin", "grid", "table1", "--only"]
    assert choose(TABLES["table1"], [words[4]]) == [CELL]
    assert words[5:9] == ["--seeds", "1,2,3,4", "--steps", "50000"]
    settings = [word for word in words[9:] if word != "--set"]
    assert CELL.variant(CELL.config(steps=50000, settings=settings)) == group.variant
    assert grid_command(group, []) is None
    (wrong,) = sort_rows([replace(one, outdated="a slip") for one in given], CELLS).others
    assert grid_command(wrong, TABLES.items()) is None
