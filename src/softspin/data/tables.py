"""Tables of text, .csv: one image per line, in the forms that spreadsheets, pandas and NumPy write."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from softspin.data.columns import as_names
from softspin.data.inputs import Images
from softspin.data.keys import is_condition, is_label
from softspin.data.limits import check_memory
from softspin.data.notices import notice
from softspin.data.readers import one_line
from softspin.errors import DataError

_TEXT_FACTOR = 4
"""A value in a table of text takes at least two characters, and eight bytes when it is parsed."""
_ROW_NAMES = ("", "id", "index", "unnamed: 0")
"""Names of a first column that numbers the rows; pandas writes one without a name."""
_LONGEST = 30
"""Characters of a value in a message."""


class _Layout(NamedTuple):
    """How a table is written."""

    separator: str | None
    """None for spaces."""
    names: list[str]
    """Names of the columns in the first line; empty if the first line has numbers."""

    def columns(self, is_one: Callable[[str], bool]) -> list[int]:
        """Columns whose name has a property."""
        return [number for number, name in enumerate(self.names) if is_one(name)]


def read_csv(path: Path, limit: float | None, *, of_conditions: bool = False) -> dict[str, Images]:
    """Read a table with one image per line.

    Values are separated by commas, semicolons, tabs or spaces, and may be quoted. A first line may have names. A first
    column of row numbers and a first line 0, 1, 2, ..., which pandas writes, are skipped. A column named label holds
    labels, numbers or text. Columns named condition, or condition_ and anything, hold numbers of the condition, or one
    column of text the names of its classes.

    Args:
        path: The file.
        limit: Most memory, in GiB, that the table may take, see :func:`softspin.data.limits.memory_limit`.
        of_conditions: Whether the table holds conditions of other images. If no column is named condition, all are.

    Returns:
        The images, as `train`.

    Raises:
        DataError: A line has another number of values, or something else than numbers; the message names it.
    """
    check_memory(_TEXT_FACTOR * path.stat().st_size, str(path), limit)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        layout = _find_layout(path, stream, of_conditions)
        labeled, given, skipped = _roles(path, layout, of_conditions)
        texts: list[str] = []  # of labels; the table has 0 in their place
        classes: list[str] = []  # of the only column of the condition, which may be text

        def text(value: str, into: list[str] = texts) -> float:
            into.append(value.strip().strip('"'))
            return float(value) if _is_number(value) else 0.0

        converters: dict[int | str, Callable[[str], float]] = {
            **dict.fromkeys(labeled, text),
            **dict.fromkeys(given if len(given) == 1 else [], lambda value: text(value, classes)),
            **dict.fromkeys(skipped, lambda value: 0.0),
        }
        try:
            table = np.loadtxt(
                stream, delimiter=layout.separator, ndmin=2, comments=None, converters=converters, quotechar='"'
            )
        except ValueError as error:
            bad = _bad_line(path, layout, {*labeled, *skipped})
            if bad and of_conditions and len(given) > 1:
                bad += "; of several columns, name that of the classes condition"
            raise DataError(f"cannot read {path}: {bad or one_line(error)}") from error
    if skipped == [0]:
        name = layout.names[0].strip() or "without a name"
        notice(f"the first column of {path.name} ({name}) was left out, because it numbers the rows")
    labels: NDArray[Any] | None = None
    if not all(map(_is_number, texts)):
        labels = np.asarray(texts)
    elif labeled:
        labels = table[:, labeled[0]]
        labels = labels.astype(np.int64) if (labels == np.rint(labels)).all() else labels
    condition: NDArray[Any] | None = table[:, given] if given else None
    if not all(map(_is_number, classes)):
        if any(map(_is_number, classes)):
            raise DataError(f"cannot read {path}: {_bad_line(path, layout, {*labeled, *skipped})}")
        title = layout.names[given[0]].strip().strip('"')
        is_class = of_conditions and title in classes  # the file has no first line of names
        condition = np.asarray([title, *classes] if is_class else classes)
    if of_conditions and (layout.columns(is_condition) or (condition is not None and condition.dtype.kind == "U")):
        return {"train": Images(table, condition=condition)}
    if of_conditions:
        given, condition = [], None
    others = [*skipped, *labeled, *given]
    complete = len(layout.names) == table.shape[1]  # else a title, such as the header of NumPy's savetxt
    names = [name for number, name in enumerate(layout.names) if number not in others] if complete else []
    table = np.delete(table, others, axis=1) if others else table
    # Text has no type: whole numbers up to 255 are bytes.
    whole = table.size and np.isfinite(table).all() and (table == np.rint(table)).all()
    if whole and table.min() >= 0 and 1 < table.max() <= 255:
        table = table.astype(np.uint8)
    return {"train": Images(table, labels, condition, as_names(names) if names else None)}


def _roles(path: Path, layout: _Layout, of_conditions: bool) -> tuple[list[int], list[int], list[int]]:
    """Columns of labels, of the condition, and those that are not read, such as row numbers."""
    labeled, given = layout.columns(is_label), layout.columns(is_condition)
    numbered = [0] if layout.names and layout.names[0].strip().lower() in _ROW_NAMES else []
    if len(labeled) > 1:
        raise DataError(f"{path} has {len(labeled)} columns of labels; keep one")
    if of_conditions and given:
        return [], given, [at for at in range(len(layout.names)) if at not in given]
    if of_conditions:
        given = [at for at in range(len(layout.names)) if at not in (*labeled, *numbered)] or labeled
    return labeled, given, numbered


def _find_layout(path: Path, stream: TextIO, of_conditions: bool) -> _Layout:
    """Separator and names from the first lines; the stream is then at the first line of numbers."""
    first = stream.readline()
    start = stream.tell()
    second = next((line for line in iter(stream.readline, "") if line.strip()), "")
    sample = second or first
    separator = next((mark for mark in (";", "\t", ",") if mark in sample), None)
    is_name = of_conditions and not all(map(_is_number, sample.split()))  # of a class, which may have spaces
    if separator is None and (len(sample.split()) < 2 or is_name):
        separator = ","  # one column
    names = next(_split([first], separator), [])
    has_names = not all(map(_is_number, names))
    if len(names) > 2 and [name.strip() for name in names] == [str(number) for number in range(len(names))]:
        has_names = True
        notice(f"the first line of {path.name}, 0 to {len(names) - 1}, was taken for numbers of columns")
    if not second and (has_names or not first.strip()):
        raise DataError(f"{path} has no lines of numbers; write one image per line")
    stream.seek(start if has_names else 0)
    return _Layout(separator, names if has_names else [])


def _split(lines: Iterator[str] | list[str], separator: str | None) -> Iterator[list[str]]:
    """Values of each line."""
    return (line.split() for line in lines) if separator is None else csv.reader(lines, delimiter=separator)


def _bad_line(path: Path, layout: _Layout, of_text: set[int]) -> str | None:
    """Which line is wrong, and why; None if each line has as many numbers as the first."""
    width = None
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for number, values in enumerate(_split(iter(stream), layout.separator), 1):
            if (layout.names and number == 1) or not any(value.strip() for value in values):
                continue
            width = width or len(values)
            if len(values) != width:
                return f"line {number} has {len(values)} values, those before it {width}; each line is one image"
            for column, value in enumerate(values):
                if not _is_number(value) and column not in of_text:
                    return f"line {number}, column {column + 1}: {_problem(value.strip())}"
    return None


def _problem(value: str) -> str:
    if not value:
        return "a value is missing; write numbers, separated by commas"
    shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if value.lower() in ("true", "false"):
        return f"'{shown}' is not a number; write 1 for true and 0 for false"
    if _is_number(value.replace(",", ".", 1)):
        return f"'{shown}' is not a number; write it with a decimal point"
    return f"'{shown}' is not a number; write numbers, separated by commas"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
