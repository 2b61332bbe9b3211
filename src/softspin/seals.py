"""Seals: the SHA-256 of the content of a JSON file, stored in the file itself.

A seal detects damage and edits. It is no signature: whoever changes a file on purpose can compute a new one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

KEY = "seal"
"""Key of the seal in a JSON object."""


def seal(content: Any) -> str:
    """Digest of plain data, whatever the order of their keys.

    Args:
        content: Data for strict JSON.

    Returns:
        The SHA-256 in hexadecimal digits.

    Raises:
        ValueError: The data contain NaN or infinity.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def sealed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """JSON objects, each with the seal of all of them: a row that is missing or from elsewhere is detected too.

    Args:
        rows: Objects without seals.

    Returns:
        The objects with their seals, as they will be read from JSON.
    """
    plain: list[dict[str, Any]] = json.loads(json.dumps(list(rows), allow_nan=False))
    digest = seal(plain)
    return [{**row, KEY: digest} for row in plain]


def has_seal(rows: object) -> bool:
    """Whether any of these values has a seal."""
    return isinstance(rows, list) and any(isinstance(row, dict) and KEY in row for row in rows)


def is_intact(rows: object) -> bool:
    """Check the seals of JSON objects.

    Args:
        rows: A list of what was read from JSON.

    Returns:
        False if any has a seal and not all have the right one. Files that were written without seals are intact, unless
        what looks like a seal has another name: a single bit in the name must not disable it.
    """
    if not isinstance(rows, list):
        return True
    if not has_seal(rows):
        return not any(isinstance(row, dict) and _renamed(row) for row in rows)
    if not all(isinstance(row, dict) for row in rows):
        return False
    try:
        right = seal([{name: value for name, value in row.items() if name != KEY} for row in rows])
    except (ValueError, RecursionError):  # NaN or deep nesting, which are never written
        return False
    return all(row.get(KEY) == right for row in rows)


def _renamed(row: dict[str, Any]) -> bool:
    """Whether the last value of an object, where a seal is written, is one under another name of as many letters."""
    name, value = next(reversed(row.items()), ("", None))
    return (
        len(name) == len(KEY) and isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
    )
