"""Callbacks of `softspin.fit`: functions, objects with some of the methods, lists, and errors for other things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from training.runs import bars, small

import softspin
from softspin.errors import ConfigError
from softspin.records import ResultRow
from softspin.training import RunStart, journal
from softspin.training.callbacks import HOOKS, Callbacks


class All:
    """Has every method."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start(self, run: RunStart) -> None:
        self.calls.append(("start", run.step, run.config.steps))

    def step(self, step: int) -> None:
        self.calls.append(("step", step))

    def report(self, line: Mapping[str, Any]) -> None:
        self.calls.append((line["kind"], line["step"]))

    def phase(self, name: str, done: int, total: int) -> None:
        self.calls.append(("phase", name, done, total))

    def warn(self, text: str) -> None:
        self.calls.append(("warn", text))

    def finish(self, rows: Sequence[ResultRow], files: Sequence[Path]) -> None:
        self.calls.append(("finish", len(rows), [file.name for file in files]))

    def close(self) -> None:
        self.calls.append(("close",))


def test_an_object_is_called_at_every_event_in_order(tmp_path: Path) -> None:
    seen = All()
    softspin.fit(small(steps=2, evaluate_every=2), bars(), tmp_path, callbacks=seen, progress=False, pictures=False)
    images = len(bars().valid)
    log_z, counted = (
        [("phase", "{}: log Z, enumeration", 0, 1)],
        [("phase", "{}: images", done, images) for done in (0, images)],
    )
    expected: list[tuple[Any, ...]] = [("start", 0, 2), ("step", 1), ("step", 2), ("train", 2)]
    for what in ("validation", "test"):
        expected += [("phase", name.format(what), done, total) for _, name, done, total in log_z + counted]
        expected += [("valid", 2)] if what == "validation" else []
    assert seen.calls == [*expected, ("finish", 1, ["result.json"]), ("close",)]
    assert {name for name, *_ in seen.calls} >= {*HOOKS} - {"report", "warn"}


def test_a_function_gets_the_lines_of_the_metrics_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[Mapping[str, Any]] = []
    softspin.fit(small(), bars(), tmp_path, callbacks=lines.append, progress=False, pictures=False)
    assert lines == journal.read(tmp_path)
    assert capsys.readouterr() == ("", "")


def test_several_callbacks_and_the_old_name(tmp_path: Path) -> None:
    one, two = All(), All()
    options: dict[str, Any] = {"progress": False, "pictures": False}
    softspin.fit(small(steps=1), bars(), tmp_path / "a", callbacks=[one, two.report], **options)
    assert two.calls == [call for call in one.calls if call[0] in ("train", "valid")]
    old: Any = softspin.fit
    with pytest.warns(FutureWarning, match="'callback' is now called 'callbacks'"):
        old(small(steps=1), bars(), tmp_path / "b", callback=two, **options)
    assert ("close",) in two.calls


def test_callbacks_are_closed_after_an_error(tmp_path: Path) -> None:
    seen = All()

    def stop(line: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        softspin.fit(small(), bars(), tmp_path, callbacks=[stop, seen], progress=False, pictures=False)
    assert seen.calls[-1] == ("close",)


def test_other_things_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"the class All is not a callback; give an instance: All\(\)"):
        Callbacks([All])
    with pytest.raises(ConfigError, match="a int is not a callback; give a function of a line of the metrics log, or"):
        Callbacks([3])
