"""`softspin compare`: gradient estimators against the exact gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json, show_table
from softspin.cli.options import Json, Seed
from softspin.errors import ConfigError
from softspin.experiments.compare import (
    BITS,
    DATA,
    GradientRow,
    compare_gradients,
    read_gradient_rows,
    write_gradient_rows,
)
from softspin.report.gradients import draw_gradient_rows

app = typer.Typer(
    help="Compare gradient estimators with the exact gradient.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _compare() -> None:
    """Compare gradient estimators with the exact gradient."""


@app.command()
def gradients(
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Compare these methods, separated by commas.", show_default="all"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Draw this many gradients for each row.", min=100)] = 10_000,
    steps: Annotated[
        int, typer.Option(help="Train the model for this many steps before the second measurement.", min=1)
    ] = 200,
    bits: Annotated[int, typer.Option(help="Set the number of latent bits, at most 12.", min=2)] = BITS,
    seed: Seed = 0,
    rows: Annotated[Path, typer.Option(help="Write the rows to this file, as JSON lines; it is replaced.")] = Path(
        "gradients.jsonl"
    ),
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the rows as PNG or SVG into this file.", show_default="no figure"),
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Measure nothing; show and draw the rows of the file.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure bias and variance of gradient estimators on small models, where the exact gradient is known.

    Each method is measured with 1 and 2 groups of latent bits and with K = 1 and 5 samples, at initialization and after
    training. The table shows the gradient of the encoder, relative to the exact one.
    """
    if figure is not None and figure.suffix not in (".png", ".svg"):
        raise ConfigError(f"--figure {figure} has no known format; its name must end in .png or .svg")
    if stored:
        found = read_gradient_rows(rows)
    else:
        chosen = [name.strip() for name in methods.split(",")] if methods else []
        found = compare_gradients(
            chosen, draws=draws, steps=steps, bits=bits, seed=seed, listener=None if json else _progress
        )
        write_gradient_rows(rows, found)
    if figure is not None:
        draw_gradient_rows(found, figure)
    if json:
        say_json([row.to_json() for row in found])
        return
    show_table(
        ["method", "groups", "K", "stage", "bias", "+-", "variance", "evaluations", "variance x evaluations"],
        [_texts(row) for row in found],
    )
    say(f"data: {DATA}" if not found else f"data: {found[0].data}, {found[0].bits} bits; rows: {rows}")


def _progress(row: GradientRow) -> None:
    typer.echo(f"{row.method}, {row.groups} groups, K = {row.samples}, {row.stage}", err=True)


def _texts(row: GradientRow) -> list[str]:
    own = row.encoder
    return [
        row.method, str(row.groups), str(row.samples), row.stage, f"{own.bias:.4f}", f"{own.error:.4f}",
        f"{own.variance:.3g}", str(row.evaluations), f"{row.cost:.3g}",
    ]  # fmt: skip
