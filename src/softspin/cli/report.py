"""`softspin report`: the paper's tables, observations and figures, obtained and published, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softspin import files
from softspin.cli.console import say, say_json, warn
from softspin.cli.options import Json
from softspin.errors import RowsError
from softspin.experiments.cells import find_table, read_cells
from softspin.experiments.figures.arrays import COMPUTED
from softspin.experiments.rows import DEFAULT_ROWS, find_rows, read_rows
from softspin.report.claims import OUTCOMES
from softspin.report.content import Report, gather
from softspin.report.markdown import markdown
from softspin.report.page import page
from softspin.report.texts import verdict


def report(
    out: Annotated[Path, typer.Option(help="Write the page to this HTML file.")] = Path("report.html"),
    results: Annotated[Path, typer.Option(help="Write the same as Markdown.")] = Path("docs/results.md"),
    rows: Annotated[
        Path | None, typer.Option(help="Read result rows from this file.", show_default=DEFAULT_ROWS)
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--arrays",
            help="Read the arrays of figures from this directory.",
            show_default=f"{COMPUTED}, else those of the package",
        ),
    ] = None,
    pictures: Annotated[Path, typer.Option(help="Link pictures in this directory from the Markdown.")] = Path(
        "docs/figures"
    ),
    json: Json = False,
) -> None:
    """Write one page with the paper's tables, observations and figures, from stored rows and arrays alone.

    Rows whose commit or config is unknown, or whose code was not committed, are rejected, and listed with the reason.
    Exit code 1: every result was rejected.
    """
    if out.resolve() == results.resolve():
        raise typer.BadParameter("it is the same file as --results", param_hint="--out")
    rows = find_rows() if rows is None else rows
    if not rows.is_file():
        raise RowsError(f"no rows {rows}; make them with softspin grid, or give another file: --rows FILE")
    tables = {name: read_cells(find_table(name)) for name in ("table1", "table2")}
    found = gather(tables, read_rows(rows, warn), source)
    files.write_text(out, page(found), parents=True)
    files.write_text(results, markdown(found, results.parent, pictures), parents=True)
    if json:
        say_json(_to_json(found, [out, results]))
    else:
        _say(found, [out, results])
    if found.results.rejected and not found.results.accepted:
        warn("every result was rejected; see the end of the page for why")
        raise typer.Exit(1)


def _say(found: Report, written: list[Path]) -> None:
    rows = found.results
    say(verdict(found))
    for one in found.judged:
        made = sum(len(tally.findings) for tally in one.tallies)
        say(f"observation {one.observation.name}: {one.verdict} ({made} of {one.cases} comparisons)")
    missing = [picture.name for picture in found.pictures if picture.arrays is None]
    if missing:
        say(f"figures missing: {', '.join(missing)}")
    others = sum(len(group.rows) for group in rows.others)
    for name, number in {"of other runs": others, "failed": len(rows.failed), "rejected": len(rows.rejected)}.items():
        if number:
            say(f"rows {name}: {number}")
    say(f"written: {', '.join(map(str, written))}")


def _to_json(found: Report, written: list[Path]) -> dict[str, Any]:
    return {
        "written": written,
        "summary": found.summary,
        "cells": [
            {
                "cell": entry.cell.id,
                "published": entry.cell.nll,
                "published_std": entry.cell.std,
                "nll": entry.found and entry.found.mean,
                "std": entry.found and entry.found.std,
                "nll_low": entry.found and entry.found.low,
                "nll_high": entry.found and entry.found.high,
                "seeds": list(entry.found.seeds) if entry.found else [],
                "difference": entry.difference,
                "standard_errors": entry.apart,
                "flags": entry.flags,
            }
            for entry in found.entries
        ],
        "observations": [
            {
                "observation": one.observation.name,
                "verdict": one.verdict,
                "claims": [
                    {
                        "claim": claim.rule,
                        "verdict": tally.verdict,
                        "comparisons": tally.cases,
                        "needed": tally.needed,
                        **{outcome: tally.count(outcome) for outcome in OUTCOMES},
                    }
                    for claim, tally, _ in one.claims
                ],
            }
            for one in found.judged
        ],
        "figures": {picture.name: picture.arrays is not None for picture in found.pictures},
        "other_runs": len(found.results.others),
        "failed": [
            {"cell": row.cell, "seed": row.seed, "error": row.error, "retried": retried}
            for row, retried in found.results.failed
        ],
        "rejected": [{"cell": row.cell, "seed": row.seed, "reason": reason} for row, reason in found.results.rejected],
    }
