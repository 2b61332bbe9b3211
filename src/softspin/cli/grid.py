"""`softspin grid`: run what a table of the paper lacks, one row for each cell and seed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from softspin import data as datasets
from softspin.cli.console import say, say_json, warn, warn_of_rejection
from softspin.cli.options import NOT_FINISHED, Device, Json
from softspin.cli.plan import show_plan
from softspin.cli.progress import Bar, Lines
from softspin.cli.runs import RUNS
from softspin.config import Config
from softspin.errors import BusyError, OutOfTimeError
from softspin.experiments.cells import check_settings, choose, find_table, read_cells
from softspin.experiments.grid import (
    CellPlan,
    RunSpec,
    check_device,
    plan_cell,
    refresh,
    remaining,
    seeds_text,
    train_run,
)
from softspin.experiments.rows import append_rows, latest, read_rows
from softspin.experiments.times import BENCHMARK, measured
from softspin.formatting import result_line
from softspin.records import ResultRow
from softspin.report.results import rejection_reason
from softspin.training.results import read_result


def grid(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="table1, table2 (of ./experiments), or a TOML file.", show_default=False),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Cells such as 'mnist/2-*/power*'; repeat for more.", show_default="all"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Of each cell, as replicas of one run.")] = "0-4",
    steps: Annotated[
        str | None, typer.Option(help="A shorter schedule, scaled as a whole.", show_default="the recipe's")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A variant of the recipe; repeat for more.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is to do, and how long.")] = False,
    minutes: Annotated[
        float | None, typer.Option(help="End after these with a checkpoint, and code 75.", min=0, show_default=False)
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False,
    rows: Annotated[
        Path | None, typer.Option(help="Where the results are.", show_default="rows.jsonl beside the table")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Of the runs.")] = RUNS / "grid",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Run the cells of a table that have no result yet, and append one row for each cell and seed.

    Stopped or killed, the same command goes on. Several may work on one table: each leaves alone what another trains.
    Exit code 1: some cell failed; 75: time was up, or runs were left to others, call again.
    """
    began = time.monotonic()
    path = find_table(table)
    cells = choose(read_cells(path), only or [])
    check_settings(sets or [])
    settings = [f"seeds={seeds}", *([] if steps is None else [f"steps={steps}"])]
    Config(device=device).with_settings(settings)
    settings += [f"device={device}", *(sets or [])]
    configs = [cell.config(settings=settings) for cell in cells]
    file = path.with_name("rows.jsonl") if rows is None else rows
    known = read_rows(file, warn)
    existing_rows = latest(known)
    plans = [plan_cell(*pair, existing_rows, folder, retry=retry) for pair in zip(cells, configs, strict=True)]
    by_id = {cell.id: cell for cell in cells}
    done = [(row, by_id[key.cell]) for key, row in existing_rows.items() if row.ok and key.cell in by_id]
    done = [(row, cell) for row, cell in done if not row.outdated]
    if rejected := sum(rejection_reason(row, cell) is not None for row, cell in done):
        warn(
            f"results that softspin report rejects, and says why: {rejected} of {len(done)}; to rerun one, delete "
            f"its line in {file} and its run in {folder}"
        )
    if outdated := sum(len(one.outdated) for one in plans):
        warn(f"results that {file} marks as outdated, to be rerun: {outdated}")
    if dry_run:
        show_plan(plans, measured(known, path.parent.parent / BENCHMARK), device, json)
        return
    deadline = None if minutes is None else began + 60 * minutes
    code = _Grid(plans, file, json).run(deadline)
    if code:
        raise typer.Exit(code)


