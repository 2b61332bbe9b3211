"""`softspin train`: train and evaluate a model in a run directory that can be resumed."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin import api
from softspin.cli.console import say, say_json
from softspin.cli.options import NO_FLAGS, NOT_FINISHED, ConfigFile, Flags, Json, Minutes, Profile, Sets, takes_settings
from softspin.cli.progress import JsonLines
from softspin.cli.runs import RUNS, check_run, free_folder
from softspin.cli.settings import default_folder, make_config, resumed_config
from softspin.config import PROFILES, Config
from softspin.data import parse_shape
from softspin.deprecation import warn_renamed
from softspin.errors import OutOfTimeError, RunError, TerminatedError
from softspin.parallel import world
from softspin.records import ResultRow
from softspin.training import checkpoint
from softspin.training.display import Display
from softspin.training.run_files import RUN


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
    sets: Sets = None,
    config: ConfigFile = None,
    profile: Profile = None,
    recipe: Annotated[bool, typer.Option("--recipe", hidden=True)] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Set the number of passes over the data, instead of --steps.", min=1)
    ] = None,
    minutes: Minutes = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Start from the best parameters of another run or shared model.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in FOLDER with its own settings.")] = False,
    loggers: Annotated[
        list[str] | None,
        typer.Option("--logger", help="Log to tensorboard or wandb (offline) too; repeatable.", show_default=False),
    ] = None,
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

    Settings that are not given come from a profile. On mnist and omniglot it is the published recipe. On other data it
    is a short version that takes minutes. All settings are options, such as --learning-rate 0.01; the common ones are
    listed below, all of them in the reference.
    """
    if recipe:
        if str(folder) in PROFILES:  # the old option had no value, so the name would be that of the run directory
            raise typer.BadParameter(f"a recipe is chosen by --profile {folder}", param_hint="--recipe")
        warn_renamed("--recipe", "--profile paper")
        profile = profile or "paper"
    if minutes is not None and minutes <= 0:
        raise typer.BadParameter("it must be above 0", param_hint="--minutes")
    if resume:
        if folder is None:
            raise typer.BadParameter(f"it needs a run directory; {known_runs()}", param_hint="--resume")
        for option, given in (
            ("--config", config),
            ("--profile", profile),
            ("--epochs", epochs),
            ("--init-from", init_from),
        ):
            if given is not None:
                raise typer.BadParameter(
                    f"{folder} has its own settings; leave out --resume or {option}", param_hint=option
                )
        run = folder
        chosen = world().call(lambda: _config_of(run, flags, sets or []))
    else:
        chosen = make_config(flags, sets or [], config, profile)
        if epochs is not None and "steps" in chosen.given:
            raise typer.BadParameter(f"steps = {chosen.steps} is given too; give one of them", param_hint="--epochs")
    options: dict[str, Any] = {"epochs": epochs, "minutes": minutes, "init_from": init_from, "resume": resume}
    names = [*(loggers or []), *(["tensorboard"] if tensorboard else [])]
    options["shape"] = None if shape is None else parse_shape(shape)
    with contextlib.ExitStack() as held:
        if not resume:
            run = world().call(lambda: held.enter_context(new_folder(folder, default_folder(chosen))))
        run_training(chosen, run, loggers=list(dict.fromkeys(names)), json=json, **options)


def _config_of(run: Path, flags: Flags, sets: list[str]) -> Config:
    check_run(run)
    return resumed_config(run, flags, sets)


def new_folder(folder: Path | None, default: Path) -> contextlib.AbstractContextManager[Path]:
    """The directory of a new run. A directory given by name gets no number, and no run is overwritten."""
    if folder is None:
        return free_folder(default)
    if (folder / RUN).exists():
        raise RunError(f"{folder} already holds a run; {resume_hint(folder)}, or choose another directory")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a run needs a directory")
    return contextlib.nullcontext(folder)


def run_training(config: Config, folder: Path, *, json: bool = False, **options: Any) -> list[ResultRow]:
    """Train in a directory, show progress, return the result rows.

    Ctrl-C saves a checkpoint and exits with 130; SIGTERM, and the end of the minutes, with 75.
    """
    shown = JsonLines() if json else Display(stderr=False)
    try:
        model = api.fit(config, folder=folder, callbacks=shown, progress=False, **options)
    except KeyboardInterrupt:
        _stopped("interrupted", "stopped", folder, json)
        raise typer.Exit(130) from None
    except OutOfTimeError as error:
        if isinstance(error, TerminatedError) and world().size > 1:
            raise  # one process tells the others
        kind = "terminated" if isinstance(error, TerminatedError) else "out of time"
        _stopped(kind, str(error), folder, json)
        raise typer.Exit(NOT_FINISHED) from None
    return list(model.result or ())


def known_runs() -> str:
    """Existing runs, as text for an error message."""
    found = sorted(str(path.parent) for path in RUNS.glob(f"*/{RUN}"))
    return f"runs in {RUNS}/: {', '.join(found[:8])}" if found else f"there are no runs in {RUNS}/"


def resume_hint(folder: Path) -> str:
    """The command that resumes a run."""
    return f"resume with: softspin train --resume {shlex.quote(str(folder))}"


def _stopped(kind: str, reason: str, folder: Path, json: bool) -> None:
    if not world().leads:
        return
    step = int(checkpoint.load_meta(folder, "last")["step"]) if checkpoint.exists(folder, "last") else 0
    if json:
        say_json({"kind": kind, "folder": folder, "step": step})
    else:
        say(reason if "with a checkpoint" in reason else f"{reason}; the checkpoint is of step {step:,}")
        say(resume_hint(folder))
