"""`softspin rbm`: train, evaluate and sample a Boltzmann machine on its own."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin import data as datasets
from softspin.boltzmann_machine import BoltzmannConfig, BoltzmannModel, fit_boltzmann, load_boltzmann
from softspin.boltzmann_machine.display import Display, result_line
from softspin.boltzmann_machine.likelihood import likelihood_texts
from softspin.boltzmann_machine.run_files import RUN, read_run
from softspin.cli.console import paragraphs, say, say_json, usage_errors, warn
from softspin.cli.options import NOT_FINISHED, Chains, Device, Json, Minutes, Seed, Temperatures, with_options
from softspin.cli.runs import RUNS, SPLITS, check_ending, check_split, free_folder, write_array
from softspin.data.columns import check_columns
from softspin.data.images import TRAINING
from softspin.errors import ConfigError, OutOfTimeError
from softspin.evaluation.partition import method_text

app = typer.Typer(
    help="Train a Boltzmann machine on its own: an RBM or a graph, on binary data.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Place = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Run directory, .safetensors file, or .h5 file of rbms.", show_default=False),
]

Replica = Annotated[
    str | None,
    typer.Option(
        help="Choose a replica: a number from 0, or best (by validation log-likelihood).",
        show_default="the best, if there are several",
    ),
]


def _open(model: Path, device: str, replica: str | None) -> BoltzmannModel:
    """The model with one replica in use; that it is the best of several is said on stderr unless it was asked for."""
    trained = load_boltzmann(model, device=device)
    if replica not in (None, "best") and not replica.isdecimal():
        raise ConfigError(f"--replica {replica} is not possible; it must be a number from 0, or best")
    if replica not in (None, "best"):
        return trained.only(int(replica))
    if replica is None and trained.replicas > 1 and trained.result is not None:
        seed = trained.result[trained.replica].seed
        warn(
            f"using replica {trained.replica} (seed {seed}): it has the highest validation log-likelihood of "
            f"{trained.replicas}; --replica chooses another"
        )
    return trained


def _takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each setting; the command gets those given as `flags`, as text."""
    options = {
        field.name: typer.Option(
            help=field.metadata["help"],
            metavar="VALUE",
            show_default=False if field.default is None else _default_text(field.default),
            rich_help_panel="Settings",
        )
        for field in dataclasses.fields(BoltzmannConfig)
    }
    return with_options(command, options, lambda flags: {n: text for n, text in flags.items() if text is not None})


def _default_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


@_takes_settings
def fit(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Binary data: a .npy, .npz, .pt or .csv file, or the name of a data set. A resumed run has its own.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Set the run directory.", show_default="runs/rbm-DATA, with a number if it exists"
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Set the number of passes over the data, instead of --steps.", min=1)
    ] = None,
    minutes: Minutes = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --folder with its own settings.")] = False,
    json: Json = False,
    flags: Mapping[str, str] = {},
) -> None:
    """Fit an RBM, or a Boltzmann machine on any graph, to binary data by maximum likelihood.

    The columns of the data are the visible units. The log-likelihood of training, validation and test data is shown
    while it trains, with log Z by enumeration or by annealing in both directions.
    """
    if resume:
        if folder is None:
            raise typer.BadParameter("it needs the run directory: --folder runs/rbm", param_hint="--resume")
        with usage_errors():
            config = BoltzmannConfig.from_dict(read_run(folder).config).with_texts(flags)
    else:
        if data is None:
            raise typer.BadParameter("give a file such as bits.npy, or a name such as digits", param_hint="DATA")
        with usage_errors():
            config = BoltzmannConfig().with_texts(flags)
        if epochs is not None and "steps" in flags:
            raise typer.BadParameter(f"steps = {config.steps} is given too; give one of them", param_hint="--epochs")
    shown = _JsonLines() if json else Display(stderr=False)
    options: dict[str, Any] = {"epochs": epochs, "minutes": minutes, "resume": resume}
    default = RUNS / f"rbm-{Path(data or '').stem}"
    with free_folder(default) if folder is None else contextlib.nullcontext(folder) as run:
        try:
            fit_boltzmann(data, config, run, callbacks=shown, progress=False, **options)
        except KeyboardInterrupt:
            _stopped("stopped", run)
            raise typer.Exit(130) from None
        except OutOfTimeError as error:
            _stopped(str(error), run)
            raise typer.Exit(NOT_FINISHED) from None


