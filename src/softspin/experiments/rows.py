"""Result rows: one JSON object a line, appended as results come, each key once.

A row is a cell and a seed at a length of training and a variant of the recipe: its likelihood with error bars, or why
there is none. One by code that was found wrong later says so as `outdated`: it stays, and its place is free again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from softspin.errors import RecordError, RowsError
from softspin.files import lock
from softspin.records import ResultRow

DEFAULT_ROWS = "experiments/rows.jsonl if it exists, else rows.jsonl"
"""What `find_rows` does, for the help of commands."""


class Key(NamedTuple):
    """What a row is a result of."""

    cell: str
    seed: int
    steps: int
    variant: str
    """As JSON with sorted keys."""
    outdated: str = ""
    """What was wrong with the code, of a row that no longer counts as the result."""


def find_rows() -> Path:
    """The default file of rows: `experiments/rows.jsonl` if it exists, as in a clone, else `rows.jsonl`."""
    path = Path("experiments", "rows.jsonl")
    return path if path.is_file() else Path("rows.jsonl")


def make_key(cell: str, seed: int, steps: int, variant: Mapping[str, Any]) -> Key:
    """The key of a result; the order in which a variant's settings were given does not matter."""
    return Key(cell, seed, steps, json.dumps(variant, sort_keys=True))


def key_of(row: ResultRow) -> Key:
    """The key of a row."""
    return make_key(row.cell or "", row.seed, row.steps, row.variant)._replace(outdated=row.outdated or "")


def read_rows(path: Path, warn: Callable[[str], object] | None = None) -> list[ResultRow]:
    """All rows of a file, in order; no file is no rows.

    A truncated last line is ignored, and reported to `warn`. Any other line that is no row is an error, and so is a
    second result of the same key; a failed row may stand before the result of a retry.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RowsError(f"rows {path} cannot be read: {error.strerror}") from None
    kept = _whole(content)
    if len(kept) < len(content) and warn is not None:
        warn(f"the last line of {path} was cut off ({len(content) - len(kept)} bytes) and does not count")
    return _parse(path, kept)


def latest(rows: Iterable[ResultRow]) -> dict[Key, ResultRow]:
    """The row that counts of each key: the last one, which is the result if there is one."""
    return {key_of(row): row for row in rows}


def append_rows(path: Path, rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Append the rows whose keys have no result yet, in one piece, and return them. A cut-off last line is replaced."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two grids may share the file. The lock is a file beside it: on Windows nobody can read a locked file.
        with path.open("a+b") as file, lock(path.with_name(f".{path.name}.lock")):
            return _append(path, file, rows)
    except OSError as error:
        raise RowsError(f"rows {path} cannot be written: {error.strerror}") from error


def _append(path: Path, file: BinaryIO, rows: Iterable[ResultRow]) -> list[ResultRow]:
    file.seek(0)
    kept = _whole(file.read())
    existing_rows = latest(_parse(path, kept))
    fresh = []
    for row in rows:
        existing = existing_rows.get(key_of(row))
        if existing is None or not existing.ok:
            existing_rows[key_of(row)] = row
            fresh.append(row)
    new = b"".join(json.dumps(row.to_json(), allow_nan=False).encode() + b"\n" for row in fresh)
    if kept and not kept.endswith(b"\n"):
        new = b"\n" + new
    file.truncate(len(kept))
    file.write(new)
    file.flush()
    os.fsync(file.fileno())
    return fresh


def _whole(content: bytes) -> bytes:
    """Without a last line that was cut off; one that lacks only its newline is whole."""
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except ValueError:
        return content[:end]
    return content


def _parse(path: Path, content: bytes) -> list[ResultRow]:
    rows: list[ResultRow] = []
    results: dict[Key, int] = {}
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], 1):
        if not raw.strip():
            continue
        try:
            row = _row(raw)
        except RecordError as error:
            raise RowsError(f"rows {path} are damaged: line {number} {error}") from None
        key = key_of(row)
        if key in results:
            raise RowsError(
                f"rows {path} are damaged: line {number} comes after the result of {key.cell}, seed {key.seed}, in "
                f"line {results[key]}; delete one of them"
            )
        if row.ok:
            results[key] = number
        rows.append(row)
    return rows


def _row(raw: bytes) -> ResultRow:
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError):
        raise RecordError("is not a JSON object") from None
    row = ResultRow.from_json_lenient(values)
    if row.cell is None:
        raise RecordError("has no 'cell'")
    return row
