"""Names of the columns of a table, such as genes: a model is for the columns that it was trained on, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from softspin.errors import DataError

LONGEST = 40
"""Characters of a name in a message."""


def column_names(values: Any) -> tuple[str, ...] | None:
    """Names of the columns of a DataFrame, or of the variables of an AnnData object.

    Args:
        values: Data in any form.

    Returns:
        The names; None if there are none.
    """
    found = getattr(values, "var_names", None)  # AnnData
    if found is None and hasattr(values, "__array__"):
        found = getattr(values, "columns", None)  # pandas, polars
    return None if found is None or callable(found) else as_names(found)


def as_names(given: Sequence[Any]) -> tuple[str, ...] | None:
    """Names of columns; None if they are the numbers 0, 1, ..., which pandas and AnnData give to columns without names.

    >>> as_names(["px", "py"]), as_names([0, 1])
    (('px', 'py'), None)

    Args:
        given: The names.

    Returns:
        The names as text.
    """
    names = tuple(str(name).strip() for name in given)
    return None if names == tuple(map(str, range(len(names)))) else names


def check_columns(what: str, found: Sequence[str] | None, expected: Sequence[str] | None, of: str) -> None:
    """Raise unless a table has the expected columns in their order. Tables without names are not checked.

    Args:
        what: Name of the table, for the message.
        found: Names of its columns.
        expected: The names that it must have.
        of: Where those come from, for the message.

    Raises:
        DataError: A column has another name; the message says which.
    """
    if found is None or expected is None or tuple(found) == tuple(expected):
        return
    pairs = enumerate(zip_longest(found, expected))
    at, (own, other) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    same = "put the columns in the same order" if sorted(found) == sorted(expected) else "give the same columns"
    raise DataError(
        f"column {at} of {what} is {_quoted(own)}, but {_quoted(other)} in {of}; {same}, or values without names"
    )


def _quoted(name: str | None) -> str:
    return "missing" if name is None else f"'{name if len(name) <= LONGEST else f'{name[:LONGEST]}...'}'"
