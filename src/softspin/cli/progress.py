"""Progress for a program that reads JSON; for people, see :mod:`softspin.training.display`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softspin.cli.console import say_json, warn
from softspin.records import ResultRow
from softspin.training.callbacks import RunStart


class JsonLines:
    """The start of a run, the lines of its metrics log, and its result, as JSON."""

    def start(self, run: RunStart) -> None:
        """Print settings and expected time."""
        about = {"folder": run.folder, "step": run.step, "config": run.config.to_dict(), "profile": run.profile}
        say_json({"kind": "start", **about, "time": run.time})

    def report(self, line: Mapping[str, Any]) -> None:
        """Print a line of the metrics log."""
        say_json(line)

    def warn(self, text: str) -> None:
        """Print a problem on stderr."""
        warn(text)

    def finish(self, rows: Sequence[ResultRow], files: Sequence[Path]) -> None:
        """Print the result."""
        say_json({"kind": "result", "rows": [row.to_json() for row in rows], "written": files})
