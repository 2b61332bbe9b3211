"""Synthetic result rows with known means and standard deviations."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from made_rows import row_json

import softspin
from softspin.experiments.cells import Cell, find_table, read_cells
from softspin.records import ResultRow

SPREAD = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Five seeds around their mean; their standard deviation is sqrt(2.5)."""


def plain_row(cell: Cell, /, seed: int, nll: float, settings: Iterable[str] = (), **changes: Any) -> dict[str, Any]:
    """A result row as plain data, with the fields that a report reads."""
    config, variant = _config(cell, tuple(settings))
    own: dict[str, Any] = {
        "cell": cell.id,
        "seed": seed,
        "steps": config["steps"],
        "short": config["steps"] != 1_000_000,
        "variant": dict(variant),
        "data": cell.data,
        "nll": nll,
        "nll_low": nll - 0.1,
        "nll_high": nll + 0.3,
        "fingerprint": f"bits of {cell.data}",
        "config": dict(config),
    }
    return row_json(**(own | changes))


def row(cell: Cell, /, seed: int, nll: float, settings: Iterable[str] = (), **changes: Any) -> ResultRow:
    """A synthetic row as a record."""
    return ResultRow.from_json_lenient(plain_row(cell, seed, nll, settings, **changes))


@functools.cache
def _config(cell: Cell, settings: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    config = cell.config(seeds=(0, 1, 2, 3, 4), settings=settings)
    return config.to_dict(), cell.variant(config)


def rows(
    cell: Cell, /, mean: float, std: float = 0.05, settings: Iterable[str] = (), **changes: Any
) -> Iterator[ResultRow]:
    """Five seeds with exactly this mean and standard deviation."""
    for seed, step in enumerate(SPREAD):
        yield row(cell, seed, mean + step * std / math.sqrt(2.5), settings, **changes)


ROOT = Path(softspin.__file__).parents[2]
TABLES = {name: read_cells(find_table(name)) for name in ("table1", "table2")}
CELLS = {cell.id: cell for cells in TABLES.values() for cell in cells}
NOWHERE = Path("no-such-folder")
"""Folder without arrays: no figure is drawn, which saves time."""


def as_published(changes: Mapping[str, float] = MappingProxyType({})) -> list[ResultRow]:
    """Rows of every cell with the published mean and standard deviation; `changes` replaces some means."""
    return [
        one
        for cell in CELLS.values()
        for one in rows(cell, changes.get(cell.id, cell.nll or math.nan), cell.std or math.nan)
    ]
