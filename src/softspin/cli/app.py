"""The `softspin` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import sys

import typer

from softspin import __version__
from softspin.cli import data
from softspin.cli.demo import demo
from softspin.cli.encode import encode
from softspin.cli.evaluate import evaluate
from softspin.cli.figure import figure
from softspin.cli.grid import grid
from softspin.cli.info import info
from softspin.cli.logz import logz
from softspin.cli.reconstruct import reconstruct
from softspin.cli.sample import sample
from softspin.cli.train import train
from softspin.errors import SoftspinError

app = typer.Typer(
    name="softspin",
    help="Discrete variational autoencoders with relaxed Boltzmann priors.",
    epilog="Exit codes: 0 done, 1 an error (one line says which), 2 wrong usage, 75 out of time, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for title, commands in {
    "Train": (demo, train),
    "Judge a run": (info, evaluate, logz),
    "Use a run": (sample, reconstruct, encode),
    "Reproduce the paper": (grid, figure),
}.items():
    for command in commands:
        app.command(rich_help_panel=title)(command)
app.add_typer(data.app, name="data", rich_help_panel="Data")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"softspin {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Discrete variational autoencoders with relaxed Boltzmann priors."""


def run() -> None:
    """Run the command line: mistakes and disk errors end in one line and exit code 1, not in a traceback."""
    try:
        app()
    except (SoftspinError, OSError) as error:
        typer.secho(f"error: {' '.join(str(error).split())}", fg="red", err=True)
        sys.exit(1)
