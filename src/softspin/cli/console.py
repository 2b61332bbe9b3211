"""Output of the commands: text for people, JSON for programs."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from softspin.errors import ConfigError, UnknownNameError
from softspin.parallel import world
from softspin.provenance import commit
from softspin.training.journal import plain

_WRAPPED = 30
"""Least width of a last column that is wrapped."""


def paragraphs(command: Callable[..., None]) -> str:
    """The docstring of a command with each paragraph on one line, to be wrapped at the width of the terminal."""
    return "\n\n".join(" ".join(text.split()) for text in (inspect.getdoc(command) or "").split("\n\n"))


def say(text: str) -> None:
    """Print a line of text on stdout, without wrapping or colour."""
    typer.echo(text)


def warn(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(text, err=True)


def complain(text: str) -> None:
    """Print an error on stderr, in one line."""
    typer.secho(f"error: {' '.join(text.split())}", fg="red", err=True)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Errors of settings that were given as options are wrong usage, with exit code 2."""
    try:
        yield
    except (ConfigError, UnknownNameError) as error:
        text = str(error)
        world().announce(error, lambda: complain(text))
        sys.exit(2)


def warn_of_rejection() -> None:
    """Warn if a report would reject the rows of this run."""
    current = commit()
    if current is None:
        where = "this is neither a git clone nor a wheel built from one"
        warn(f"softspin report will reject these results: the commit is unknown, because {where}")
    elif current.endswith("+"):
        warn("softspin report will reject these results: the code has uncommitted changes")


def say_json(value: Any) -> None:
    """Print a value as one line of strict JSON."""
    typer.echo(json.dumps(plain(value), allow_nan=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], drop: Sequence[str] = ()) -> None:
    """Print a table of text. On a terminal nothing is cut off: the last column is wrapped.

    Args:
        columns: Names of the columns.
        rows: Text of each cell.
        drop: Columns to leave out, in this order, while the table is wider than the terminal. A line says which.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    widths = {
        name: max(len(name), *(len(row[number]) for row in rows)) if rows else len(name)
        for number, name in enumerate(columns)
    }
    widths[columns[-1]] = min(widths[columns[-1]], _WRAPPED)
    left_out: list[str] = []
    for name in drop:
        if sum(widths.values()) + 2 * len(widths) > console.width:
            del widths[name]
            left_out.append(name)
    shown = [number for number, name in enumerate(columns) if name in widths]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number in shown:
        last = number == shown[-1]
        table.add_column(columns[number], no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[number]) for number in shown))  # as strings, '.[plot]' would lose its extra
    console.print(table)
    for line in _left_out_lines(left_out, columns, rows):
        say(line)


def _left_out_lines(left_out: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """What the columns that were left out have in common, and the names of the others."""
    values = {name: {row[columns.index(name)] for row in rows} for name in left_out}
    if same := [f"{name} {value}" for name, found in values.items() if len(found) == 1 for value in found]:
        yield f"the same in all: {', '.join(same)}"
    if others := [name for name, found in values.items() if len(found) > 1]:
        yield f"left out, as the terminal is narrow: {', '.join(others)} (--json has everything)"
