"""`softspin train`: train and evaluate a model in a run directory that can be resumed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from softspin import api
from softspin.cli.console import say, say_json
from softspin.cli.options import NO_FLAGS, Flags, Json, takes_settings
from softspin.cli.plots import PlotCallback
from softspin.cli.progress import Bar, Callbacks, FirstSteps, JsonLines, Lines
from softspin.cli.runs import RUNS, check_run, free_folder
from softspin.cli.settings import default_folder, make_config, resumed_config
from softspin.config import Config
from softspin.data import parse_shape
from softspin.errors import RunError
from softspin.formatting import replica_name, result_line
from softspin.parallel import world
from softspin.records import ResultRow
from softspin.timing import Estimate, Estimator, sizes_of
from softspin.training import checkpoint
from softspin.training.results import RESULT, RUN, read_run
from softspin.training.trainer import Callback, Trainer

LONG_SECONDS = 60.0
"""Runs above this are worth a measurement of the machine, which takes seconds."""


@takes_settings
def train(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Run directory.",
            show_default="runs/DATA-METHOD-STRUCTURE, with a number if it exists",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any setting; repeatable.", show_default=False),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Read settings from a TOML file.", show_default=False)] = None,
    recipe: Annotated[bool, typer.Option("--recipe", help="Use the full published recipe on any data set.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in FOLDER with its own settings.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")] = False,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Set the shape of an image for pictures, such as 28x28, or 16x16x3 for colors.",
            show_default="that of the data; flat images are drawn as squares",
        ),
    ] = None,
    json: Json = False,
    flags: Flags = NO_FLAGS,
) -> None:
    """Train a model, evaluate it, and write a run directory with checkpoints, metrics, plots and the result.

    On mnist and omniglot the defaults are the published recipe. On other data they are a short version of it that takes
    minutes; with --config, settings that the file leaves out keep the recipe. All settings are options, such as
    --learning-rate 0.01; the common ones are listed below, all of them in the reference.
    """
    quick: list[str] = []
    if resume:
        if folder is None:
            raise typer.BadParameter(f"it needs a run directory; {known_runs()}", param_hint="--resume")
        run = folder
        chosen = world().call(lambda: _config_of(run, flags, sets or [], config, recipe))
    else:
        chosen, quick = make_config(flags, sets or [], config, recipe)
        run = world().call(lambda: new_folder(folder, chosen))
    run_training(chosen, run, quick=quick, resume=resume, tensorboard=tensorboard, json=json, shape=shape)


def _config_of(run: Path, flags: Flags, sets: list[str], config: Path | None, recipe: bool) -> Config:
    check_run(run)
    return resumed_config(run, flags, sets, config, recipe)


def new_folder(folder: Path | None, config: Config) -> Path:
    """The directory of a new run. A directory given by name gets no number, and no run is overwritten."""
    if folder is None:
        return free_folder(default_folder(config))
    if (folder / RUN).exists():
        raise RunError(f"{folder} already holds a run; {resume_hint(folder)}, or choose another directory")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a run needs a directory")
    return folder


def run_training(
    config: Config,
    folder: Path,
    *,
    quick: list[str] | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    json: bool = False,
    shape: str | None = None,
) -> list[ResultRow]:
    """Train in a directory, show progress, return the result rows. Ctrl-C saves a checkpoint and exits with 130."""
    recorded = read_run(folder).data if resume else None
    drawn = None if shape is None else parse_shape(shape)
    dataset = world().in_turn(lambda: api.load_data(config, recorded=recorded, shape=drawn))
    trainer = Trainer(config, dataset, folder, tensorboard=tensorboard)
    if not trainer.world.leads:
        rows = trainer.train(resume=resume)
        trainer.world.wait()
        return rows
    start = _saved_step(folder) if resume else 0
    estimator, time = _estimate(trainer, start)
    if json:
        told = None if time is None else time.to_json() | {"machine": estimator.machine}
        say_json({"kind": "start", "folder": folder, "step": start, "config": config.to_dict(), "time": told})
    else:
        _introduce(trainer, quick or [], start)
        if time is not None:
            say(f"time    {time}, on {estimator.machine}")
    plots = PlotCallback(trainer)
    console = Console(highlight=False)
    bar = Bar(console, config.steps) if console.is_terminal and not json else None
    shown: list[Callback] = [JsonLines() if json else bar or Lines(config.steps)]
    if time is None and not json:
        shown.append(FirstSteps(config.steps))
    trainer.callback = Callbacks([*shown, plots])
    try:
        try:
            rows = trainer.train(resume=resume)
        finally:
            if bar is not None:
                bar.stop()
        plots.finish(api.Model(trainer.engine.model, config, dataset.shape, folder))
    except KeyboardInterrupt:
        _interrupted(folder, json)
        raise typer.Exit(130) from None
    written = [folder / RESULT, *plots.paths]
    if json:
        say_json({"kind": "result", "rows": [row.to_json() for row in rows], "written": written})
    else:
        for row in rows:
            say((f"{replica_name(row)}: " if len(rows) > 1 else "") + result_line(row))
        say(f"written: {folder}/ with {', '.join(path.name for path in written)}")
    trainer.world.wait()
    return rows


def known_runs() -> str:
    """Existing runs, as text for an error message."""
    found = sorted(str(path.parent) for path in RUNS.glob(f"*/{RUN}"))
    return f"runs in {RUNS}/: {', '.join(found[:8])}" if found else f"there are no runs in {RUNS}/"


def resume_hint(folder: Path) -> str:
    """The command that resumes a run."""
    return f"resume with: softspin train --resume {shlex.quote(str(folder))}"


def _introduce(trainer: Trainer, quick: list[str], start: int) -> None:
    config, data = trainer.config, trainer.data
    sizes = " + ".join(f"{len(part):,}" for part in (data.train, data.valid, data.test))
    replicas = config.replicas
    processes = f", {trainer.world.size} processes" if trainer.world.size > 1 else ""
    names = f"{len(replicas)} models" if len(replicas) > 1 else replica_name(replicas[0])
    prior = "" if config.edges is None else f", a prior with {len(config.edges):,} couplings"
    say(f"data    {data.name}: {sizes} images of {' x '.join(map(str, data.shape))} (train + valid + test)")
    say(f"model   {config.method}, {config.structure}: {config.shape}{prior}; {names}")
    say(
        f"run     {config.steps:,} steps, K = {config.importance_samples}, {config.sampler} with "
        f"{config.chains:,} chains x {config.sweeps} sweeps, on {trainer.device}{processes}"
    )
    if config.batch_size > len(data.train):
        say(f"batch   all {len(data.train):,} training images; batch_size = {config.batch_size} is larger")
    if quick:
        say(f"short   {' '.join(quick)} (--recipe uses the published settings)")
    say(f"folder  {trainer.folder}" + (f", from step {start:,}" if start else ""))


def _estimate(trainer: Trainer, start: int) -> tuple[Estimator, Estimate | None]:
    """The time that is left. A machine that was never measured is measured first if the run is long.

    There is no estimate for several processes; the first steps are measured instead.
    """
    config, data = trainer.config, sizes_of(trainer.data)
    estimator = Estimator(trainer.device)
    time = estimator.run(config, data, start) if trainer.world.size == 1 else None
    if time is not None and not estimator.is_measured and time.seconds > LONG_SECONDS:
        estimator = Estimator(trainer.device, measure=True)
        time = estimator.run(config, data, start)
    return estimator, time


def _saved_step(folder: Path) -> int:
    return int(checkpoint.load_meta(folder, "last")["step"]) if checkpoint.exists(folder, "last") else 0


def _interrupted(folder: Path, json: bool) -> None:
    step = _saved_step(folder)
    if json:
        say_json({"kind": "interrupted", "folder": folder, "step": step})
    else:
        say(f"stopped; the checkpoint is of step {step:,}")
        say(resume_hint(folder))
