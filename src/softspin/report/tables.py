"""The paper's tables as blocks of cells, with the obtained and the published value of each."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from softspin.experiments.cells import Cell
from softspin.report.results import SEEDS, Group, Results, setting
from softspin.report.welch import as_normal, degrees_of_freedom

MARGIN = 0.15
"""Nats by which a value may differ from the published one, or 3 published standard deviations if that is more."""

ERRORS = (
    "SE is the difference in standard errors: (obtained - published) / sqrt(s²/n + p²/5), where s is the standard "
    "deviation of our n seeds and p the published one of five runs. Both come from few runs. So this t statistic is "
    "converted to the z-score of equal p-value (Welch 1947): an absolute value above 2 has probability 5% if both "
    "means are equal."
)
"""Explanation of the column SE."""

SIGNS = {"level": "≈", "lower": "▼", "higher": "▲"}


class Entry(NamedTuple):
    """One number of a table, published and obtained."""

    cell: Cell
    found: Group | None

    @property
    def difference(self) -> float | None:
        """Obtained minus published; below zero is better than published."""
        return None if self.found is None or self.cell.nll is None else self.found.mean - self.cell.nll

    @property
    def apart(self) -> float | None:
        """The difference in standard errors, see `ERRORS`; None where the spread of one of the two is unknown."""
        if self.difference is None or self.found is None or self.found.error is None or self.cell.std is None:
            return None
        means = (self.found.error, len(self.found.rows)), (self.cell.std / math.sqrt(SEEDS), SEEDS)
        error = math.hypot(*(error for error, _ in means))
        return as_normal(self.difference / error, degrees_of_freedom(means)) if error else None

    @property
    def far(self) -> bool:
        """Whether it differs from the published value by more than `MARGIN` and 3 published standard deviations."""
        return self.difference is not None and abs(self.difference) > max(MARGIN, 3 * (self.cell.std or 0.0)) + 1e-9

    @property
    def verdict(self) -> str:
        """Agreement with the published value."""
        return "no published value" if self.difference is None else "differs" if self.far else "agrees"

    @property
    def flags(self) -> list[str]:
        """Flags shown next to the number."""
        return [*(self.found.flags if self.found else []), *(["far from published"] if self.far else [])]


class Line(NamedTuple):
    """A row of a table: a structure at one K."""

    structure: str
    k: int
    entries: list[Entry | None]


class Block(NamedTuple):
    """All cells of a table for one data set, columns as in the paper."""

    table: str
    data: str
    columns: list[tuple[str, str]]
    """Method and sampler of each column."""
    lines: list[Line]

    @property
    def entries(self) -> list[Entry]:
        """All entries of the block."""
        return [entry for line in self.lines for entry in line.entries if entry is not None]

    @property
    def names(self) -> list[str]:
        """Names of the columns: methods, or samplers if there is only one method."""
        one_method = len({method for method, _ in self.columns}) == 1
        return [sampler.upper() if one_method else method for method, sampler in self.columns]

    @property
    def commands(self) -> list[str]:
        """Commands that compute the rows of each structure."""
        return [
            shlex.join(["softspin", "grid", self.table, "--only", f"{self.data}/{structure}"])
            for structure in dict.fromkeys(line.structure for line in self.lines)
        ]


def blocks(table: str, cells: Iterable[Cell], results: Results) -> list[Block]:
    """Split a table into one block for each data set."""
    by_data: dict[str, list[Cell]] = {}
    for cell in cells:
        by_data.setdefault(cell.data, []).append(cell)
    return [_block(table, data, of_data, results) for data, of_data in by_data.items()]


def _block(table: str, data: str, cells: Sequence[Cell], results: Results) -> Block:
    columns = list(dict.fromkeys((cell.method, cell.sampler) for cell in cells))
    entries = {
        (cell.structure, cell.k, cell.method, cell.sampler): Entry(cell, results.cells.get(cell.id)) for cell in cells
    }
    places = dict.fromkeys((cell.structure, cell.k) for cell in cells)
    lines = [Line(*place, [entries.get((*place, *column)) for column in columns]) for place in places]
    return Block(table, data, columns, lines)


def grid_command(group: Group, tables: Iterable[tuple[str, Iterable[Cell]]]) -> str | None:
    """The command for the rows of a group; None if its cell is in no table, or its code is outdated."""
    table = next((name for name, cells in tables if any(cell.id == group.cell for cell in cells)), None)
    if table is None or group.outdated:
        return None
    words = ["softspin", "grid", table, "--only", group.cell, "--seeds", ",".join(map(str, group.seeds))]
    words += ["--steps", str(group.steps)] if group.first.short else []
    for name, value in group.variant.items():
        words += ["--set", setting(name, value)]
    return shlex.join(words)


def obtained_text(group: Group) -> str:
    """Mean and standard deviation over seeds; only the value if there is one seed. Binary pixels need no unit."""
    unit = "" if group.first.unit is None else f" {group.first.unit}"
    return (f"{group.mean:.2f}" if group.std is None else f"{group.mean:.2f} ± {group.std:.2f}") + unit


def seeds_text(group: Group) -> str:
    """Number of seeds with a value, out of the number of seeds in the paper.

    >>> from types import SimpleNamespace
    >>> seeds_text(SimpleNamespace(rows=[1, 2, 3]))
    '3 of 5'
    """
    return str(len(group.rows)) if len(group.rows) >= SEEDS else f"{len(group.rows)} of {SEEDS}"


def remarks(entry: Entry) -> list[str]:
    """Flags of a value that are not visible in the other columns of a list of values."""
    shown = () if entry.found is None else (f"{len(entry.found.rows)} of {SEEDS} seeds", "far from published")
    return [flag for flag in entry.flags if flag not in shown]


def published_text(cell: Cell) -> str:
    """The published value."""
    if cell.nll is None:
        return "none"
    return f"{cell.nll:.2f}" if cell.std is None else f"{cell.nll:.2f} ± {cell.std:.2f}"


def direction(entry: Entry) -> str:
    """Whether a value is lower or higher than published by more than two standard errors; strong: by more than four."""
    if entry.apart is None or abs(entry.apart) <= 2:
        return "level"
    return ("lower" if entry.apart < 0 else "higher") + (" strong" if abs(entry.apart) > 4 else "")


def difference_text(entry: Entry) -> str:
    """Obtained minus published, in nats and in standard errors; the symbol does not rely on color."""
    if entry.difference is None:
        return "no published value"
    if entry.apart is None:
        return f"{signed(entry.difference)}, spread unknown"
    return f"{SIGNS[direction(entry).split()[0]]} {signed(entry.difference)} ({signed(entry.apart, 1)} SE)"


def interval_text(group: Group) -> str:
    """Interval of the NLL due to log Z, its width, and the method of log Z."""
    low, high, method = group.low, group.high, group.log_z_method
    method += "".join(f"; WARNING: {text}" for text in group.warnings)
    if low is None or high is None:
        return f"{'−∞' if low is None else f'{low:.2f}'} to {'∞' if high is None else f'{high:.2f}'}; {method}"
    return f"{low:.2f} to {high:.2f}; width {high - low:.2f}, {method}"


def signed(number: float, digits: int = 2) -> str:
    """Format a number with a sign, a true minus, and no sign at zero.

    >>> signed(-0.123), signed(0.5, 1), signed(-0.001)
    ('−0.12', '+0.5', '0.00')
    """
    text = f"{number:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text


def count(number: int, word: str) -> str:
    """Format a count with its noun.

    >>> count(1, "seed"), count(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"
