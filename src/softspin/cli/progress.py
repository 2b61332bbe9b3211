"""Progress of training: a bar on a terminal, lines in a file, JSON for a program."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn

from softspin.cli.console import say, say_json
from softspin.timing.estimate import duration
from softspin.training.trainer import Callback

REFRESH_SECONDS = 0.1
"""Seconds between updates of the bar: a GPU makes thousands of steps a second."""
SECONDS_PER_LINE = 30.0
"""Seconds between lines, except for validations."""

WARM_UP_STEPS = 5
"""Steps that are not timed: the first ones compile, and a CUDA graph is captured after three."""
MEASURED_SECONDS = 10.0
"""Seconds of steps from which the time of all steps is estimated."""


class Callbacks:
    """Several callbacks, called in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def report(self, line: Mapping[str, Any]) -> None:
        for callback in self.callbacks:
            callback.report(line)

    def step(self, step: int) -> None:
        for callback in self.callbacks:
            callback.step(step)


class JsonLines:
    """The lines of the metrics log."""

    def report(self, line: Mapping[str, Any]) -> None:
        say_json(line)

    def step(self, step: int) -> None:
        pass


class Lines:
    """A line at each validation, and at regular times between validations."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.rate = Rate()
        self.bound = ""
        self.said = time.monotonic()

    def report(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train":
            self.bound = f"  bound {mean_text(line['bound'])}"
        if line["kind"] == "valid" or time.monotonic() - self.said > SECONDS_PER_LINE:
            found = f"  validation NLL {mean_text(line['nll'])}" if line["kind"] == "valid" else ""
            step = line["step"]
            say(f"step {step:,} of {self.last:,}{self.bound}{found}{self.rate.text(self.last - step)}")
            self.said = time.monotonic()

    def step(self, step: int) -> None:
        self.rate.see(step)


class Bar:
    """A progress bar with rate, remaining time, bound and validation NLL (means over replicas)."""

    def __init__(self, console: Console, last: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            _RateColumn(""),
            TimeRemainingColumn(),
            TextColumn("{task.fields[bound]}"),
            TextColumn("{task.fields[valid]}"),
            console=console,
            expand=True,
        )
        self.task = self.progress.add_task("train", total=last, start=False, bound="", valid="")
        self.updated = 0.0

    def report(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train":
            self.progress.update(self.task, bound=f"bound {mean_text(line['bound'])}")
        else:
            self.progress.update(self.task, valid=f"valid NLL {mean_text(line['nll'])}")

    def step(self, step: int) -> None:
        now = time.monotonic()
        if not self.updated:
            self.progress.start()
            self.progress.update(self.task, completed=step)  # where a resumed run starts
            self.progress.start_task(self.task)
        if now - self.updated > REFRESH_SECONDS or step == self.progress.tasks[0].total:
            done = step == self.progress.tasks[0].total
            self.progress.update(self.task, completed=step, description="evaluate" if done else "train")
            self.updated = now

    def stop(self) -> None:
        """Stop updating the bar."""
        self.progress.stop()


class FirstSteps:
    """Says how long the steps will take, from the first ones. For models whose time is not known before."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.seen = 0
        self.start: tuple[int, float] | None = None

    def report(self, line: Mapping[str, Any]) -> None:
        pass

    def step(self, step: int) -> None:
        self.seen += 1
        if self.seen == WARM_UP_STEPS:
            self.start = step, time.monotonic()
        if self.start is None or (made := step - self.start[0]) == 0:
            return
        if (took := time.monotonic() - self.start[1]) > MEASURED_SECONDS:
            left = duration(took / made * (self.last - step))
            say(f"time    about {left} left for the steps, by the last {made:,} of them")
            self.start = None


@contextlib.contextmanager
def counting(images: int) -> Iterator[Callable[[int], None] | None]:
    """Show the progress of an evaluation on stderr if it is a terminal; log Z comes first."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("log Z", total=images)
        yield lambda done: bar.update(task, completed=done, description="images")


class _RateColumn(TextColumn):
    """Steps per second."""

    def render(self, task: Task) -> Any:
        self.text_format = f"{task.speed:,.1f} steps/s" if task.speed else ""
        return super().render(task)


class Rate:
    """Steps per second since the first step."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None
        self.now = 0

    def see(self, step: int) -> None:
        """Record a step."""
        self.first = self.first or (step, time.monotonic())
        self.now = step

    @property
    def per_second(self) -> float | None:
        """Steps per second; None before the second step."""
        if self.first is None or self.now == self.first[0]:
            return None
        return (self.now - self.first[0]) / max(time.monotonic() - self.first[1], 1e-9)

    def text(self, left: int) -> str:
        """The rate and the remaining time, as text."""
        if (rate := self.per_second) is None:
            return ""
        minutes, seconds = divmod(round(left / rate), 60)
        return f"  {rate:,.1f} steps/s  {minutes // 60}:{minutes % 60:02}:{seconds:02} left"


def mean_text(values: Sequence[float]) -> str:
    """The mean over replicas."""
    return f"{sum(values) / len(values):.2f}"
