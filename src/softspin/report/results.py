"""Select the rows that count, and average each cell over its seeds, separately from other runs."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from softspin import paper
from softspin.config import Config
from softspin.config.phases import LATE
from softspin.errors import SoftspinError
from softspin.experiments.cells import Cell
from softspin.experiments.rows import key_of, latest
from softspin.records import FULL_STEPS, ResultRow

SEEDS = paper.SEEDS
"""Training runs behind each published value; fewer seeds of ours are flagged."""

RECONSTRUCTED = "f0835aecff37e6d8457f8420b187d29f00913ed65134dd247d5bb2b9c1d4e5d3"
"""Fingerprint of the OMNIGLOT reconstructed from the official drawings, for rows that do not name their source."""

ROUNDING = 1e-6
"""Nats by which an NLL may lie outside its interval; if log Z is exact, the interval is a point."""


@dataclass(frozen=True)
class Group:
    """Rows of one cell with the same steps, variant, data and outdated state; they differ by seed."""

    rows: tuple[ResultRow, ...]

    @property
    def first(self) -> ResultRow:
        """One of the rows; all have the same cell, steps, variant, data and outdated state."""
        return self.rows[0]

    @property
    def cell(self) -> str:
        """Id of the cell."""
        return self.first.cell or ""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds in increasing order."""
        return tuple(sorted(row.seed for row in self.rows))

    @property
    def steps(self) -> int:
        """Number of training steps."""
        return self.first.steps

    @property
    def variant(self) -> dict[str, Any]:
        """Settings that differ from the recipe."""
        return dict(self.first.variant)

    @property
    def recipe(self) -> bool:
        """Whether this is the paper's recipe: full length, no setting changed."""
        return not self.variant and not self.first.short

    @property
    def outdated(self) -> str:
        """Bug that was later found in the code; empty if none is known."""
        return self.first.outdated or ""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the data, different for each copy."""
        return str(self.first.fingerprint)

    @property
    def mean(self) -> float:
        """Mean test NLL over seeds."""
        return fmean(row.test_nll for row in self.rows)

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds, with n - 1; None for a single seed."""
        return stdev(row.test_nll for row in self.rows) if len(self.rows) > 1 else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean."""
        return None if self.std is None else self.std / math.sqrt(len(self.rows))

    @property
    def low(self) -> float | None:
        """The mean with every log Z at the lower end of its interval; None if that is infinite."""
        return _mean_end(row.nll_low for row in self.rows)

    @property
    def high(self) -> float | None:
        """The mean with every log Z at the upper end of its interval; None if that is infinite."""
        return _mean_end(row.nll_high for row in self.rows)

    @property
    def log_z_method(self) -> str:
        """Method of log Z."""
        return ", ".join(dict.fromkeys(row.log_z_method or "unknown" for row in self.rows))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why numbers of the rows cannot be trusted, without repetitions."""
        return tuple(dict.fromkeys(row.warning for row in self.rows if row.warning is not None))

    @property
    def data_flag(self) -> str | None:
        """A remark on the data. MNIST needs none: its files have known digests."""
        source = self.first.source or ""
        if source.startswith("OMNIGLOT (original"):
            return None
        if self.first.fingerprint == RECONSTRUCTED or "reconstructed" in source:
            return "reconstructed OMNIGLOT"
        return "OMNIGLOT of unknown origin" if self.cell.startswith("omniglot/") else None

    @property
    def flags(self) -> list[str]:
        """Differences from the paper, shown next to the number."""
        length = "short" if self.steps < FULL_STEPS else "long"
        found = [f"{length}: {self.steps:,} steps"] if self.steps != FULL_STEPS else []
        found += [setting(name, value) for name, value in self.variant.items()]
        if len(self.rows) < SEEDS:
            found.append(f"{len(self.rows)} of {SEEDS} seeds")
        return found + self.origin_flags

    @property
    def origin_flags(self) -> list[str]:
        """Remarks on the code and the data."""
        outdated = [f"outdated: {self.outdated}"] if self.outdated else []
        return outdated + ([self.data_flag] if self.data_flag else [])


def _mean_end(ends: Iterable[float | None]) -> float | None:
    """The mean of one end of all intervals, if all have it."""
    found = list(ends)
    known = [end for end in found if end is not None]
    return fmean(known) if len(known) == len(found) else None


def setting(name: str, value: Any) -> str:
    """A setting as the command line takes it.

    >>> setting("tf32", True), setting("clamp", 1e-7), setting("learning_rate_schedule", [[0.5, 1], [1.0, 0.1]])
    ('tf32=true', 'clamp=1e-07', 'learning_rate_schedule=0.5:1,1.0:0.1')
    >>> setting("late_chains", [0.6, 4000])
    'late_chains=0.6:4000'
    """
    return f"{name}={_text(value, ':' if name in LATE.values() else ',')}"


