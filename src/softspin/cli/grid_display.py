"""Display of a grid in progress: a live table on a terminal, lines in a file, JSON for a program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from softspin.cli.console import say, say_json, warn_of_rejection
from softspin.experiments.launchers import Progress
from softspin.experiments.reporting import RemainingTime
from softspin.experiments.runs import VARIANTS, RunSpec, seeds_text
from softspin.experiments.scheduler import (
    Event,
    GridEnded,
    GridStarted,
    GridStopped,
    RerunQueued,
    RowAdded,
    RunBusy,
    RunEnded,
    RunProgress,
    RunResumed,
    RunStarted,
)
from softspin.formatting import duration, overrides_text, result_line
from softspin.report.results import setting
from softspin.training.progress import SECONDS_PER_LINE, Rate

MIN_SECONDS_PER_LINE = 2.0
"""Seconds between lines about validations, except for the last one of a run."""


class GridDisplay:
    """Listener that prints the events of a grid; a context manager, since a live table must be ended.

    Args:
        rows: File of result rows.
        specs: The planned runs.
        json: Whether to print JSON lines instead of text.
        for_report: Whether the rows are for `softspin report`, which rejects those of unknown code.
    """

    def __init__(self, rows: Path, specs: Sequence[RunSpec], json: bool, *, for_report: bool = True) -> None:
        self.rows, self.json, self.for_report = rows, json, for_report
        self.remaining = RemainingTime(specs)
        self.active: dict[Path, _ActiveRun] = {}
        self.numbers: dict[Path, int] = {}
        self.several = False
        """Whether several runs train at a time, so that results name theirs."""
        console = Console(highlight=False)
        self.live = Live(console=console, refresh_per_second=4) if console.is_terminal and not json else None

    def __enter__(self) -> GridDisplay:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.update(Text(""))
            self.live.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._show(event)

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        raise TypeError(f"unknown event {event}")

    @_show.register
    def _(self, event: GridStarted) -> None:
        if self.for_report:
            warn_of_rejection()
        self._say(event, f"{self._counts(event)}; runs to train: {event.runs}", {"kind": "grid"})

    @_show.register
    def _(self, event: RunStarted) -> None:
        spec = event.spec
        self.active[spec.folder] = _ActiveRun(event.number, Progress(spec, event.step))
        self.numbers[spec.folder] = event.number
        self.several |= len(self.active) > 1
        self.remaining.add(spec)
        line = {"cell": spec.cell.id, "seeds": spec.config.seeds, "folder": spec.folder, "step": event.step}
        self._say(event, _start_text(event), {"kind": "start", **line})

    @_show.register
    def _(self, event: RunProgress) -> None:
        progress = event.progress
        run = self.active[progress.spec.folder]
        is_validation = progress.nll is not None and progress.nll != run.progress.nll
        is_last = progress.step == progress.spec.config.steps
        run.see(progress)
        self.remaining.see(progress)
        pause = MIN_SECONDS_PER_LINE if is_validation else SECONDS_PER_LINE
        if self.live is not None:
            self.live.update(self._table(event))
        elif not self.json and ((is_last and is_validation) or time.monotonic() - run.said > pause):
            say(f"[{run.number}] {run.text()}{self._left()}")
            run.said = time.monotonic()

    @_show.register
    def _(self, event: RunBusy) -> None:
        number = self._end(event.spec)
        text = f"[{number}] skipped: {event.reason or 'another process is training this run'}"
        self._say(event, text, {"kind": "busy", "folder": event.spec.folder})

    @_show.register
    def _(self, event: RunResumed) -> None:
        number = self._end(event.spec)
        self.remaining.add(event.spec)
        text = f"[{number}] {event.reason}; the run will be resumed from step {event.spec.step:,}"
        self._say(event, text, {"kind": "resumed", "folder": event.spec.folder, "reason": event.reason})

    @_show.register
    def _(self, event: RunEnded) -> None:
        self._end(event.spec)

    @_show.register
    def _(self, event: RowAdded) -> None:
        row = event.row
        text = result_line(row) if row.ok else f"failed: {row.error}"
        run = f"[{self.numbers[event.spec.folder]}]" if self.several else " "
        varied = {name: (row.config or {}).get(name) for name in event.spec.config.variants[0]}
        name = f"seed {row.seed}" + (f", {overrides_text(varied)}" if varied else "")
        self._say(event, f"{run} {name}: {text}", {"kind": "row", **row.to_json()})

    @_show.register
    def _(self, event: RerunQueued) -> None:
        seeds, count = event.spec.config.seeds, len(event.spec.config.variants)
        shared = event.spec.folder.name.startswith(VARIANTS)
        failed, rest = "replica" if shared else "seed", f" of {count} combination{'s' * (count > 1)}" * shared
        self.remaining.add(event.spec)
        text = f"  rerun without the failed {failed}: {_name(seeds)}{rest}"
        self._say(event, text, {"kind": "again", "seeds": seeds})

    @_show.register
    def _(self, event: GridStopped) -> None:
        text = f"{event.reason}; {self._counts(event)}; run the same command to resume"
        self._say(event, text, {"kind": "stopped", "reason": event.reason})

    @_show.register
    def _(self, event: GridEnded) -> None:
        hint = "; retry failed cells with --retry" if event.counts.failed else ""
        self._say(event, f"{self._counts(event)}{hint}", {"kind": "end"})

    def _end(self, spec: RunSpec) -> int:
        """Remove a run that is no longer in training; returns its number."""
        self.remaining.end(spec)
        run = self.active.pop(spec.folder, None)
        return 0 if run is None else run.number

    def _counts(self, event: Event) -> str:
        counts = event.counts
        failed = f", {counts.failed} failed" if counts.failed else ""
        return f"{counts.results} of {counts.wanted} results in {self.rows}{failed}"

    def _left(self) -> str:
        left = self.remaining.seconds()
        return "" if left is None else f"  all runs: {duration(left)} left"

    def _table(self, event: Event) -> Group:
        """A row for each run in training, and the remaining time of all."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("run", "cell", "seeds", "step", "steps/s", "bound", "valid NLL"):
            table.add_column(name, no_wrap=True, justify="left" if name in ("cell", "seeds") else "right")
        for run in self.active.values():
            table.add_row(*map(Text, run.cells()))
        return Group(table, Text(f"{self._counts(event)}{self._left()}"))

    def _say(self, event: Event, text: str, line: Mapping[str, Any]) -> None:
        if self.json:
            say_json({**line, **event.counts._asdict()})
        elif self.live is not None:
            self.live.console.print(Text(text), soft_wrap=True)
        else:
            say(text)