def _stopped(reason: str, folder: Path) -> None:
    typer.echo(f"{reason}; resume with: softspin rbm fit --resume --folder {shlex.quote(str(folder))}", err=True)


class _JsonLines:
    """The lines of the metrics log, and the result, as JSON."""

    def report(self, line: Mapping[str, Any]) -> None:
        say_json(line)

    def finish(self, rows: list[Any], files: list[Path]) -> None:
        say_json({"kind": "result", "rows": [row.to_json() for row in rows], "written": files})


def evaluate(
    model: Place,
    data: Annotated[
        str | None, typer.Option(help="Use other data than the run's: a name or a file.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="Choose the split: train, valid, test, or all.")] = "test",
    temperatures: Temperatures = None,
    chains: Chains = None,
    replica: Replica = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compute the log-likelihood of a Boltzmann machine with error bars."""
    check_split(split, SPLITS)
    trained = _open(model, device, replica)
    found = datasets.load(_data_of(model, data), split=split != "all")
    check_columns(f"'{found.name}'", found.columns, trained.columns, TRAINING)
    rows = found.every_image()[: len(found.test)] if split == "all" else getattr(found, split)
    known = trained.log_z(temperatures=temperatures, chains=chains, seed=seed)
    result = trained.log_likelihood(rows[:], log_z=known)
    if json:
        say_json(
            {
                "split": split, "rows": result.rows, "log_likelihood": result.value,
                "standard_error": result.standard_error, "low": result.lower, "high": result.upper,
                "log_z": known.value, "log_z_low": known.lower, "log_z_high": known.upper,
                "log_z_method": method_text(known, 0),
            }
        )  # fmt: skip
        return
    say(f"{split} log-likelihood {likelihood_texts(result)[0]}")


def _data_of(model: Path, other: str | None) -> str:
    """The data to evaluate on: those given, or those of the run."""
    source = read_run(model).source if other is None and (model / RUN).exists() else other
    if source is None:
        raise ConfigError(f"the data of {model} are not known; give them by --data FILE")
    return source


def sample(
    model: Place,
    n: Annotated[int, typer.Option("-n", help="Set the number of samples.", min=1, max=1_000_000)] = 64,
    out: Annotated[Path, typer.Option(help="Write a .npy array of bits.")] = Path("samples.npy"),
    replica: Replica = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Draw samples of the visible units, as an array (n, visible)."""
    check_ending(out, (".npy",))
    trained = _open(model, device, replica)
    write_array(out, trained.sample(n, seed=seed))
    say(f"{n:,} samples: {out}")


def info(model: Place, json: Json = False) -> None:
    """Show the sizes and the results of a Boltzmann machine."""
    trained = load_boltzmann(model, device="cpu")
    rows = list(trained.result or ())
    if json:
        say_json({"model": trained.shape._asdict(), "result": [row.to_json() for row in rows]})
        return
    say(f"{trained.shape.text}; {trained.replicas} replica{'' if trained.replicas == 1 else 's'}")
    for row in rows:
        say(f"seed {row.seed}: {result_line(row)}")


def convert(
    model: Place,
    out: Annotated[Path, typer.Argument(help="The file to write: .safetensors, or .h5 for rbms.")],
    replica: Replica = None,
) -> None:
    """Convert between run directories, .safetensors files and HDF5 files of the package rbms.

    A .safetensors file has all replicas, a .h5 file one of them.
    """
    check_ending(out, (".safetensors", ".h5", ".hdf5"), "OUT")
    if out.suffix == ".safetensors":
        if replica is not None:
            raise typer.BadParameter("a .safetensors file has all replicas", param_hint="--replica")
        written = load_boltzmann(model, device="cpu").save(out)
    else:
        written = _open(model, "cpu", replica).to_rbms(out)
    say(f"written: {written}")


for command in (fit, evaluate, sample, info, convert):
    app.command(help=paragraphs(command))(command)
