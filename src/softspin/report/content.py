"""The content of a report, gathered from cells, rows and arrays; `page` and `markdown` format it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from softspin.errors import FigureError, MissingExtraError
from softspin.experiments.cells import Cell
from softspin.experiments.figures import NAMES
from softspin.experiments.figures.arrays import Arrays, load, place
from softspin.records import ResultRow
from softspin.report.claims import Case, Claim, Difference, Measured, Observation, Tally, Verdict, weighted
from softspin.report.figures import caption, compose, picture
from softspin.report.observations import observations
from softspin.report.results import SEEDS, Group, Results, sort_rows, unknown_origin
from softspin.report.tables import Block, Entry, blocks

TITLES = {
    "fig1": "Figure 1: inverse CDFs and their gradients",
    "fig2a": "Figure 2a: the mean field converges",
    "fig2b": "Figure 2b: the mean field during training",
    "fig2c": "Figure 2c: variance of the gradient",
    "appendix": "Appendix: distance to bits against variance of the gradient",
}

WIDE = 7.0
"""Width in inches above which a picture has several panels, which are too small to read on a phone."""
PLACES = re.compile(r" --(?:arrays|out)[ =](?:'[^']*'|\S+)")
"""Options for folders, which differ between users."""


class Picture(NamedTuple):
    """A figure, or the reason why it is missing."""

    name: str
    arrays: Arrays | None
    svg: bytes
    wide: bool
    caption: str
    """Caption, or the reason why the figure is missing."""

    @property
    def title(self) -> str:
        """Title, as in the paper."""
        return TITLES[self.name]

    @property
    def commands(self) -> list[str]:
        """Commands that compute the numbers, and that draw them."""
        made = f"softspin figure {self.name} --compute" if self.arrays is None else str(self.arrays.meta["command"])
        return [PLACES.sub("", made), f"softspin figure {self.name}"]

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Origin of the numbers: commit, device, training steps and date."""
        meta: dict[str, Any] = {} if self.arrays is None else self.arrays.meta
        steps = f"{meta['steps_done']:,} of {meta['steps']:,}" if {"steps", "steps_done"} <= meta.keys() else "none"
        return [
            ("commit", str(meta.get("commit"))),
            ("device", str(meta.get("device"))),
            ("training steps", steps),
            ("date", str(meta.get("date"))[:10]),
        ]


class Judged(NamedTuple):
    """An observation, its verdict by the rows, and the tallies of the published values."""

    observation: Observation
    verdict: Verdict
    tallies: list[Tally]
    published: list[Tally]

    @property
    def cases(self) -> int:
        """Number of possible comparisons."""
        return sum(tally.cases for tally in self.tallies)

    @property
    def claims(self) -> list[tuple[Claim, Tally, Tally]]:
        """Each claim with its comparisons, of our values and of the published ones."""
        return list(zip(self.observation.claims, self.tallies, self.published, strict=True))