class _ActiveRun:
    """A run in training."""

    def __init__(self, number: int, progress: Progress) -> None:
        self.number, self.progress, self.rate = number, progress, Rate()
        self.said = time.monotonic()
        """When its last line was printed. Each run has its own pauses, so that a fast one does not hide the others."""

    def see(self, progress: Progress) -> None:
        self.progress = progress
        self.rate.see(progress.step)

    def text(self) -> str:
        now = self.progress
        bound = "" if now.bound is None else f"  bound {now.bound:.2f}"
        nll = "" if now.nll is None else f"  validation NLL {now.nll:.2f}"
        speed = self.rate.per_second
        rate = "" if speed is None else f"  {speed:,.1f} steps/s"
        return f"step {now.step:,} of {now.spec.config.steps:,}{bound}{nll}{rate}"

    def cells(self) -> list[str]:
        now, config = self.progress, self.progress.spec.config
        speed = self.rate.per_second
        return [
            str(self.number),
            now.spec.cell.id,
            seeds_text(config.seeds),
            f"{now.step:,} of {config.steps:,}",
            "" if speed is None else f"{speed:,.1f}",
            "" if now.bound is None else f"{now.bound:.2f}",
            "" if now.nll is None else f"{now.nll:.2f}",
        ]


def _start_text(event: RunStarted) -> str:
    spec, config = event.spec, event.spec.config
    settings = [setting(*one) for one in spec.cell.variant(config).items()]
    labels = [spec.cell.id, _name(config.seeds), f"{config.steps:,} steps", *settings]
    if event.trained_before:
        labels += ["already trained"]
    elif event.step:
        labels += [f"from step {event.step:,}"]
    return f"[{event.number} of {event.total}] {', '.join(labels)}\n  {spec.folder}"


def _name(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_text(seeds)}"
