"""Result rows: one JSON object a line, appended as results come, each key once.

A row is a cell and a seed at a length of training and a variant of the recipe: its likelihood with error bars, or why
there is none. One by code that was found wrong later says so as `outdated`: it stays, and its place is free again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from softspin.errors import RowsError
from softspin.files import lock

Row = dict[str, Any]

_TYPES: dict[str, type] = {"cell": str, "seed": int, "steps": int, "short": bool, "variant": dict, "status": str}
"""What every row has."""


class Key(NamedTuple):
    """What a row is a result of."""

    cell: str
    seed: int
    steps: int
    variant: str
    """As JSON with sorted keys."""
    outdated: str = ""
    """What was wrong with the code, of a row that no longer counts as the result."""


def make_key(cell: str, seed: int, steps: int, variant: Mapping[str, Any]) -> Key:
    """The key of a result; the order in which a variant's settings were given does not matter."""
    return Key(cell, seed, steps, json.dumps(variant, sort_keys=True))


def key_of(row: Mapping[str, Any]) -> Key:
    """The key of a row."""
    key = make_key(row["cell"], row["seed"], row["steps"], row["variant"])
    return key._replace(outdated=row.get("outdated", ""))


def read_rows(path: Path, warn: Callable[[str], object] | None = None) -> list[Row]:
    """All rows of a file, in order; no file is no rows.

    A last line that was cut off by a kill or a full disk is left out, and `warn` is told. Any other line that is no
    row is an error, and so is a second result of the same key; a failed row may stand before the result of a retry.
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


def latest(rows: Iterable[Row]) -> dict[Key, Row]:
    """The row that counts of each key: the last one, which is the result if there is one."""
    return {key_of(row): row for row in rows}


def append_rows(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Append the rows whose keys have no result yet, in one piece, and return them. A cut-off last line is replaced."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two grids may share the file. The lock is a file beside it: on Windows nobody can read a locked file.
        with path.open("a+b") as file, lock(path.with_name(f".{path.name}.lock")):
            return _append(path, file, rows)
    except OSError as error:
        raise RowsError(f"rows {path} cannot be written: {error.strerror}") from error


def _append(path: Path, file: BinaryIO, rows: Iterable[Row]) -> list[Row]:
    file.seek(0)
    kept = _whole(file.read())
    there = latest(_parse(path, kept))
    fresh = []
    for row in rows:
        if there.get(key_of(row), {}).get("status") != "ok":
            there[key_of(row)] = row
            fresh.append(row)
    new = b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in fresh)
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


def _parse(path: Path, content: bytes) -> list[Row]:
    rows: list[Row] = []
    results: dict[Key, int] = {}
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], 1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            row = None
        if (wrong := _wrong(row)) is not None:
            raise RowsError(f"rows {path} are damaged: line {number} {wrong}")
        key = key_of(row)
        if key in results:
            raise RowsError(
                f"rows {path} are damaged: line {number} comes after the result of {key.cell}, seed {key.seed}, in "
                f"line {results[key]}; delete one of them"
            )
        if row["status"] == "ok":
            results[key] = number
        rows.append(row)
    return rows


def _wrong(row: Any) -> str | None:
    """What is wrong with a row, or None."""
    if not isinstance(row, dict):
        return "is not a JSON object"
    for name, kind in _TYPES.items():
        if type(row.get(name)) is not kind:
            return f"has no '{name}' of type {kind.__name__}"
    if not isinstance(row.get("outdated", ""), str):
        return "has an 'outdated' that is not text"
    if row["status"] == "ok":
        nll = row.get("nll")
        return None if isinstance(nll, float) and math.isfinite(nll) else "is ok, but has no finite 'nll'"
    if row["status"] == "failed":
        return None if isinstance(row.get("error"), str) else "is failed, but has no 'error'"
    return f"has the status '{row['status']}', which is neither ok nor failed"
