"""What a run shows: a line at least every minute, also during validation and test; the bar; the expected time."""

from __future__ import annotations

import io
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from evaluation.models import small_model, some_images
from rich.console import Console
from training.runs import bars, small

import softspin
from softspin.evaluation import evaluate, exact_nll, log_z_for, partition
from softspin.samplers.log_z import SANDWICH_RUNS
from softspin.training import progress
from softspin.training.bar import Bar, phases, shows_bars
from softspin.training.display import Display
from softspin.training.progress import FirstSteps, Lines, PhaseLines, Pulse

PATIENCE = 60.0
"""Seconds after which a line that never comes fails a test; when it comes, nobody waits."""


class Said:
    """Keeps lines, and tells when one has come."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._new = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._new:
            self.lines.append(text)
            self._new.notify_all()

    def wait(self, wanted: Callable[[str], bool]) -> None:
        with self._new:
            assert self._new.wait_for(lambda: any(map(wanted, self.lines)), PATIENCE), self.lines


def test_a_line_comes_while_the_run_does_something_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread writes although the main thread makes no step: the main thread waits for the line."""
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.01)
    said = Said()
    lines = Lines(100, said)
    lines.start()
    said.wait(lambda line: line == "step 0 of 100  starting")
    lines.step(7)
    lines.phase("validation: images", 64, 540)
    said.wait(lambda line: line == "step 7 of 100  validation: images, 64 of 540 done")
    lines.step(8)
    said.wait(lambda line: line.startswith("step 8 of 100  ") and "steps/s" in line)
    lines.stop()
    count = len(said.lines)
    assert not lines.pulse._thread.is_alive()  # type: ignore[union-attr]
    assert len(said.lines) == count


def test_ctrl_c_before_the_thread_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping the lines must not hide the interrupt behind another error."""

    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    pulse = Pulse(lambda _: None, lambda: "")
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pulse.start()
    pulse.stop()


def test_nothing_is_written_by_the_thread_while_lines_come_anyway() -> None:
    said = Said()
    pulse = Pulse(said, lambda: "status", seconds=3600)
    pulse.start()
    pulse.say("a line")
    pulse.stop()
    assert said.lines == ["a line"]
    assert progress.SECONDS_PER_LINE <= 60


def test_a_whole_run_in_a_pipe_says_what_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each phase blocks until its line has come, so no line can be missing."""
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.01)
    said = Said()
    monkeypatch.setattr("softspin.training.display.to_stderr", said)

    class Waits:
        def phase(self, name: str, done: int, total: int) -> None:
            said.wait(lambda line: name in line)

    # The display first, so that it knows of the phase that the other waits for.
    shown = [Display(), Waits()]
    softspin.fit(small(steps=2, evaluate_every=2), bars(), tmp_path, callbacks=shown, progress=False, pictures=False)
    for name in ("validation: log Z, enumeration", "validation: images", "test: log Z, enumeration", "test: images"):
        assert any(name in line for line in said.lines), name
    assert said.lines[0].startswith("data    bars-and-stripes-3x3: 14 + 14 + 14 images")
    assert said.lines[-2].startswith("test NLL")
    assert said.lines[-1] == f"written: {tmp_path}/ with result.json"
    assert capsys.readouterr() == ("", "")


