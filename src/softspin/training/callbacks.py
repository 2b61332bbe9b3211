"""Callbacks of a run: functions or objects that are called while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import ConfigError
from softspin.records import ResultRow


class Callback(Protocol):
    """Object that is called during training."""

    def report(self, line: Mapping[str, Any]) -> None:
        """Called after a line was written to the metrics log.

        Args:
            line: The line: `step`, `kind` (`"train"` or `"valid"`), and metrics by name.
        """

    def step(self, step: int) -> None:
        """Called after every step.

        Args:
            step: Number of steps made so far.
        """


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """What is known of a run before its first step."""

    folder: Path
    config: Config
    data: Dataset
    device: str
    step: int = 0
    """Step from which the run is resumed."""
    profile: str | None = None
    """Profile that was applied; None for a resumed run."""
    profile_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the profile has changed."""
    time: Mapping[str, Any] | None = None
    """Estimated `seconds` with the limits `low` and `high`, and the `machine`; None if they cannot be estimated."""
    init_from: str | None = None
    """Run whose parameters are the initial ones."""


HOOKS = ("start", "step", "report", "phase", "warn", "finish", "close")
"""Methods that a callback may have:

- `start(run)` before the first step, with a :class:`RunStart`;
- `step(step)` after every step;
- `report(line)` after each line of the metrics log;
- `phase(name, done, total)` during validations and the final test;
- `warn(text)` for a problem that does not end the run;
- `finish(rows, files)` with the result rows and the files that were written;
- `close()` at the end, also after an error.
"""


class Callbacks:
    """Several callbacks, called in order. Each may have any of the methods in `HOOKS`.

    Args:
        callbacks: Functions, which are called with each line of the metrics log, or objects.

    Raises:
        ConfigError: One of them is neither a function nor an object with such a method.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._called: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}
        for one in callbacks:
            if isinstance(one, type):
                raise ConfigError(f"the class {one.__name__} is not a callback; give an instance: {one.__name__}()")
            methods = {name: getattr(one, name, None) for name in HOOKS}
            found = {name: method for name, method in methods.items() if callable(method)}
            if not found and callable(one):
                found = {"report": one}
            if not found:
                raise ConfigError(
                    f"a {type(one).__name__} is not a callback; give a function of a line of the metrics log, or an "
                    f"object with one of the methods {', '.join(HOOKS)}"
                )
            for name, method in found.items():
                self._called[name].append(method)

    def listens(self, hook: str) -> bool:
        """Whether one of the callbacks has a method.

        Args:
            hook: Name of the method.

        Returns:
            True if it does.
        """
        return bool(self._called[hook])

    def start(self, run: RunStart) -> None:
        """A run begins."""
        self._call("start", run)

    def step(self, step: int) -> None:
        """A step was made."""
        self._call("step", step)

    def report(self, line: Mapping[str, Any]) -> None:
        """A line was written to the metrics log."""
        self._call("report", line)

    def phase(self, name: str, done: int, total: int) -> None:
        """A part of a validation or of the final test is done."""
        self._call("phase", name, done, total)

    def warn(self, text: str) -> None:
        """There is a problem that does not end the run."""
        self._call("warn", text)

    def finish(self, rows: Sequence[ResultRow], files: Sequence[Path]) -> None:
        """The run is finished."""
        self._call("finish", rows, files)

    def close(self) -> None:
        """Training has ended, for whatever reason."""
        self._call("close")

    def _call(self, hook: str, *arguments: Any) -> None:
        for method in self._called[hook]:
            method(*arguments)
