"""How training goes, for whoever looks: a bar on a terminal, lines in a file, JSON for a program."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn

from softspin.cli.console import say, say_json
from softspin.training.trainer import Callback

REFRESH_SECONDS = 0.1
"""Seconds between two looks at the bar: a GPU makes thousands of steps a second."""
LINE = 30.0
"""Seconds between two lines, validations apart."""


class Callbacks:
    """Several of them, one after another."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def report(self, line: Mapping[str, Any]) -> None:
        for callback in self.callbacks:
            callback.report(line)

    def step(self, step: int) -> None:
        for callback in self.callbacks:
            callback.step(step)


class JsonLines:
    """The journal's lines as they are."""

    def report(self, line: Mapping[str, Any]) -> None:
        say_json(line)

    def step(self, step: int) -> None:
        pass


class Lines:
    """A line at each validation, and now and then between them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.rate = Rate()
        self.bound = ""
        self.said = time.monotonic()

    def report(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train":
            self.bound = f"  bound {mean_text(line['bound'])}"
        if line["kind"] == "valid" or time.monotonic() - self.said > LINE:
            found = f"  validation NLL {mean_text(line['nll'])}" if line["kind"] == "valid" else ""
            step = line["step"]
            say(f"step {step:,} of {self.last:,}{self.bound}{found}{self.rate.text(self.last - step)}")
            self.said = time.monotonic()

    def step(self, step: int) -> None:
        self.rate.see(step)


class Bar:
    """Rate, remaining time, bound and validation NLL (means over replicas) on one line that stays in its place."""

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
        self.looked = 0.0

    def report(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "train":
            self.progress.update(self.task, bound=f"bound {mean_text(line['bound'])}")
        else:
            self.progress.update(self.task, valid=f"valid NLL {mean_text(line['nll'])}")

    def step(self, step: int) -> None:
        now = time.monotonic()
        if not self.looked:
            self.progress.start()
            self.progress.update(self.task, completed=step)  # where a resumed run begins
            self.progress.start_task(self.task)
        if now - self.looked > REFRESH_SECONDS or step == self.progress.tasks[0].total:
            done = step == self.progress.tasks[0].total
            self.progress.update(self.task, completed=step, description="evaluate" if done else "train")
            self.looked = now

    def stop(self) -> None:
        """Leave the line as it is."""
        self.progress.stop()


@contextlib.contextmanager
def counting(images: int) -> Iterator[Callable[[int], None] | None]:
    """How far an evaluation is, on stderr, for a person: nothing where nobody looks. log Z comes first."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("log Z", total=images)
        yield lambda done: bar.update(task, completed=done, description="images")


class _RateColumn(TextColumn):
    """Steps in a second."""

    def render(self, task: Task) -> Any:
        self.text_format = f"{task.speed:,.1f} steps/s" if task.speed else ""
        return super().render(task)


class Rate:
    """Steps in a second since the first that was seen."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None
        self.now = 0

    def see(self, step: int) -> None:
        """A step was made."""
        self.first = self.first or (step, time.monotonic())
        self.now = step

    def text(self, left: int) -> str:
        """The rate, and the time that the steps left will take."""
        if self.first is None or self.now == self.first[0]:
            return ""
        rate = (self.now - self.first[0]) / max(time.monotonic() - self.first[1], 1e-9)
        minutes, seconds = divmod(round(left / rate), 60)
        return f"  {rate:,.1f} steps/s  {minutes // 60}:{minutes % 60:02}:{seconds:02} left"


def mean_text(values: Sequence[float]) -> str:
    """The mean over replicas."""
    return f"{sum(values) / len(values):.2f}"