def test_fit_leaves_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    softspin.fit(small(steps=2), bars(), tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\nprofile quick, 2 steps: " in err
    assert "\ntime    about " in err
    assert err.endswith("with result.json, samples.png, reconstructions.png, curves.png, couplings.png\n")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def test_the_bar_shows_steps_and_phases() -> None:
    console = terminal()
    bar = Bar(console, 10)
    bar.step(4)
    bar.report({"kind": "train", "bound": [-3.0]})
    bar.report({"kind": "valid", "nll": [2.5]})
    bar.phase("validation: images", 3, 14)
    bar.progress.refresh()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "4/10" in shown
    assert "bound -3.00" in shown
    assert "valid NLL 2.50" in shown
    assert "validation: images" in shown
    assert "3/14" in shown
    bar.step(10)
    assert [task.visible for task in bar.progress.tasks] == [True, False]
    assert bar.progress.tasks[0].description == "evaluate"
    bar.stop()


@pytest.mark.parametrize(("widgets", "bars_shown"), [(True, True), (False, False)])
def test_a_notebook_gets_a_bar_if_it_can_show_one(
    widgets: bool, bars_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ipywidgets rich would warn and show nothing, so there are lines instead; on stdout, which is not red."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: types.ModuleType(name) if widgets else None)
    assert shows_bars(Console()) is bars_shown
    assert not shows_bars(Console(force_jupyter=False, file=io.StringIO()))
    display = Display()
    assert display._write is progress.to_stdout
    assert not display._console.stderr


def test_the_first_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred steps of 2 seconds each; said if no time is known, or if it is above the expected limit."""
    for longest, is_said in ((None, True), (100.0, True), (1000.0, False)):
        clock = [0.0]
        monkeypatch.setattr("softspin.training.progress.time.monotonic", lambda clock=clock: clock[0])
        said: list[str] = []
        first = FirstSteps(100, said.append, longest)
        for step in range(1, 30):
            if step == 8:  # a validation
                clock[0] += 1000.0
                first.pause()
            clock[0] += 2.0
            first.step(step)
        # Steps 1 to 5 and 8 are left out. Steps 6, 7, 9, 10, 11, 12 take more than 10 seconds; then 88 are left.
        assert said == (["time    about 2 min 56 s left, estimated from 6 of the steps"] if is_said else [])


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        self.calls.append((name, done, total))


def test_log_z_reports_every_annealing_run_and_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("EXACT", "LARGEST"):
        monkeypatch.setattr(partition, limit, 0)
    model, seen = small_model(), Seen()
    path: dict[str, Any] = {"temperatures": 10, "chains": 20, "seed": 3}
    told, silent = log_z_for(model, progress=seen, **path), log_z_for(model, **path)
    for one, other in zip(told[:5], silent[:5], strict=True):
        assert torch.equal(one, other)
    names = [f"log Z, {run}, replica {replica} of 2" for replica in (1, 2) for run in SANDWICH_RUNS]
    assert seen.calls == [(name, done, 6) for done, name in enumerate(names)]
    seen.calls.clear()
    log_z_for(model, sandwich=False, progress=seen, **path)
    assert [(done, total) for _, done, total in seen.calls] == [(0, 2), (1, 2)]


def test_the_exact_likelihood_reports_states_and_stays_the_same() -> None:
    model, seen = small_model(), list[tuple[int, int]]()
    told = exact_nll(model, some_images(5), progress=lambda done, total: seen.append((done, total)))
    assert torch.equal(told.nll, exact_nll(model, some_images(5)).nll)
    assert seen[-1] == (256, 256)
    log_z = log_z_for(model, temperatures=2, chains=2)
    images: list[int] = []
    one = evaluate(model, some_images(5), log_z=log_z, samples=4, progress=images.append)
    assert torch.equal(one.nll, evaluate(model, some_images(5), log_z=log_z, samples=4).nll)
    assert images == [5]


def test_an_evaluation_in_a_pipe_writes_lines_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.01)
    said = Said()
    with PhaseLines(said) as phase:
        phase("log Z, reverse AIS", 2, 3)
        said.wait(lambda line: line.startswith("log Z, reverse AIS, 2 of 3 done, after "))
    stderr = Said()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=stderr, flush=lambda: None, isatty=lambda: False))
    with phases() as phase:
        phase("images", 1, 3)
        stderr.wait(lambda text: text.startswith("images, 1 of 3 done, after "))


def test_an_evaluation_on_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    with phases() as phase:
        phase("log Z, forward AIS", 1, 3)
    assert "log Z, forward AIS" in out.getvalue()