class _Grid:
    """The runs in their order, and what is said of them."""

    def __init__(self, plans: list[CellPlan], file: Path, json: bool) -> None:
        self.file, self.json = file, json
        self.queue = deque(spec for one in plans for spec in one.runs)
        self.wanted = sum(len(one.config.seeds) for one in plans)
        self.missing = {(one.cell.id, seed) for one in plans for seed in one.missing}
        self.failed = {(one.cell.id, seed) for one in plans for seed in one.failed}
        self.busy = 0
        """Runs that were left to other processes."""
        self.number = 0
        self.progress = _Progress(sum(spec.config.steps - spec.step for spec in self.queue), json)

    def run(self, deadline: float | None) -> int:
        """All runs, one after another; the exit code."""
        append_rows(self.file, [])  # a file that cannot be written is found now, not after a day
        data = {name: datasets.load(name) for name in dict.fromkeys(spec.cell.data for spec in self.queue)}
        if self.queue:
            warn_of_rejection()
            self._say(f"{self._counts()}; runs to make: {len(self.queue)}", {"kind": "grid"})
        try:
            while self.queue:
                spec = refresh(self.queue.popleft())
                self._begin(spec)
                try:
                    rows = train_run(spec, data[spec.cell.data], watcher=self.progress, deadline=deadline)
                except BusyError:
                    self._leave(spec)
                else:
                    self._end(spec, rows)
                if deadline is not None and self.queue and time.monotonic() >= deadline:
                    raise OutOfTimeError("out of time between two runs")
        except OutOfTimeError as error:
            return self._stopped(str(error), NOT_FINISHED)
        except KeyboardInterrupt:
            return self._stopped("stopped", 130)
        finally:
            self.progress.stop()
        if self.busy:
            return self._stopped(f"runs left to other processes: {self.busy}", NOT_FINISHED)
        hint = "; to try again what failed: --retry" if self.failed else ""
        self._say(f"{self._counts()}{hint}", {"kind": "end"})
        return 1 if self.failed else 0

    def _begin(self, spec: RunSpec) -> None:
        self.number += 1
        config, step = spec.config, spec.step
        self.progress.begin(step)
        settings = [f"{name}={value}" for name, value in spec.cell.variant(config).items()]
        words = [spec.cell.id, _name(config.seeds), f"{config.steps:,} steps", *settings]
        if read_result(spec.folder) is not None:
            words += ["trained before"]
        elif step:
            words += [f"from step {step:,}"]
        self._say(
            f"[{self.number} of {self.number + len(self.queue)}] {', '.join(words)}\n  {spec.folder}",
            {"kind": "start", "cell": spec.cell.id, "seeds": config.seeds, "folder": spec.folder, "step": step},
        )

    def _leave(self, spec: RunSpec) -> None:
        """To the process that is training it; the others can go on."""
        self.busy += 1
        self.progress.end(spec.config.steps)
        self._say("  another process is training it: left to that one", {"kind": "busy", "folder": spec.folder})

    def _end(self, spec: RunSpec, rows: list[ResultRow]) -> None:
        append_rows(self.file, rows)
        self.progress.end(spec.config.steps)
        for row in rows:
            key = spec.cell.id, row.seed
            self.missing.discard(key)
            if not row.ok:
                self.failed.add(key)
            text = result_line(row) if row.ok else f"failed: {row.error}"
            self._say(f"  seed {row.seed}: {text}", {"kind": "row", **row.to_json()})
        if not all(row.ok for row in rows):
            check_device(spec.config.device)
        if (rest := remaining(spec, rows)) is not None:
            seeds = rest.config.seeds
            self._say(f"  without it, from the beginning: {_name(seeds)}", {"kind": "again", "seeds": seeds})
            self.queue.appendleft(rest)
            self.progress.add(rest.config.steps)

    def _stopped(self, why: str, code: int) -> int:
        self._say(f"{why}; {self._counts()}; the same command goes on from here", {"kind": "stopped", "why": why})
        return code

    def _counts(self) -> str:
        there = self.wanted - len(self.missing) - len(self.failed)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{there} of {self.wanted} results in {self.file}{failed}"

    def _say(self, text: str, line: Mapping[str, Any]) -> None:
        if self.json:
            say_json({**line, "wanted": self.wanted, "missing": len(self.missing), "failed": len(self.failed)})
        else:
            say(text)


def _name(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_text(seeds)}"


class _Progress:
    """One bar, or one count of lines, over the steps that all runs still have to make."""

    def __init__(self, total: int, json: bool) -> None:
        console = Console(highlight=False)
        self.bar = Bar(console, total) if console.is_terminal and not json else None
        self.lines = None if json or self.bar else Lines(total)
        self.before = 0
        """What to add to a run's step."""

    def report(self, line: Mapping[str, Any]) -> None:
        if shown := self.bar or self.lines:
            shown.report({**line, "step": line["step"] + self.before})

    def step(self, step: int) -> None:
        if shown := self.bar or self.lines:
            shown.step(step + self.before)

    def begin(self, step: int) -> None:
        """A run begins, or goes on after a step."""
        self.before -= step

    def end(self, step: int) -> None:
        """A run has ended; whatever broke it, its steps are not to come any more."""
        self.before += step

    def add(self, steps: int) -> None:
        """There is one more run to make."""
        if self.bar is not None:
            self.bar.progress.update(self.bar.task, total=(self.bar.progress.tasks[0].total or 0) + steps)
        if self.lines is not None:
            self.lines.last += steps

    def stop(self) -> None:
        """Leave the line as it is."""
        if self.bar is not None:
            self.bar.stop()
