"""`softspin grid`: train the missing cells of a table, one result row per cell and seed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import singledispatchmethod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from softspin.cli.console import say, say_json, warn, warn_of_rejection
from softspin.cli.options import NOT_FINISHED, Device, Json
from softspin.cli.plan import show_plan
from softspin.cli.progress import Bar, Lines
from softspin.config import Config
from softspin.experiments.cells import PAPER_TABLES, check_settings, choose, find_table, read_cells
from softspin.experiments.grid import FOLDER
from softspin.experiments.launchers.local import ThisProcess
from softspin.experiments.planning import plan_cell
from softspin.experiments.rows import DEFAULT_ROWS, find_rows, latest, read_rows
from softspin.experiments.runs import seeds_text
from softspin.experiments.scheduler import (
    Event,
    GridEnded,
    GridStarted,
    GridStopped,
    RerunQueued,
    RowAdded,
    RunBusy,
    RunEnded,
    RunStarted,
    Scheduler,
)
from softspin.formatting import result_line
from softspin.provenance import find_device
from softspin.report.results import rejection_reason
from softspin.timing import Estimator

EXIT_CODES = {"done": 0, "failed": 1, "unfinished": NOT_FINISHED}


def grid(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="table1, table2, or a TOML file of cells.", show_default=False),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Choose cells such as 'mnist/2-*/power*'; repeatable.", show_default="all"
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Train these seeds of each cell, as replicas of one run.")] = "0-4",
    steps: Annotated[
        str | None, typer.Option(help="Train fewer steps, with the whole schedule scaled.", show_default="the recipe's")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting of the recipe; repeatable.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and its estimated time, and train nothing.")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="With --dry-run: first measure this machine for a few seconds, and remember the result."
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop after this many minutes with a checkpoint and exit code 75.", min=0, show_default=False
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Retry failed cells.")] = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Read and append result rows in this file.",
            show_default=f"rows.jsonl next to the TOML file; for table1 and table2: {DEFAULT_ROWS}",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Write run directories here.")] = FOLDER,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train the cells of a table that have no result yet, and append one result row per cell and seed.

    After an interruption the same command resumes. Several processes may share a table; each skips the runs that
    another one is training. Exit code 1: a cell failed. Exit code 75: time was up, or other processes are still
    training; run the command again.
    """
    started = time.monotonic()
    if measure and not dry_run:
        raise typer.BadParameter("it needs --dry-run", param_hint="--measure")
    path = find_table(table)
    cells = choose(read_cells(path), only or [])
    check_settings(sets or [])
    settings = [f"seeds={seeds}", *([] if steps is None else [f"steps={steps}"])]
    Config(device=device).with_settings(settings)
    settings += [f"device={device}", *(sets or [])]
    configs = [cell.config(settings=settings) for cell in cells]
    ours = path.parent == PAPER_TABLES
    file = rows if rows is not None else find_rows() if ours else path.with_name("rows.jsonl")
    existing_rows = latest(read_rows(file, warn))
    plans = [plan_cell(*pair, existing_rows, folder, retry=retry) for pair in zip(cells, configs, strict=True)]
    by_id = {cell.id: cell for cell in cells}
    done = [(row, by_id[key.cell]) for key, row in existing_rows.items() if row.ok and key.cell in by_id]
    done = [(row, cell) for row, cell in done if not row.outdated]
    if rejected := sum(rejection_reason(row, cell) is not None for row, cell in done):
        warn(
            f"{rejected} of {len(done)} results are rejected by softspin report (see there); to rerun one, delete "
            f"its line in {file} and its run in {folder}"
        )
    if outdated := sum(len(one.outdated) for one in plans):
        warn(f"{outdated} results in {file} are marked as outdated and will be rerun")
    if dry_run:
        show_plan(plans, Estimator(find_device(device), measure=measure), json)
        return
    deadline = None if minutes is None else started + 60 * minutes
    progress = _Progress(sum(spec.config.steps - spec.step for plan in plans for spec in plan.runs), json)
    scheduler = Scheduler(plans, file, ThisProcess(progress), _Printer(file, progress, json))
    try:
        code = EXIT_CODES[scheduler.run(deadline)]
    except KeyboardInterrupt:
        code = 130
    finally:
        progress.stop()
    if code:
        raise typer.Exit(code)


