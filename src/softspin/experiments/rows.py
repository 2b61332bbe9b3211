"""Result rows: one JSON object per line, appended as runs end, with one result for each key.

The key of a row is its cell, seed, number of steps and variant of the recipe. The row has the test NLL with error bars,
or the reason for a failure. A row whose code was later found to be wrong is marked as `outdated`: it stays in the file,
and its key is free again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from softspin.errors import RecordError, RowsError
from softspin.files import append_whole, lock_or_claim
from softspin.records import ResultRow

DEFAULT_ROWS = "experiments/rows.jsonl if it exists, else rows.jsonl"
"""Description of `find_rows` for the help of commands."""


class Key(NamedTuple):
    """Key of a result row."""

    cell: str
    seed: int
    steps: int
    variant: str
    """Settings that differ from the recipe, as JSON with sorted keys."""
    outdated: str = ""
    """Error in the code that invalidates the row; empty if it is valid."""


def find_rows() -> Path:
    """The default file of rows: `experiments/rows.jsonl` if it exists, as in a clone, else `rows.jsonl`."""
    path = Path("experiments", "rows.jsonl")
    return path if path.is_file() else Path("rows.jsonl")


def make_key(cell: str, seed: int, steps: int, variant: Mapping[str, Any]) -> Key:
    """Key of a result; the order of the settings in `variant` does not matter."""
    return Key(cell, seed, steps, json.dumps(variant, sort_keys=True))


def key_of(row: ResultRow) -> Key:
    """Key of a row."""
    return make_key(row.cell or "", row.seed, row.steps, row.variant)._replace(outdated=row.outdated or "")


def identity(row: ResultRow) -> str:
    """What two copies of a row have in common, and two results of one key do not; `outdated` may be set in one."""
    return json.dumps(row.to_json() | {"outdated": None}, sort_keys=True)


def read_rows(path: Path, warn: Callable[[str], object] | None = None) -> list[ResultRow]:
    """Read all rows of a file.

    A truncated last line is ignored. Any other line that is not a row is an error, and so is a second result of a
    key. A failed row may precede the result of a retry.

    Args:
        path: The file; if it does not exist, there are no rows.
        warn: Called with a message about a truncated last line.

    Returns:
        The rows, in the order of the file.

    Raises:
        RowsError: The file cannot be read, or is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RowsError(f"rows {path} cannot be read: {error.strerror}") from None
    kept = _whole(content)
    if len(kept) < len(content) and warn is not None:
        warn(f"the last line of {path} is truncated ({len(content) - len(kept)} bytes) and is ignored")
    return _parse(path, kept)


def latest(rows: Iterable[ResultRow]) -> dict[Key, ResultRow]:
    """The valid row of each key: the last one, which is the result if there is one."""
    return {key_of(row): row for row in rows}


def append_rows(path: Path, rows: Iterable[ResultRow], *, once: bool = False) -> list[ResultRow]:
    """Append rows in one write, except those whose keys have a result. A truncated last line is overwritten.

    Args:
        path: The file, created if missing.
        rows: New rows.
        once: Whether failed rows that are already in the file are left out, too.

    Returns:
        The rows that were appended.

    Raises:
        RowsError: The file cannot be written, or is damaged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two grids may share the file. The lock is a separate file, because a locked file cannot be read on Windows.
        with path.open("a+b", buffering=0) as file, lock_or_claim(path.with_name(f".{path.name}.lock")):
            return _append(path, file, rows, once=once)
    except OSError as error:
        raise RowsError(f"rows {path} cannot be written: {error.strerror}") from error


def _append(path: Path, file: FileIO, rows: Iterable[ResultRow], *, once: bool) -> list[ResultRow]:
    file.seek(0)
    kept = _whole(file.read())
    parsed = _parse(path, kept)
    existing_rows, seen = latest(parsed), {identity(row) for row in parsed} if once else set()
    fresh = []
    for row in rows:
        existing = existing_rows.get(key_of(row))
        if (existing is None or not existing.ok) and not (once and identity(row) in seen):
            existing_rows[key_of(row)] = row
            fresh.append(row)
    new = b"".join(json.dumps(row.to_json(), allow_nan=False).encode() + b"\n" for row in fresh)
    if kept and not kept.endswith(b"\n"):
        new = b"\n" + new
    file.truncate(len(kept))
    append_whole(file, new)
    os.fsync(file.fileno())
    return fresh


def _whole(content: bytes) -> bytes:
    """The content without a truncated last line; a last line that lacks only its newline is complete."""
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except (ValueError, RecursionError):
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
