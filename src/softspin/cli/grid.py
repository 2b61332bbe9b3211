"""`softspin grid`: train the missing cells of a table, one result row per cell and seed."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from softspin.cli.console import warn
from softspin.cli.grid_display import GridDisplay
from softspin.cli.options import (
    EXIT_CODES,
    Address,
    Collect,
    Device,
    DryRun,
    GpusPerRun,
    GridProfile,
    Json,
    LauncherName,
    Measure,
    Minutes,
    Retry,
    Sbatch,
    Submit,
    Workers,
)
from softspin.cli.plan import show_plan
from softspin.cli.slurm import send_to_slurm
from softspin.config import Config
from softspin.experiments.cells import PAPER_TABLES, check_names, choose, find_table, read_cells
from softspin.experiments.grid import FOLDER
from softspin.experiments.launchers.choice import make_launcher
from softspin.experiments.planning import CellPlan, plan_cell
from softspin.experiments.rows import DEFAULT_ROWS, Key, append_rows, find_rows, latest, read_rows
from softspin.experiments.scheduler import Scheduler
from softspin.experiments.slurm.collect import Collector, Outcomes
from softspin.experiments.slurm.planning import find_resources
from softspin.provenance import find_device
from softspin.records import ResultRow
from softspin.report.results import rejection_reason
from softspin.timing import Estimator


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
    profile: GridProfile = "paper",
    dry_run: DryRun = False,
    measure: Measure = False,
    minutes: Minutes = None,
    retry: Retry = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Read and append result rows in this file.",
            show_default=f"rows.jsonl next to the TOML file; for table1 and table2: {DEFAULT_ROWS}",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Write run directories here.")] = FOLDER,
    launcher: LauncherName = "local",
    workers: Workers = "1",
    gpus_per_run: GpusPerRun = None,
    address: Address = None,
    submit: Submit = False,
    sbatch: Sbatch = None,
    collect: Collect = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train the cells of a table that have no result yet, and append one result row per cell and seed.

    After an interruption the same command resumes. With --workers, several runs train at a time; with --launcher ray,
    on a cluster. With --launcher slurm, nothing is trained here: the command writes a SLURM job, and submits it with
    --submit. Several commands may share a table; each skips the runs that another one is training. Exit code 1: a cell
    failed. Exit code 75: time was up, or others are still training; run the command again.
    """
    started = time.monotonic()
    if measure and not dry_run:
        raise typer.BadParameter("it needs --dry-run", param_hint="--measure")
    for given, name in ((submit, "--submit"), (sbatch, "--sbatch")):
        if given and (launcher != "slurm" or collect):
            raise typer.BadParameter("it needs --launcher slurm, without --collect", param_hint=name)
    path = find_table(table)
    cells = choose(read_cells(path), only or [])
    check_names(setting.partition("=")[0].strip() for setting in sets or [])
    settings = [f"seeds={seeds}", *([] if steps is None else [f"steps={steps}"])]
    Config(device=device).with_settings(settings)
    settings += [f"device={device}", *(sets or [])]
    configs = [cell.config(settings=settings, profile=profile) for cell in cells]
    ours = path.parent == PAPER_TABLES
    file = rows if rows is not None else find_rows() if ours else path.with_name("rows.jsonl")
    all_rows = read_rows(file, warn)
    existing_rows = latest(all_rows)
    outcomes = Outcomes(folder, all_rows)
    if collect:
        existing_rows = outcomes.without_retried(existing_rows)
    plans = [plan_cell(*pair, existing_rows, folder, retry=retry) for pair in zip(cells, configs, strict=True)]
    _warn_of_results(existing_rows, plans, file, folder)
    if dry_run:
        show_plan(plans, _estimator(device, measure=measure, elsewhere=launcher == "slurm"), json)
        return
    specs = [spec for plan in plans for spec in plan.runs]
    if launcher == "slurm" and not collect:
        resources = find_resources(configs[0].device, workers, gpus_per_run, sbatch or [])
        words = _collect_words(table, only or [], seeds, steps, sets or [], profile, file, folder, retry, device)
        send_to_slurm(specs, outcomes, folder, resources, minutes, words, submitting=submit, json=json)
        return
    deadline = None if minutes is None else started + 60 * minutes
    if collect:
        append = functools.partial(append_rows, once=True)
        scheduler = functools.partial(Scheduler, plans, file, Collector(outcomes), append=append)
    else:
        chosen = make_launcher(launcher, workers, device=device, gpus_per_run=gpus_per_run, address=address)
        scheduler = functools.partial(Scheduler, plans, file, chosen)
    try:
        with GridDisplay(file, specs, json) as display:
            code = EXIT_CODES[scheduler(display).run(deadline)]
    except KeyboardInterrupt:
        code = 130
    if code:
        raise typer.Exit(code)


def _warn_of_results(rows: Mapping[Key, ResultRow], plans: Sequence[CellPlan], file: Path, folder: Path) -> None:
    """Say how many results a report would reject, and how many are outdated."""
    by_id = {plan.cell.id: plan.cell for plan in plans}
    done = [
        (row, by_id[key.cell])
        for key, row in rows.items()
        if row.status == "ok" and key.cell in by_id and not row.outdated
    ]
    if rejected := sum(rejection_reason(row, cell) is not None for row, cell in done):
        warn(
            f"{rejected} of {len(done)} results are rejected by softspin report (see there); to rerun one, delete "
            f"its line in {file} and its run in {folder}"
        )
    if outdated := sum(len(one.outdated) for one in plans):
        warn(f"{outdated} results in {file} are marked as outdated and will be rerun")


def _estimator(device: str, *, measure: bool, elsewhere: bool) -> Estimator:
    """Times of this machine; of the benchmark's GPU, if a GPU is requested or used elsewhere and there is none here."""
    on_gpu = device != "cpu" if elsewhere else device.startswith("cuda") and not measure
    if on_gpu and not torch.cuda.is_available():
        return Estimator(torch.device("cuda"), benchmark=True)
    return Estimator(find_device(device), measure=measure)


def _collect_words(
    table: str,
    only: Sequence[str],
    seeds: str,
    steps: str | None,
    sets: Sequence[str],
    profile: str,
    rows: Path,
    folder: Path,
    retry: bool,
    device: str,
) -> list[str]:
    """Arguments of the command that collects the rows of this grid."""
    words = ["grid", *(f"--only={pattern}" for pattern in only), f"--seeds={seeds}"]
    words += [f"--steps={steps}"] * (steps is not None) + [f"--set={setting}" for setting in sets]
    words += [
        f"--profile={profile}",
        f"--rows={rows}",
        f"--folder={folder}",
        *["--retry"] * retry,
        f"--device={device}",
        "--collect",
    ]
    return [*words, "--", table]
