"""The section that compares the recipe softspin-1 with the paper: which rows it has, and its numbers."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.synthetic import CELLS, NOWHERE, TABLES, row, rows

from softspin.config import PROFILES
from softspin.config.phases import LATE
from softspin.experiments.cells import Cell, choose, find_table
from softspin.records import ResultRow
from softspin.report import softspin_1
from softspin.report.content import Report, gather
from softspin.report.markdown import markdown
from softspin.report.page import page
from softspin.report.results import setting
from softspin.report.tables import grid_command

NAME = "mnist/4-nonlinear/k25/dvae#-power/pa"
CELL = CELLS[NAME]  # published: 82.82 ± 0.02
GLYPHS = CELLS["omniglot/2-nonlinear/k25/dvae#-power/pa"]
SPREAD = (-2.0, -1.0, 0.0, 1.0, 2.0)


def settings(**changes: object) -> list[str]:
    """The settings of the profile as texts, by which a row of `--set` has the same variant as one of `--profile`."""
    values = {**PROFILES["softspin-1"], **changes}
    values.pop("importance_samples")
    return [setting(name, list(one) if isinstance(one, tuple) else one) for name, one in values.items()]


def made(cell: Cell, mean: float, **changes: Any) -> Iterator[ResultRow]:
    """Five seeds of the profile with a standard deviation of 0.05, and wider intervals of log Z for higher seeds."""
    own = [f"--{name}" for name in changes if name in PROFILES["softspin-1"]]
    texts = settings(**{name[2:]: changes.pop(name[2:]) for name in own})
    for seed, step in enumerate(SPREAD):
        more = {"test_samples": 64000, "images": 500, "difference": 0.2 + 0.01 * seed, "standard_error": 0.02}
        shown = {"more_samples": more, "log_z_low": 300.0, "log_z_high": 300.03 + 0.002 * seed}
        yield row(cell, seed, mean + step * 0.05 / math.sqrt(2.5), texts, **(shown | changes))


def both(report: Report) -> tuple[str, str]:
    return markdown(report, Path("docs"), NOWHERE), page(report)


def test_the_table_of_paper_and_recipe() -> None:
    report = gather(TABLES, [*made(CELL, 82.2), *made(GLYPHS, 98.0, source="OMNIGLOT (reconstructed)")], NOWHERE)
    text, html = both(report)
    # -0.62 / sqrt(0.05²/5 + 0.02²/5) = -25.7; by Welch with 5.25 degrees of freedom as unlikely as 4.9 (scipy)
    found = ["mnist", "4-nonlinear", "25", "82.82 ± 0.02", "82.20 ± 0.05", "▼ −0.62 (−4.9 SE)", "5", "0.038",
             "+0.220 ± 0.020 (64,000 samples, 500 images, 5 seeds)", ""]  # fmt: skip
    assert found[:5] == softspin_1.columns_of(softspin_1.entries(report)[0])[:5]
    section = text[: text.index("## Values")]
    (line,) = [one for one in section.splitlines() if one.startswith("| mnist")]
    (glyphs,) = [one for one in section.splitlines() if one.startswith("| omniglot")]
    assert line == f"| {' | '.join(found)} |"
    assert glyphs.endswith("| **reconstructed OMNIGLOT** |")
    assert section.index("| mnist") < section.index("| omniglot") < section.index(f"```\n{softspin_1.COMMAND}\n```")
    assert text.startswith("# Results\n\n")
    assert text.index("\n## ") == text.index("\n## Paper and softspin-1\n"), "the first section"
    assert html.index("<h2>Paper and softspin-1</h2>") < html.index("<h2>Values</h2>")
    for one in (*found, "reconstructed OMNIGLOT"):
        assert one in html


def test_rows_of_the_recipe_are_never_values_of_the_paper_s_cells() -> None:
    alone = gather(TABLES, made(CELL, 82.2), NOWHERE)
    assert (alone.results.cells, alone.summary["run"]) == ({}, 0)
    mixed = gather(TABLES, [*made(CELL, 82.2), *rows(CELL, 82.8)], NOWHERE)
    assert mixed.results.cells[NAME].mean == pytest.approx(82.8)
    (entry,) = softspin_1.entries(mixed)
    assert entry.found
    assert entry.found.mean == pytest.approx(82.2)
    nothing = gather(TABLES, [], NOWHERE)
    assert [one.verdict for one in alone.judged] == [one.verdict for one in nothing.judged]


@pytest.mark.parametrize(
    "changes", [{"decoder_dropout": 0.0}, {"steps": 1_000_000}, {"steps": 200_000}, {"test_chains": 1000}]
)
def test_runs_of_other_settings_or_lengths_are_left_out(changes: dict[str, Any]) -> None:
    report = gather(TABLES, made(CELL, 82.2, **changes), NOWHERE)
    assert len(report.results.others) == 1
    assert softspin_1.entries(report) == []


def test_other_cells_are_left_out() -> None:
    for name in ("mnist/1-nonlinear/k25/dvae#-power/pa", "mnist/4-nonlinear/k25/dvae#-exp/pa"):
        report = gather(TABLES, made(CELLS[name], 82.2), NOWHERE)
        assert len(report.results.others) == 1
        assert softspin_1.entries(report) == []


def test_without_rows_there_is_the_command() -> None:
    text, html = both(gather(TABLES, rows(CELL, 82.8), NOWHERE))
    section = text[text.index("## Paper") : text.index("## Values")]
    said = "The recipe softspin-1 has not been run at full length yet. This command makes its rows:"
    assert section == f"## Paper and softspin-1\n\n{said}\n\n```\n{softspin_1.COMMAND}\n```\n\n"
    assert said in html


def test_the_command_trains_cells_of_the_section() -> None:
    words = shlex.split(softspin_1.COMMAND)
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert words[:3] == ["softspin", "grid", "table1"]
    assert find_table(words[2]).is_file()
    chosen = choose(TABLES["table1"], [options["--only"]])
    assert [cell.id for cell in chosen] == [
        f"{data}/{structure}-nonlinear/k25/dvae#-power/pa" for data in ("mnist", "omniglot") for structure in (2, 4)
    ]
    given = [options["--set"], f"seeds={options['--seeds']}"]
    for cell in chosen:
        config = cell.config(settings=given, profile=options["--profile"])
        assert (config.more_test_samples, config.seeds) == (64000, (0, 1, 2, 3, 4))
        stored = config.to_dict()
        own = [row(cell, seed, 80.0, config=stored, variant=cell.variant(config), steps=config.steps, short=True)
               for seed in config.seeds]  # fmt: skip
        assert [one.cell for one in softspin_1.entries(gather(TABLES, own, NOWHERE))] == [cell]


def test_what_is_missing_in_rows_is_shown() -> None:
    """Some seeds compared, an open interval, one seed, outdated code; a warning among the other runs."""
    some = list(made(CELL, 82.2))
    bare = list(made(CELL, 82.2, more_samples=None, log_z_high=None, warning="<b>a mode</b>"))
    report = gather(TABLES, [*some[:2], *bare[2:4]], NOWHERE)
    (entry,) = softspin_1.entries(report)
    assert softspin_1.columns_of(entry)[6:] == ["4 of 5", "∞", "+0.205 ± 0.020 (64,000 samples, 500 images, 2 seeds)"]
    assert softspin_1.flags_of(entry) == []
    for text in both(report):
        assert text.count("WARNING: &lt;b&gt;a mode") == 1
    single = gather(TABLES, [*bare[:1], *made(CELL, 82.3, outdated="<b>a slip")], NOWHERE)
    one, old = softspin_1.entries(single)
    assert softspin_1.columns_of(one)[4:9] == ["82.14", "−0.68, spread unknown", "1 of 5", "∞", ""]
    assert softspin_1.flags_of(old) == ["outdated: <b>a slip"]
    assert "<b>a" not in "".join(both(single))


def test_the_command_of_any_late_setting_can_be_run() -> None:
    (group,) = gather(TABLES, made(CELL, 82.2), NOWHERE).results.others
    command = grid_command(group, TABLES.items())
    assert command is not None
    words = shlex.split(command)
    assert all(f"{name}=" in command for name in LATE.values() if name in PROFILES["softspin-1"])
    given = [word for before, word in itertools.pairwise(words) if before == "--set"]
    assert CELL.variant(CELL.config(settings=given)) == group.variant
