"""`softspin runs`: list the runs in a folder, compare their settings, sort them by NLL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from softspin.cli.console import say, say_json, show_table, warn
from softspin.cli.options import Json
from softspin.cli.runs import RUNS
from softspin.config import Replica, identifying_settings
from softspin.errors import CheckpointError, RunError, unknown_name
from softspin.experiments.runs import BROKEN
from softspin.formatting import number, overrides_text, replica_name
from softspin.records import ResultRow
from softspin.training import checkpoint
from softspin.training.process import is_training
from softspin.training.run_files import RUN, read_result, read_run

DEPTH = 3
"""Levels of folders in which runs are looked for."""
SORTS = ("nll", "name", "time")
SHOWN = ("data", "method", "steps", "seeds", "beta", "betas", "structure")
"""Settings that have their own column, or are part of one."""
WARNED = "(!)"
"""Mark of a result with a warning."""
DENSITY = "(d)"
"""Mark of a result that is a density."""


class Trained(NamedTuple):
    """One replica of a run."""

    folder: Path
    state: str
    replica: Replica
    data: str
    method: str
    structure: str
    step: int
    steps: int
    valid_nll: float | None
    row: ResultRow | None
    seconds: float
    settings: Mapping[str, Any]

    @property
    def nll(self) -> float | None:
        """Test NLL, if the run is finished."""
        return None if self.row is None else self.row.nll

    def to_json(self) -> dict[str, Any]:
        """Plain data for programs."""
        own = {name: value for name, value in self._asdict().items() if name not in ("row", "replica")}
        error = None if self.row is None else self.row.standard_error
        unit = None if self.row is None else self.row.unit
        return own | {**self.replica._asdict(), "nll": self.nll, "standard_error": error, "unit": unit}


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with run directories.")] = RUNS,
    sort: Annotated[str, typer.Option(help="Sort by nll, name or time (of training).")] = "nll",
    json: Json = False,
) -> None:
    """List the runs in a folder with their results and the settings in which they differ, best test NLL first.

    A run with several replicas has a line for each; (!) marks a result with a warning, which info explains, and (d) one
    in nats of a density. NLLs of different data or likelihoods cannot be compared, so runs are grouped by both. Runs
    that a sweep or a grid gave up after non-finite numbers are counted.
    """
    if sort not in SORTS:
        raise typer.BadParameter(str(unknown_name("order", sort, SORTS)), param_hint="--sort")
    if not folder.is_dir():
        here = " of this folder, use: softspin runs ." if any(Path().glob(f"*/{RUN}")) else ", give their folder"
        raise RunError(f"no folder {folder}; to list the runs{here}")
    found = sorted(_all(folder), key=lambda one: _order(one, sort))
    if json:
        say_json([one.to_json() for one in found])
        return
    if not found:
        say(f"no runs in {folder}; train one with: softspin train")
        return
    broken = len({one.folder for one in found if one.state == "broken"})
    found = [one for one in found if one.state != "broken"]
    differ = differing(one.settings for one in found)
    columns = ["run", "replica", "data", "method", "structure", "steps", "valid NLL", "test NLL", "state"]
    cells = [_cells(one, folder) for one in found]
    show_table(
        [*columns, "differs by"],
        [
            [*own, overrides_text({n: one.settings.get(n) for n in differ}) if differ else ""]
            for own, one in zip(cells, found, strict=True)
        ],
        drop=("method", "data", "structure", "state", "valid NLL", "steps", "replica"),
    )
    if any(WARNED in cell for own in cells for cell in own):
        say(f"{WARNED}: a warning; softspin info RUN shows it")
    if any(DENSITY in cell for own in cells for cell in own):
        say(f"{DENSITY}: nats of a density, which change with the unit of the data")
    if broken:
        say(f"left out: {broken} run{'s' * (broken > 1)} with non-finite numbers ({BROKEN}*)")


def differing(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Settings in which runs differ, without those that have a column and those that leave the result unchanged.

    >>> differing([{"width": 8, "steps": 1}, {"width": 9, "steps": 2}])
    ['width']
    """
    every = list(settings)
    names = dict.fromkeys(name for one in every for name in identifying_settings(one) if name not in SHOWN)
    return [name for name in names if any(one.get(name) != every[0].get(name) for one in every)]


def _all(folder: Path) -> Iterator[Trained]:
    """Every replica of every run; damaged runs are named on stderr and left out."""
    depths = ("*/" * depth + RUN for depth in range(DEPTH + 1))
    for path in sorted(path.parent for depth in depths for path in folder.glob(depth)):
        try:
            yield from _replicas(path)
        except (RunError, CheckpointError) as error:
            warn(f"left out: {error}")


def _replicas(path: Path) -> Iterator[Trained]:
    run = read_run(path)
    config, rows = run.read_config(), read_result(path)
    meta: dict[str, Any] = checkpoint.load_meta(path, "last") if checkpoint.exists(path, "last") else {}
    best = meta.get("best") or [None] * len(config.replicas)
    state = "being trained" if is_training(path) else "finished" if rows else "not finished"
    if path.name.startswith(BROKEN):
        state = "broken"
    if rows and meta and meta["step"] < config.steps:
        state = "stopped early"
    for i, replica in enumerate(config.replicas):
        yield Trained(
            folder=path, state=state, replica=Replica(*replica), data=run.data.name, method=config.method,
            structure=config.structure_name, step=meta.get("step", 0), steps=config.steps,
            valid_nll=None if best[i] is None else best[i]["nll"], row=rows[i] if rows else None,
            seconds=meta.get("seconds", 0.0), settings=config.of_replica(i).settings(),
        )  # fmt: skip


def _order(one: Trained, sort: str) -> tuple[Any, ...]:
    if sort == "name":
        return (str(one.folder), one.replica.seed, one.replica.beta or 0.0)
    if sort == "time":
        return (one.seconds,)
    nll, valid = (math.inf if value is None else value for value in (one.nll, one.valid_nll))
    return (one.data, str(one.settings.get("likelihood")), nll, valid, str(one.folder))


def _cells(one: Trained, folder: Path) -> list[str]:
    name = str(one.folder.relative_to(folder)) if one.folder != folder else str(one.folder)
    error = "" if one.row is None or one.row.standard_error is None else f" +- {one.row.standard_error:.2f}"
    if one.row is not None:
        error += f" {DENSITY}" * ("density" in (one.row.unit or "")) + f" {WARNED}" * (one.row.warning is not None)
    steps = f"{one.steps:,}" if one.step == one.steps else f"{one.step:,} of {one.steps:,}"
    return [
        name, replica_name(one.replica), one.data, one.method, one.structure, steps,
        "" if one.valid_nll is None else number(one.valid_nll), "" if one.nll is None else number(one.nll) + error,
        one.state,
    ]  # fmt: skip
