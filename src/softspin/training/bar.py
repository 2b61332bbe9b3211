"""Progress bars by rich, on a terminal or in a notebook. Imported only where one is shown."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from softspin.training.progress import PhaseLines, mean_text

REFRESH_SECONDS = 0.1
"""Seconds between updates of the bar: a GPU makes thousands of steps a second."""


def shows_bars(console: Console) -> bool:
    """Whether a console can show a bar that is updated. In a notebook, rich needs ipywidgets for that."""
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


class Bar:
    """A progress bar with rate, remaining time, bound and validation NLL (means over replicas).

    Below it is a bar of the current phase of a validation or of the final test.

    Args:
        console: Where to show it.
        last: Number of the last step.
    """

    def __init__(self, console: Console, last: int) -> None:
        self.progress = Progress(
            # A fixed width, so that the bar does not jump when a phase begins.
            TextColumn("{task.description}", table_column=Column(width=20, no_wrap=True, overflow="ellipsis")),
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
        self._phase = self.progress.add_task("", total=1, start=False, visible=False, bound="", valid="")
        self._phase_name = ""
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
        if self._phase_name:
            self._phase_name = ""
            self.progress.update(self._phase, visible=False)
        done = step == self.progress.tasks[0].total
        if now - self.updated > REFRESH_SECONDS or done:
            self.progress.update(self.task, completed=step, description="evaluate" if done else "train")
            self.updated = now

    def phase(self, name: str, done: int, total: int) -> None:
        if not self.updated:  # a resumed run that only lacks its test
            self.progress.start()
            self.updated = time.monotonic()
        if name != self._phase_name:
            self._phase_name = name
            self.progress.reset(self._phase, description=name, total=total, completed=done, visible=True)
        self.progress.update(self._phase, completed=done, total=total)

    def stop(self) -> None:
        """Stop updating the bar."""
        self.progress.update(self._phase, visible=False)
        self.progress.stop()


class _RateColumn(TextColumn):
    """Steps per second."""

    def render(self, task: Task) -> Any:
        self.text_format = f"{task.speed:,.1f} steps/s" if task.speed and task.id == 0 else ""
        return super().render(task)


@contextlib.contextmanager
def phases() -> Iterator[Callable[[str, int, int], None]]:
    """Show the phases of an evaluation on stderr: a bar on a terminal, else a line at regular times.

    Yields:
        A function of the name of a phase, the number of its parts that are done, and their total number.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with PhaseLines() as phase:
            yield phase
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)
