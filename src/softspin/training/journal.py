"""The journal of a run: one JSON object a line, appended as training goes, whole lines only.

Write the lines of a step before its checkpoint. A run resumed from that checkpoint then drops what came after it,
writes it anew, and its journal equals that of a run that was never stopped, but for wall times.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from softspin.errors import DamagedError, JournalError, MissingExtraError

NAME = "journal.jsonl"


class Journal:
    """Appends lines; made by :meth:`open`, closed by :meth:`close` or at the end of a `with`."""

    def __init__(self, path: Path, file: BinaryIO, board: Any) -> None:
        self.path = path
        self._file = file
        self._board = board

    @classmethod
    def open(cls, folder: str | os.PathLike[str], step: int | None = None, tensorboard: bool = False) -> Journal:
        """The journal in a folder (made if missing), to go on after a step; None starts it anew.

        Lines of later steps and a half-written last line are cut off. With `tensorboard`, numbers go to
        `folder/tensorboard` as well.
        """
        path = Path(folder) / NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Lines stand in the order of their steps, so what goes is a tail, cut off by one call that needs no space.
            lines = [] if step is None or not path.exists() else _lines(path, path.read_bytes())
            keep = sum(len(raw) for raw, line in lines if step is not None and line["step"] <= step)
            board = _board(path.parent / "tensorboard", step) if tensorboard else None
            file = path.open("ab", buffering=0)
            file.truncate(keep)
            return cls(path, file, board)
        except OSError as error:
            raise _unwritable(path, error) from error

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, which must have a `step`. NaN and infinity become null; tensors and arrays become lists."""
        entry = plain(line)
        if type(entry.get("step")) is not int:
            raise JournalError(f"a line of the journal needs an integer 'step', not {entry.get('step')!r}")
        raw = json.dumps(entry, allow_nan=False).encode() + b"\n"
        try:
            # One unbuffered call a line: a killed process leaves whole lines, except where the disk is full.
            if self._file.write(raw) != len(raw):
                raise JournalError(f"journal {self.path} cannot be written: the disk took half a line")
        except OSError as error:
            raise _unwritable(self.path, error) from error
        if self._board is not None:
            for tag, value in _scalars(entry):
                self._board.add_scalar(tag, value, entry["step"])
            self._board.flush()

    def close(self) -> None:
        """Close the files; nothing is pending, for every line was written at once."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All whole lines of a run's journal, in order; a line that is just being written is left out."""
    path = Path(folder) / NAME
    try:
        return [line for _, line in _lines(path, path.read_bytes())]
    except FileNotFoundError:
        raise JournalError(f"no {NAME} in {path.parent}; is it a run's folder?") from None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}") from error


def _lines(path: Path, content: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines, raw and parsed; what follows the last newline was not finished."""
    lines = []
    for number, raw in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict) or type(line.get("step")) is not int:
            raise DamagedError(
                f"journal {path} is damaged: line {number} is not an object with a step; the run can go on without it, "
                "once it is deleted"
            )
        lines.append((raw + b"\n", line))
    return lines


def plain(value: Any) -> Any:
    """As strict JSON can hold it: tensors and arrays are lists, paths are text, NaN and infinity are null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _scalars(value: Any, tag: str = "") -> list[tuple[str, float]]:
    """Numbers with their path, `bound/0` being the first replica's; words and null have no curve."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [(tag, value)] if tag != "step" else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [scalar for key, one in pairs for scalar in _scalars(one, f"{tag}/{key}" if tag else str(key))]


def summary_writer() -> Any:
    """TensorBoard's writer, which is an extra."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError(
            "TensorBoard's files need tensorboard; install it with: pip install 'softspin[tensorboard]'"
        ) from None
    return SummaryWriter


def _board(folder: Path, step: int | None) -> Any:
    # What an earlier run, or a part of this one that is done again, wrote from here on is hidden.
    return summary_writer()(str(folder), purge_step=0 if step is None else step + 1)


def _unwritable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"journal {path} cannot be written: {error.strerror}")
