"""The `softspin` command: its subcommands and its error handling."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable

import typer

from softspin import __version__
from softspin.cli import cache, compare, data, rbm
from softspin.cli.console import complain, paragraphs
from softspin.cli.demo import demo
from softspin.cli.encode import encode
from softspin.cli.evaluate import evaluate
from softspin.cli.export import export
from softspin.cli.figure import figure
from softspin.cli.grid import grid
from softspin.cli.info import info
from softspin.cli.listing import runs
from softspin.cli.logz import logz
from softspin.cli.options import NOT_FINISHED
from softspin.cli.playground import playground
from softspin.cli.reconstruct import reconstruct
from softspin.cli.report import report
from softspin.cli.sample import sample
from softspin.cli.slurm import slurm_task
from softspin.cli.sweep import sweep
from softspin.cli.train import train
from softspin.cli.tune import tune
from softspin.compile_cache import ignore_advice
from softspin.errors import OutOfTimeError, RunError, SoftspinError
from softspin.parallel import world

app = typer.Typer(
    name="softspin",
    help="Discrete variational autoencoders with relaxed Boltzmann priors.",
    epilog="Exit codes: 0 success, 1 error (one line on stderr), 2 wrong usage, 75 not finished (run the command "
    "again), 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Train": (demo, train, sweep, tune),
    "Inspect a run": (runs, info, evaluate, logz),
    "Use a run": (sample, reconstruct, encode, playground, export),
    "Reproduce the paper": (grid, figure, report),
}
"""Commands by the group in which the help lists them."""
for title, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=title, help=paragraphs(command))(command)
app.command(hidden=True, help=paragraphs(slurm_task))(slurm_task)
app.add_typer(rbm.app, name="rbm", rich_help_panel="Train")
app.add_typer(compare.app, name="compare", rich_help_panel="Reproduce the paper")
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.add_typer(cache.app, name="cache", rich_help_panel="Data")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"softspin {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Discrete variational autoencoders with relaxed Boltzmann priors."""
    if world().size > 1 and context.invoked_subcommand != "train":
        raise RunError(f"softspin {context.invoked_subcommand} runs in one process; torchrun is for softspin train")


def run() -> None:
    """Run the command line. User errors, a full disk or no memory end in one line and exit code 1, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may have bytes that are not text
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings(), world().quiet():
            warnings.showwarning = _warn
            ignore_advice()
            app()
    except (SoftspinError, OSError, MemoryError, RuntimeError, ImportError) as error:
        line = _one_line(error)
        if line is None:
            raise
        if isinstance(error, OutOfTimeError):
            world().announce(error, lambda: typer.echo(f"{line}; run the same command to resume", err=True))
            sys.exit(NOT_FINISHED)
        world().announce(error, lambda: complain(line))
        sys.exit(1)


def _one_line(error: Exception) -> str | None:
    """The message for the user; None for a bug, which keeps its traceback."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, SoftspinError | OSError) or text.startswith("Symlink loop"):  # a RuntimeError of pathlib
        return text
    if isinstance(error, ImportError) and not (error.name or "").startswith("softspin"):
        # Such as numba with a NumPy that it does not support: the package is there, so it is not a missing extra.
        return f"a package cannot be imported: {text}; reinstall it, in a version that fits the others"
    if isinstance(error, MemoryError) or "allocate" in text:  # torch has a RuntimeError for it
        return f"out of memory ({text}); use fewer samples, chains, bits or replicas, or a smaller width or batch_size"
    return None


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    typer.echo(f"warning: {' '.join(str(message).split())}", err=True)
