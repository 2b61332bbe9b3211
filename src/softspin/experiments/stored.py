"""Files of records, one JSON object in each line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from softspin.errors import RecordError, RowsError
from softspin.files import write_text
from softspin.schema import Record

R = TypeVar("R", bound=Record)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write records; the file is replaced.

    Args:
        path: The file.
        records: The records.
    """
    write_text(path, "".join(json.dumps(record.to_json()) + "\n" for record in records), parents=True)


def read_records(path: Path, kind: type[R], command: str) -> list[R]:
    """Read records.

    Args:
        path: A file of :func:`write_records`.
        kind: Class of the records.
        command: The command that writes the file, for errors.

    Returns:
        The records.

    Raises:
        RowsError: The file cannot be read, or a line is not a record.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise RowsError(f"rows {path} cannot be read: there is no such file; {command} writes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RowsError(f"rows {path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(kind.from_json(json.loads(line)))
        except (ValueError, RecordError, RecursionError) as error:
            what = error if isinstance(error, RecordError) else f"is not JSON: {error}"
            raise RowsError(f"line {number} of {path} {what}; {command} writes the file") from None
        if not all(value.isprintable() for value in vars(found[-1]).values() if isinstance(value, str)):
            raise RowsError(f"line {number} of {path} has a name with control characters; give another file")
    return found