class _Printer:
    """Prints the events of the scheduler as text or JSON lines, and updates the progress bar."""

    def __init__(self, rows: Path, progress: _Progress, json: bool) -> None:
        self.rows, self.progress, self.json = rows, progress, json

    def __call__(self, event: Event) -> None:
        self._show(event)

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        raise TypeError(f"unknown event {event}")

    @_show.register
    def _(self, event: GridStarted) -> None:
        warn_of_rejection()
        self._say(event, f"{self._counts(event)}; runs to train: {event.runs}", {"kind": "grid"})

    @_show.register
    def _(self, event: RunStarted) -> None:
        self.progress.begin(event.step)
        spec = event.spec
        line = {"cell": spec.cell.id, "seeds": spec.config.seeds, "folder": spec.folder, "step": event.step}
        self._say(event, _start_text(event), {"kind": "start", **line})

    @_show.register
    def _(self, event: RunBusy) -> None:
        self.progress.end(event.spec.config.steps)
        text = "  skipped: another process is training this run"
        self._say(event, text, {"kind": "busy", "folder": event.spec.folder})

    @_show.register
    def _(self, event: RunEnded) -> None:
        self.progress.end(event.spec.config.steps)

    @_show.register
    def _(self, event: RowAdded) -> None:
        row = event.row
        text = result_line(row) if row.ok else f"failed: {row.error}"
        self._say(event, f"  seed {row.seed}: {text}", {"kind": "row", **row.to_json()})

    @_show.register
    def _(self, event: RerunQueued) -> None:
        seeds = event.spec.config.seeds
        self._say(event, f"  rerun without the failed seed: {_name(seeds)}", {"kind": "again", "seeds": seeds})
        self.progress.add(event.spec.config.steps)

    @_show.register
    def _(self, event: GridStopped) -> None:
        text = f"{event.reason}; {self._counts(event)}; run the same command to resume"
        self._say(event, text, {"kind": "stopped", "reason": event.reason})

    @_show.register
    def _(self, event: GridEnded) -> None:
        hint = "; retry failed cells with --retry" if event.counts.failed else ""
        self._say(event, f"{self._counts(event)}{hint}", {"kind": "end"})

    def _counts(self, event: Event) -> str:
        counts = event.counts
        failed = f", {counts.failed} failed" if counts.failed else ""
        return f"{counts.results} of {counts.wanted} results in {self.rows}{failed}"

    def _say(self, event: Event, text: str, line: Mapping[str, Any]) -> None:
        if self.json:
            say_json({**line, **event.counts._asdict()})
        else:
            say(text)


def _start_text(event: RunStarted) -> str:
    spec, config = event.spec, event.spec.config
    settings = [f"{name}={value}" for name, value in spec.cell.variant(config).items()]
    labels = [spec.cell.id, _name(config.seeds), f"{config.steps:,} steps", *settings]
    if event.trained_before:
        labels += ["already trained"]
    elif event.step:
        labels += [f"from step {event.step:,}"]
    return f"[{event.number} of {event.total}] {', '.join(labels)}\n  {spec.folder}"


def _name(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_text(seeds)}"


class _Progress:
    """Progress over the remaining steps of all runs, as a bar or as lines."""

    def __init__(self, total: int, json: bool) -> None:
        console = Console(highlight=False)
        self.bar = Bar(console, total) if console.is_terminal and not json else None
        self.lines = None if json or self.bar else Lines(total)
        self.before = 0
        """Offset of the current run's step."""

    def report(self, line: Mapping[str, Any]) -> None:
        if shown := self.bar or self.lines:
            shown.report({**line, "step": line["step"] + self.before})

    def step(self, step: int) -> None:
        if shown := self.bar or self.lines:
            shown.step(step + self.before)

    def begin(self, step: int) -> None:
        """A run starts or resumes at a step."""
        self.before -= step

    def end(self, step: int) -> None:
        """A run has ended, by whatever cause; its steps no longer count as remaining."""
        self.before += step

    def add(self, steps: int) -> None:
        """One more run was queued."""
        if self.bar is not None:
            self.bar.progress.update(self.bar.task, total=(self.bar.progress.tasks[0].total or 0) + steps)
        if self.lines is not None:
            self.lines.last += steps

    def stop(self) -> None:
        """Stop updating the bar."""
        if self.bar is not None:
            self.bar.stop()
