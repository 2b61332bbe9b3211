"""The paper's tables as blocks of cells, with the obtained value of each beside the printed one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from softspin.experiments.cells import Cell
from softspin.report.results import SEEDS, Group, Results, setting
from softspin.report.welch import as_normal, freedom

MARGIN = 0.15
"""Nats that a value may be off, or 3 of the printed standard deviations if that is more, before one asks why."""

ERRORS = (
    "standard errors apart = (obtained - printed) / sqrt(s²/n + p²/5), with the standard deviation s of our n seeds, "
    "and p, the printed one, of five runs; spreads of so few runs are themselves unsure, so Welch's t makes of it the "
    "number that would be as unlikely if they were known: more than 2 in 5% of equals, however few the seeds"
)
"""The formula, in words for the reader."""

SIGNS = {"level": "≈", "lower": "▼", "higher": "▲"}


class Entry(NamedTuple):
    """One number of a table, in print and as obtained."""

    cell: Cell
    found: Group | None

    @property
    def difference(self) -> float | None:
        """Obtained less printed; below zero is better than in print."""
        return None if self.found is None or self.cell.nll is None else self.found.mean - self.cell.nll

    @property
    def apart(self) -> float | None:
        """The difference in standard errors, see `ERRORS`; None where the spread of one of the two is unknown."""
        if self.difference is None or self.found is None or self.found.error is None or self.cell.std is None:
            return None
        means = (self.found.error, len(self.found.rows)), (self.cell.std / math.sqrt(SEEDS), SEEDS)
        error = math.hypot(*(error for error, _ in means))
        return as_normal(self.difference / error, freedom(means)) if error else None

    @property
    def far(self) -> bool:
        """Whether it is farther from print than `MARGIN` and than 3 of the printed standard deviations."""
        return self.difference is not None and abs(self.difference) > max(MARGIN, 3 * (self.cell.std or 0.0)) + 1e-9

    @property
    def flags(self) -> list[str]:
        """What is shown at the number."""
        return [*(self.found.flags if self.found else []), *(["far from print"] if self.far else [])]


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
    """Method and sampler of each."""
    lines: list[Line]

    @property
    def entries(self) -> list[Entry]:
        """All that there are."""
        return [entry for line in self.lines for entry in line.entries if entry is not None]

    @property
    def names(self) -> list[str]:
        """Of the columns: methods, or samplers where there is one method alone."""
        one_method = len({method for method, _ in self.columns}) == 1
        return [sampler.upper() if one_method else method for method, sampler in self.columns]

    @property
    def commands(self) -> list[str]:
        """What makes the rows of each structure."""
        return [
            shlex.join(["softspin", "grid", self.table, "--only", f"{self.data}/{structure}"])
            for structure in dict.fromkeys(line.structure for line in self.lines)
        ]


def blocks(table: str, cells: Iterable[Cell], results: Results) -> list[Block]:
    """A table, one block for each data set."""
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
    """What makes the rows of a group; None if its cell is in no table, or its code is not there any more."""
    table = next((name for name, cells in tables if any(cell.id == group.cell for cell in cells)), None)
    if table is None or group.outdated:
        return None
    words = ["softspin", "grid", table, "--only", group.cell, "--seeds", ",".join(map(str, group.seeds))]
    words += ["--steps", str(group.steps)] if group.first.short else []
    for name, value in group.variant.items():
        words += ["--set", setting(name, value)]
    return shlex.join(words)


def obtained_text(group: Group) -> str:
    """Mean over seeds and their standard deviation, if there are several seeds."""
    return f"{group.mean:.2f}" if group.std is None else f"{group.mean:.2f} ± {group.std:.2f}"


def printed_text(cell: Cell) -> str:
    """The value in print."""
    if cell.nll is None:
        return "none"
    return f"{cell.nll:.2f}" if cell.std is None else f"{cell.nll:.2f} ± {cell.std:.2f}"


def direction(entry: Entry) -> str:
    """Whether a value is lower or higher than print by more than two standard errors, or strongly so, by four."""
    if entry.apart is None or abs(entry.apart) <= 2:
        return "level"
    return ("lower" if entry.apart < 0 else "higher") + (" strong" if abs(entry.apart) > 4 else "")


def difference_text(entry: Entry) -> str:
    """Obtained less printed, in nats and in standard errors; a sign says it without colour."""
    if entry.difference is None:
        return "nothing in print"
    if entry.apart is None:
        return f"{signed(entry.difference)}, spread unknown"
    return f"{SIGNS[direction(entry).split()[0]]} {signed(entry.difference)} ({signed(entry.apart, 1)} SE)"


def interval_text(group: Group) -> str:
    """Between what the NLL lies as far as log Z is known, how wide that is, and how log Z was found."""
    low, high, method = group.low, group.high, group.log_z_method
    if low is None or high is None:
        return f"{'−∞' if low is None else f'{low:.2f}'} to {'∞' if high is None else f'{high:.2f}'}; {method}"
    return f"{low:.2f} to {high:.2f}; width {high - low:.2f}, {method}"


def signed(number: float, digits: int = 2) -> str:
    """With a sign that is as wide as the plus, and none at zero.

    >>> signed(-0.123), signed(0.5, 1), signed(-0.001)
    ('−0.12', '+0.5', '0.00')
    """
    text = f"{number:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text


def count(number: int, word: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"
