"""What the commands say, and to whom: people on a terminal, files and pipes, or programs that read JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from softspin.provenance import commit
from softspin.training.journal import plain


def say(text: str) -> None:
    """A line for people, on stdout; never wrapped, never coloured."""
    typer.echo(text)


def warn(text: str) -> None:
    """A line that must not get between the results, on stderr."""
    typer.echo(text, err=True)


def warn_of_refusal() -> None:
    """Say beforehand that a report will refuse what is made now."""
    made_by = commit()
    if made_by is None:
        warn("softspin report will refuse what is made now: this is no git checkout, so its commit is unknown")
    elif made_by.endswith("+"):
        warn("softspin report will refuse what is made now: the code has changes that are not committed")


def say_json(value: Any) -> None:
    """A value as one line of strict JSON."""
    typer.echo(json.dumps(plain(value), allow_nan=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of text, as wide as they need to be."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)


def replica_name(row: Mapping[str, Any]) -> str:
    """Which of several models.

    >>> replica_name({"seed": 3, "beta": 30.0})
    'seed 3, beta 30'
    """
    return f"seed {row['seed']}, beta {row['beta']:g}"


def result_line(row: Mapping[str, Any], part: str = "test") -> str:
    """The result of one replica, next to what independent pixels reach.

    >>> row = {"nll": 84.2, "standard_error": 0.05, "log_z": 30.0, "log_z_low": 29.9, "log_z_high": 30.1}
    >>> result_line({**row, "log_z_method": "sandwich", "baseline_nll": 206.1})
    'test NLL 84.20 +- 0.05, log Z in [29.90, 30.10]; independent pixels: 206.10'
    """
    error = "" if row["standard_error"] is None else f" +- {row['standard_error']:.2f}"
    return f"{part} NLL {row['nll']:.2f}{error}, {log_z_text(row)}; independent pixels: {row['baseline_nll']:.2f}"


def log_z_text(row: Mapping[str, Any]) -> str:
    """log Z with its interval.

    >>> log_z_text({"log_z": 2.0, "log_z_low": 2.0, "log_z_high": 2.0})
    'log Z = 2.00 (exact)'
    """
    low, high = row["log_z_low"], row["log_z_high"]
    if low is not None and low == high:
        return f"log Z = {row['log_z']:.2f} (exact)"
    ends = ["-inf" if low is None else f"{low:.2f}", "inf" if high is None else f"{high:.2f}"]
    return f"log Z in [{', '.join(ends)}]"