def _text(value: Any, between: str = ",") -> str:
    if isinstance(value, list):
        return between.join(_text(one, ":") for one in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


class Failed(NamedTuple):
    """A run that failed."""

    row: ResultRow
    retried: bool
    """Whether a later run succeeded."""


class Rejected(NamedTuple):
    """A result that does not count, and the reason."""

    row: ResultRow
    reason: str


@dataclass(frozen=True)
class Results:
    """All rows, each in one of four groups."""

    cells: dict[str, Group]
    """The value of each cell that has one: full length, the recipe, one copy of the data."""
    others: list[Group]
    """Short runs, variants, other copies of the data, cells of no table."""
    failed: list[Failed]
    rejected: list[Rejected]

    @property
    def accepted(self) -> list[ResultRow]:
        """All rows with a value in the report."""
        return [row for group in (*self.cells.values(), *self.others) for row in group.rows]


def sort_rows(rows: Iterable[ResultRow], cells: Mapping[str, Cell]) -> Results:
    """Sort rows into values of cells, other runs, failures and rejected rows.

    Args:
        rows: All rows.
        cells: Cells of the tables by id.

    Returns:
        The sorted rows.
    """
    rows = [row for row in rows if row.status != "validated"]  # they have no NLL of the test set
    last = latest(rows)
    done = {key._replace(outdated="") for key, row in last.items() if row.ok}
    failed = [Failed(row, key_of(row)._replace(outdated="") in done) for row in rows if not row.ok]
    rejected, groups = [], dict[str, list[ResultRow]]()
    for row in (row for row in rows if row.ok):
        if (reason := rejection_reason(row, cells.get(row.cell or ""))) is not None:
            rejected.append(Rejected(row, reason))
        else:
            groups.setdefault(json.dumps([key_of(row)._replace(seed=0), row.fingerprint]), []).append(row)
    found, others = dict[str, Group](), []
    # Valid code first; then the known copy of the data; then the group with more seeds.
    for group in sorted(
        map(Group, map(tuple, groups.values())), key=lambda g: (bool(g.outdated), bool(g.data_flag), -len(g.rows))
    ):
        if group.recipe and group.cell in cells and group.cell not in found:
            found[group.cell] = group
        else:
            others.append(group)
    others.sort(key=lambda group: _place(group, list(cells)))
    return Results(found, others, failed, rejected)


def _place(group: Group, cells: list[str]) -> tuple[object, ...]:
    """Sort key of other runs: order of the tables, then longest, then the recipe before variants, outdated last."""
    known = cells.index(group.cell) if group.cell in cells else len(cells)
    variant = len(group.variant), json.dumps(group.variant, sort_keys=True)
    return known, group.cell, -group.steps, *variant, group.outdated


def rejection_reason(row: ResultRow, cell: Cell | None) -> str | None:
    """Reason why a result does not count; None if it does. Its config must be known and match the row."""
    known = {"fingerprint": row.fingerprint, "device": row.provenance.device}
    wrong = [f"its {name} is unknown" for name, value in known.items() if not value]
    wrong += [f"it {row.invalid}"] if row.invalid else []
    origin = unknown_origin(row.config, row.provenance.commit, row.start_commit)
    return origin or next(iter(wrong), None) or _contradiction(row) or _other_config(row, cell)


def _contradiction(row: ResultRow) -> str | None:
    nll = row.test_nll
    low, high = (nll if end is None else end for end in (row.nll_low, row.nll_high))
    if not low - ROUNDING <= nll <= high + ROUNDING:
        return f"its NLL, {nll}, is not between nll_low and nll_high"
    return None


def _other_config(row: ResultRow, cell: Cell | None) -> str | None:
    try:
        config, variant = _read(json.dumps(row.config), cell)
    except SoftspinError as error:
        return f"its config cannot be read: {error}"
    if config.steps != row.steps or row.short != (config.steps != FULL_STEPS):
        return f"its config has {config.steps:,} steps, which is not what the row says"
    if row.seed not in config.seeds:
        return f"its config does not have the seed {row.seed}"
    if row.test_samples not in (None, config.test_samples):
        return f"its config has {config.test_samples:,} importance samples, which is not what the row says"
    if variant is not None and variant != row.variant:
        settings = ", ".join(setting(*one) for one in variant.items()) or "nothing"
        return f"its config differs from the cell's by {settings}, which is not what the row says"
    return None


@functools.cache  # the seeds of a run share it
def _read(text: str, cell: Cell | None) -> tuple[Config, dict[str, Any] | None]:
    """A config from JSON, and how it differs from its cell's."""
    config = Config.from_dict(json.loads(text))
    return config, None if cell is None else cell.variant(config)


def unknown_origin(config: object, *commits: object) -> str | None:
    """Reason why the origin of a row or of a figure is unknown; None if it is known.

    Args:
        config: Config of the run, as plain data.
        commits: Commits at its end and its start, which differ if the run was resumed.
    """
    for commit in commits:
        if isinstance(commit, str) and commit.endswith("+"):
            return f"made by commit {commit.removesuffix('+')} with changes that were not committed"
        if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{7,40}", commit):
            return "its commit is unknown"
    if not isinstance(config, Mapping) or not config:
        return "its config is unknown"
    return None