class Origin(NamedTuple):
    """Rows of one commit, device and data set."""

    commit: str
    device: str
    torch: str
    data: str
    fingerprint: str
    rows: int
    first: str
    last: str

    @property
    def days(self) -> str:
        """First and last date."""
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True)
class Report:
    """Tables, results, observations and figures."""

    tables: dict[str, list[Cell]]
    results: Results
    blocks: list[Block]
    judged: list[Judged]
    pictures: list[Picture]

    @property
    def entries(self) -> list[Entry]:
        """Entries without repetition; Table 2 repeats some cells of Table 1."""
        return list({entry.cell.id: entry for block in self.blocks for entry in block.entries}.values())

    @property
    def summary(self) -> dict[str, int]:
        """Counts for the first lines."""
        found = [entry for entry in self.entries if entry.found is not None]
        compared = [entry for entry in found if entry.difference is not None]
        return {
            "cells": len(self.entries),
            "run": len(found),
            "all_seeds": sum(len(entry.found.rows) >= SEEDS for entry in found if entry.found),
            "outdated": sum(bool(entry.found.outdated) for entry in found if entry.found),
            "flagged": sum(bool(entry.found.flags) for entry in found if entry.found),
            "compared": len(compared),
            "near": sum(not entry.far for entry in compared),
        }

    @property
    def largest(self) -> float:
        """The largest absolute difference from a published value, in nats."""
        return max((abs(entry.difference) for entry in self.entries if entry.difference is not None), default=0.0)

    @property
    def origins(self) -> list[Origin]:
        """Commits and devices behind the rows that are shown, newest first."""
        dates: dict[tuple[str, ...], list[str]] = {}
        for row in self.results.accepted:
            key = _origin(row)
            dates.setdefault(key, []).append(row.date or "unknown")
        found = [Origin._make((*key, len(each), min(each)[:10], max(each)[:10])) for key, each in dates.items()]
        return sorted(found, key=lambda origin: (origin.last, origin.first), reverse=True)

    def against_recipe(self, group: Group) -> Difference | None:
        """Variant minus recipe at the same length, on the same data; None if one of them has no spread."""
        comparable = [
            other
            for other in (*self.results.cells.values(), *self.results.others)
            if (other.cell, other.steps, other.fingerprint, other.outdated, other.variant)
            == (group.cell, group.steps, group.fingerprint, group.outdated, {})
            and other.first.unit == group.first.unit
        ]
        if not group.variant or not comparable or comparable[0].error is None or group.error is None:
            return None
        pair = [Measured(one.mean, one.error or 0.0, len(one.rows), "") for one in (group, comparable[0])]
        return weighted(1, -1)(pair)

    def flags(self, *cases: Case) -> list[str]:
        """Flags of all cells in these comparisons."""
        ids = {cell for case in cases for cell in case.cells}
        found = [self.results.cells[cell].flags for cell in ids if cell in self.results.cells]
        return sorted({flag for flags in found for flag in flags})


def _origin(row: ResultRow) -> tuple[str, ...]:
    """Key that identifies the origin of a row; a run that was resumed has two commits."""
    commits = " to ".join(str(commit) for commit in row.commits)
    known = row.provenance.device, row.provenance.torch, row.source or row.data, row.fingerprint
    return commits, *(text or "unknown" for text in known)


def gather(tables: dict[str, list[Cell]], rows: Iterable[ResultRow], arrays: Path | None) -> Report:
    """Judge the rows by the two tables, and draw the arrays of a folder."""
    cells = {cell.id: cell for each in tables.values() for cell in each}
    results = sort_rows(rows, cells)
    ours = {
        name: Measured(group.mean, group.error, len(group.rows), group.fingerprint)
        for name, group in results.cells.items()
        if group.error is not None
    }
    published = {
        name: Measured(cell.nll, cell.std / math.sqrt(SEEDS), SEEDS, "paper")
        for name, cell in cells.items()
        if cell.nll is not None and cell.std is not None
    }
    judged = [
        Judged(one, *one.judge(ours), one.judge(published)[1])
        for one in observations(tables["table1"], tables["table2"])
    ]
    shown = [block for name, each in tables.items() for block in blocks(name, each, results)]
    return Report(tables, results, shown, judged, pictures(arrays, NAMES))


def pictures(folder: Path | None, names: Sequence[str]) -> list[Picture]:
    """Figures that have arrays of known origin, and for the others the reason why they are missing."""
    found = []
    for name in names:
        if not place(folder, name).exists():
            found.append(Picture(name, None, b"", False, "Not yet computed."))
            continue
        try:
            stored = load(folder, name)
            if (reason := unknown_origin(stored.meta.get("config"), stored.meta.get("commit"))) is not None:
                raise FigureError(f"the arrays of {name} are rejected: {reason}")
            figure = compose(stored)
            wide = figure.get_size_inches()[0] > WIDE
            found.append(Picture(name, stored, picture(figure, "svg"), bool(wide), caption(stored)))
        except (FigureError, MissingExtraError) as error:
            found.append(Picture(name, None, b"", False, f"Not shown: {error}"))
    return found
