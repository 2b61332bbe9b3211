"""The `softspin` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import sys

import typer

from softspin import __version__
from softspin.cli.demo import demo
from softspin.errors import SoftspinError

app = typer.Typer(
    name="softspin",
    help="Discrete variational autoencoders with relaxed Boltzmann priors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"softspin {__version__}")
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show it.")) -> None:
    """Discrete variational autoencoders with relaxed Boltzmann priors."""


def run() -> None:
    """Run the command line: mistakes and disk errors end in one line and exit code 2, not in a traceback."""
    try:
        app()
    except (SoftspinError, OSError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
