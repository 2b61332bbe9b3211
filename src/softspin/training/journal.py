"""The metrics log of a run, `journal.jsonl`: one JSON object per line, appended during training.

Write the lines of a step before its checkpoint. A run that resumes from that checkpoint then drops later lines and
writes them again, so its log equals that of an uninterrupted run except for wall times.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from softspin.errors import DamagedError, JournalError
from softspin.files import append_whole, reject_link
from softspin.training.loggers import Logger, scalars

NAME = "journal.jsonl"
MAX_STEP = 2**63 - 1
"""Larger steps are never written; Python could not even print them."""


class Journal:
    """Metrics log that is open for appending; create it by :meth:`open`, as a context manager or with :meth:`close`.

    Args:
        path: The file.
        file: The open file.
        loggers: They get the numbers too.
    """

    def __init__(self, path: Path, file: FileIO, loggers: Sequence[Logger] = ()) -> None:
        self.path = path
        self._file = file
        self._loggers = loggers

    @classmethod
    def open(cls, folder: str | os.PathLike[str], step: int | None = None, loggers: Sequence[Logger] = ()) -> Journal:
        """Open the metrics log of a run. Lines of later steps and a truncated last line are removed.

        Args:
            folder: Run directory. One that was moved away is not made again.
            step: Step after which to append; None starts an empty log.
            loggers: They get the numbers of every line too; they are already started.

        Returns:
            The open log.

        Raises:
            JournalError: The file cannot be written.
            DamagedError: A line is not an object with a step.
        """
        path = Path(folder) / NAME
        try:
            reject_link(path)
            # Lines are in the order of their steps, so one truncation, which needs no disk space, removes later ones.
            lines = [] if step is None or not path.exists() else _lines(path, path.read_bytes())
            keep = sum(len(raw) for raw, line in lines if step is not None and line["step"] <= step)
            file = path.open("ab", buffering=0)
            file.truncate(keep)
            return cls(path, file, loggers)
        except OSError as error:
            raise _unwritable(path, error) from error

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line. NaN and infinity become null; tensors and arrays become lists.

        Args:
            line: Values by name, with an integer `step`.

        Raises:
            JournalError: There is no `step`, or the file cannot be written.
        """
        entry = plain(line)
        if not _is_step(entry.get("step")):
            raise JournalError(f"a line of the metrics log needs an integer 'step' from 0 to {MAX_STEP}")
        raw = json.dumps(entry, allow_nan=False).encode() + b"\n"
        try:
            append_whole(self._file, raw)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        if self._loggers:
            numbers = scalars(entry)
            for logger in self._loggers:
                logger.log(numbers, entry["step"])

    def close(self) -> None:
        """Close the file. Every line was already written."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the metrics log of a run.

    Args:
        folder: Run directory.

    Returns:
        All complete lines, in order.

    Raises:
        JournalError: The log is missing or cannot be read.
        DamagedError: A line is not an object with a step.
    """
    path = Path(folder) / NAME
    try:
        return [line for _, line in _lines(path, path.read_bytes())]
    except FileNotFoundError:
        raise JournalError(f"no {NAME} in {path.parent}; is it a run directory?") from None
    except OSError as error:
        raise JournalError(f"metrics log {path} cannot be read: {error.strerror}") from error


def _lines(path: Path, content: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Complete lines, raw and parsed; what follows the last newline is incomplete."""
    lines = []
    for number, raw in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict) or not _is_step(line.get("step")):
            raise DamagedError(
                f"metrics log {path} is damaged: line {number} is not an object with a step; delete the file, and the "
                "run can be resumed without it"
            )
        lines.append((raw + b"\n", line))
    return lines


def _is_step(step: object) -> bool:
    return type(step) is int and 0 <= step <= MAX_STEP


def plain(value: Any) -> Any:
    """Convert for strict JSON: tensors and arrays to lists, paths to strings, NaN and infinity to null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _unwritable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"metrics log {path} cannot be written: {error.strerror}")
