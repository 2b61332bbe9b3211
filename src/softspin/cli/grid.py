"""`softspin grid`: run what a table of the paper lacks, one row for each cell and seed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from softspin import data as datasets
from softspin.cli.console import result_line, say, say_json, warn
from softspin.cli.options import Device, Json
from softspin.cli.progress import Bar, Lines
from softspin.cli.runs import RUNS
from softspin.config import Config
from softspin.errors import OutOfTimeError
from softspin.experiments.cells import check_settings, choose, find_table, read_cells
from softspin.experiments.grid import Need, Pack, check_device, need, remaining, run_pack, seeds_text
from softspin.experiments.rows import Row, append_rows, latest, read_rows
from softspin.training.trainer import Watcher

NOT_FINISHED = 75
"""The exit code for "try again later", EX_TEMPFAIL of sysexits.h."""


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

    Stopped or killed, the same command goes on. Exit code 1: some cell failed; 75: time was up, call again.
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
    there = latest(read_rows(file, warn))
    needs = [need(cell, config, there, folder, retry=retry) for cell, config in zip(cells, configs, strict=True)]
    deadline = None if minutes is None else began + 60 * minutes
    code = _Grid(needs, file, json).run(deadline)
    if code:
        raise typer.Exit(code)


class _Grid:
    """The packs in their order, and what is said of them."""

    def __init__(self, needs: list[Need], file: Path, json: bool) -> None:
        self.needs, self.file, self.json = needs, file, json
        self.queue = deque(pack for one in needs for pack in one.packs)
        self.results = sum(len(one.config.seeds) - len(one.missing) - len(one.failed) for one in needs)
        self.failed = sum(len(one.failed) for one in needs)
        self.wanted = sum(len(one.config.seeds) for one in needs)
        self.number = 0
        self.progress = _Progress(sum(pack.config.steps for pack in self.queue), json)

    def run(self, deadline: float | None) -> int:
        """All packs, one after another; the exit code."""
        append_rows(self.file, [])  # a file that cannot be written is found now, not after a day
        data = {name: datasets.load(name) for name in dict.fromkeys(pack.cell.data for pack in self.queue)}
        self._say(f"{self.wanted} rows wanted, {self.results} there, {len(self.queue)} runs to make", {"kind": "grid"})
        try:
            while self.queue:
                pack = self.queue.popleft()
                self._begin(pack)
                watcher = self.progress.of(pack)
                self._end(pack, run_pack(pack, data[pack.cell.data], watcher=watcher, deadline=deadline))
                if deadline is not None and self.queue and time.monotonic() >= deadline:
                    raise OutOfTimeError("out of time between two runs")
        except OutOfTimeError as error:
            return self._stopped(f"time is up ({error})", NOT_FINISHED)
        except KeyboardInterrupt:
            return self._stopped("stopped", 130)
        finally:
            self.progress.stop()
        hint = f", {self.failed} failed; try them again with --retry" if self.failed else ""
        self._say(f"{self.results} of {self.wanted} rows in {self.file}{hint}", {"kind": "end"})
        return 1 if self.failed else 0

    def _begin(self, pack: Pack) -> None:
        self.number += 1
        config, step = pack.config, pack.step
        seeds = seeds_text(config.seeds)
        text = (
            f"[{self.number} of {self.number + len(self.queue)}] {pack.cell.id}, seeds {seeds}, {config.steps:,} steps"
        )
        variant = "".join(f", {name}={value}" for name, value in pack.cell.variant(config).items())
        self._say(
            text + variant + (f", from step {step:,}" if step else "") + f": {pack.folder}",
            {"kind": "start", "cell": pack.cell.id, "seeds": config.seeds, "folder": pack.folder, "step": step},
        )

    def _end(self, pack: Pack, rows: list[Row]) -> None:
        for row in append_rows(self.file, rows):
            ok = row["status"] == "ok"
            self.results += ok
            self.failed += not ok
            self._say(f"  seed {row['seed']}: {result_line(row) if ok else row['error']}", {"kind": "row", **row})
        self.progress.done(pack)
        if any(row["status"] == "failed" for row in rows):
            check_device(pack.config.device)
        if (rest := remaining(pack, rows)) is not None:
            self._say(f"  seeds {seeds_text(rest.config.seeds)} begin again, without it", {"kind": "again"})
            self.queue.appendleft(rest)
            self.progress.add(rest)

    def _stopped(self, why: str, code: int) -> int:
        text = f"{why}: {self.results} of {self.wanted} rows in {self.file}; the same command goes on from here"
        self._say(text, {"kind": "stopped", "why": why})
        return code

    def _say(self, text: str, line: Mapping[str, Any]) -> None:
        if self.json:
            say_json({**line, "results": self.results, "failed": self.failed, "wanted": self.wanted})
        else:
            say(text)


class _Progress:
    """One bar, or one count of lines, over the steps of all runs."""

    def __init__(self, total: int, json: bool) -> None:
        console = Console(highlight=False)
        self.bar = Bar(console, total) if console.is_terminal and not json else None
        self.shown: Watcher | None = None if json else self.bar or Lines(total)
        self.before = 0

    def of(self, pack: Pack) -> Watcher | None:
        """What watches a run, whose steps come after those of the runs before."""
        return None if self.shown is None else _After(self.shown, self.before)

    def done(self, pack: Pack) -> None:
        """A run has ended."""
        self.before += pack.config.steps

    def add(self, pack: Pack) -> None:
        """There is one more to make."""
        if self.bar is not None:
            self.bar.progress.update(self.bar.task, total=(self.bar.progress.tasks[0].total or 0) + pack.config.steps)
        elif isinstance(self.shown, Lines):
            self.shown.last += pack.config.steps

    def stop(self) -> None:
        """Leave the line as it is."""
        if self.bar is not None:
            self.bar.stop()


class _After:
    """A watcher that counts on from the runs before."""

    def __init__(self, watcher: Watcher, before: int) -> None:
        self.watcher, self.before = watcher, before

    def report(self, line: Mapping[str, Any]) -> None:
        self.watcher.report({**line, "step": line["step"] + self.before})

    def step(self, step: int) -> None:
        self.watcher.step(step + self.before)
