"""The plan of `softspin grid --dry-run`: cells, missing seeds, estimated time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from softspin.cli.console import say, say_json, show_table
from softspin.cli.listing import differing
from softspin.experiments.planning import CellPlan
from softspin.experiments.runs import seeds_text
from softspin.formatting import overrides_text
from softspin.timing import Estimate, Estimator

UNSCALED = "times are those of {}; --measure scales them to this machine (takes seconds, once)"
"""Hint for estimates that are not for this machine."""


def show_plan(cells: list[CellPlan], estimator: Estimator, json: bool) -> None:
    """Print a line per cell and the sum."""
    times = [_time(one, estimator) for one in cells]
    if json:
        say_json([_to_json(one, time, estimator) for one, time in zip(cells, times, strict=True)])
        return
    columns = ["cell", "beta", "published", "seeds to run", "time"]
    table = [
        [one.cell.id, _beta(one), _published(one), _missing(one), _time_text(one, time)]
        for one, time in zip(cells, times, strict=True)
    ]
    if len({one.cell.id for one in cells}) < len(cells):  # a sweep: cells that differ in other settings
        differ = differing(one.config.settings() for one in cells)
        columns.append("differs by")
        for row, one in zip(table, cells, strict=True):
            row.append(overrides_text({name: one.config.settings().get(name) for name in differ}))
    show_table(columns, table, drop=("published", "seeds to run"))
    rows, runs = sum(len(one.missing) for one in cells), sum(len(one.runs) for one in cells)
    to_run = [time for one, time in zip(cells, times, strict=True) if one.runs]
    known = [time for time in to_run if time is not None]
    unknown = len(to_run) - len(known)
    total = [str(_sum(known))] * bool(known) + [f"unknown for {unknown} of {len(to_run)} cells"] * bool(unknown)
    say(f"missing rows: {rows}; runs to train: {runs}" + (f"; estimated time: {' + '.join(total)}" if total else ""))
    if known:
        text = f"times are those of {estimator.machine}, one run at a time and no other program"
        say(text if estimator.is_measured else UNSCALED.format(estimator.machine))


def _time(one: CellPlan, estimator: Estimator) -> Estimate | None:
    """The time of the missing runs of a cell, from their last checkpoints; None if it is unknown."""
    times = [estimator.run(spec.config, step=spec.step) for spec in one.runs]
    known = [time for time in times if time is not None]
    return _sum(known) if len(known) == len(times) else None


def _sum(times: Iterable[Estimate]) -> Estimate:
    return sum(times, start=Estimate(0, 0, 0))


def _to_json(one: CellPlan, time: Estimate | None, estimator: Estimator) -> dict[str, Any]:
    return {
        "cell": one.cell.id,
        "beta": one.config.beta,
        "nll": one.cell.nll,
        "std": one.cell.std,
        "steps": one.config.steps,
        "variant": one.cell.variant(one.config),
        "missing": list(one.missing),
        "failed": list(one.failed),
        "runs": [str(spec.folder) for spec in one.runs],
        "time": None if time is None else time.to_json(),
        "machine": estimator.machine,
    }


def _beta(one: CellPlan) -> str:
    return "-" if one.config.beta is None else f"{one.config.beta:g}"


def _published(one: CellPlan) -> str:
    error = "" if one.cell.std is None else f" +- {one.cell.std:.2f}"
    return "-" if one.cell.nll is None else f"{one.cell.nll:.2f}{error}"


def _missing(one: CellPlan) -> str:
    missing = seeds_text(one.missing) or "-"
    return f"{missing} ({seeds_text(one.failed)} failed)" if one.failed else missing


def _time_text(one: CellPlan, time: Estimate | None) -> str:
    if not one.runs:
        return "in a run above" if one.missing else "-"
    return "unknown" if time is None else time.interval
