"""`softspin compare`: gradient estimators against the exact gradient, and methods by training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin.cli.console import say, say_json, show_table, warn
from softspin.cli.options import Json, Seed
from softspin.errors import ConfigError, RowsError
from softspin.experiments.cells import Cell, find_table, read_cells
from softspin.experiments.compare import (
    BITS,
    DATA,
    GradientRow,
    compare_gradients,
    read_gradient_rows,
)
from softspin.experiments.curves import collect_curves, merge_curves, read_curves
from softspin.experiments.rows import read_rows
from softspin.experiments.step_times import read_step_times, timed
from softspin.experiments.stored import write_records
from softspin.records import ResultRow
from softspin.report.curves import draw_curves
from softspin.report.estimators import STEPS, Ranking, method_of, rank_methods
from softspin.report.gradients import draw_gradient_rows

COLUMNS = 2
"""Rankings that are drawn: the first structure of a table, for two numbers of samples."""

app = typer.Typer(
    help="Compare gradient estimators with the exact gradient, and methods by training.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    keep: Annotated[bool, typer.Option("--keep", help="Keep the rows of other methods that are in the file.")] = False,
    json: Json = False,
) -> None:
    """Measure bias and variance of gradient estimators on small models, where the exact gradient is known.

    Each method is measured with 1 and 2 groups of latent bits and with K = 1 and 5 samples, at initialization and after
    training. The table shows the gradient of the encoder, relative to the exact one.
    """
    _check_figure(figure)
    if methods is not None and not methods.strip():
        raise ConfigError(f"--methods '{methods}' names no method; give names, or leave it out to compare all")
    if stored:
        for option, given in {"--methods": methods is not None, "--keep": keep}.items():
            if given:
                raise ConfigError(f"--stored measures nothing, so {option} has no effect; leave one of them out")
        found = read_gradient_rows(rows)
    else:
        if rows.is_dir():
            raise ConfigError(f"--rows {rows} is a directory; give the name of a file")
        if keep and not rows.exists():
            raise ConfigError(f"--keep: there is no file {rows} whose rows could be kept; leave out --keep")
        # Read before the measurement, which takes minutes.
        others = _comparable(read_gradient_rows(rows), rows, bits, steps) if keep else []
        chosen = [name.strip() for name in methods.split(",")] if methods else []
        found = compare_gradients(
            chosen, draws=draws, steps=steps, bits=bits, seed=seed, listener=None if json else _progress
        )
        if keep:
            new = {row.method for row in found}
            found = [row for row in others if row.method not in new] + found
        write_records(rows, found)
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


def _comparable(kept: list[GradientRow], rows: Path, bits: int, steps: int) -> list[GradientRow]:
    """The kept rows, if they are of the models that are measured now."""
    for row in kept:
        if row.data != DATA or row.bits != bits or (row.stage == "trained" and row.steps != steps):
            trained = f", after {row.steps} steps" if row.stage == "trained" else ""
            raise ConfigError(
                f"--keep: {rows} has rows of another model: {row.data}, {row.bits} bits{trained}; choose the same "
                "--bits and --steps, or another file"
            )
    return kept


@app.command()
def training(
    table: Annotated[str, typer.Argument(help="A TOML file of cells, or its name in the folder experiments.")],
    folder: Annotated[Path, typer.Option(help="Look for run directories here.")] = Path("runs/grid"),
    rows: Annotated[
        Path | None,
        typer.Option(help="Read result rows from this file.", show_default="rows.jsonl next to the TOML file"),
    ] = None,
    curves: Annotated[
        Path | None,
        typer.Option(
            help="Keep validation curves in this file; those of new runs are added.",
            show_default="TABLE_curves.jsonl next to the TOML file",
        ),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            help="Take times of steps from this file instead of wall times of the runs.",
            show_default="TABLE_times.jsonl next to the TOML file, if it exists",
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Collect no wall times: the new runs shared a device, or were paused.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Compare runs of this many training steps.", min=1)] = STEPS,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the curves as PNG or SVG into this file.", show_default="no figure"),
    ] = None,
    json: Json = False,
) -> None:
    """Compare the methods of a table that softspin grid has trained: test NLL, time, and validation during training.

    The validations of finished runs are collected from their directories, so that they can be drawn without them.
    """
    _check_figure(figure)
    path = find_table(table)
    cells = read_cells(path)
    for name, given in {"rows": rows, "times": times}.items():
        if given is not None and not given.exists():
            raise RowsError(f"{name} {given} cannot be read: there is no such file")
    results = read_rows(rows or path.with_name("rows.jsonl"), warn)
    rankings = rank_methods(results, cells, steps)
    stored = curves or path.with_name(f"{path.stem}_curves.jsonl")
    own = read_curves(stored)
    if new := collect_curves(cells, folder, shared):
        write_records(stored, own := merge_curves(own, new))
    if json:
        say_json([_ranking_json(ranking) for ranking in rankings])
    else:
        _show_rankings(rankings, cells, results, steps)
        say(f"runs of {steps:,} steps; collected curves: {len(new)}, stored: {len(own)} in {stored}")
    if figure is not None:  # last, because there may be no curves
        own = timed(own, read_step_times(times or path.with_name(f"{path.stem}_times.jsonl")))
        draw_curves(rankings[:COLUMNS], own, figure, steps)


def _show_rankings(
    rankings: Sequence[Ranking], cells: Sequence[Cell], results: Sequence[ResultRow], steps: int
) -> None:
    for ranking in rankings:
        say(ranking.title)
        show_table(["method", "seeds", "NLL", "sd", "SE from the best"], _ranking_lines(ranking))
    if not rankings:
        known = {cell.id for cell in cells}
        lengths = [str(one) for one in sorted({row.steps for row in results if row.cell in known})]
        others = f"with --steps, there are results of {', '.join(lengths)}" if lengths else "softspin grid makes them"
        say(f"no result of {steps} steps; {others}")


def _check_figure(figure: Path | None) -> None:
    if figure is not None and figure.suffix not in (".png", ".svg"):
        raise ConfigError(f"--figure {figure} has no known format; its name must end in .png or .svg")


def _ranking_lines(ranking: Ranking) -> list[list[str]]:
    found = []
    for one in ranking.groups:
        spread = "-" if one.std is None else f"{one.std:.2f}"
        apart = "-" if (z := ranking.apart(one)) is None else f"{z:.1f}"
        found.append([method_of(one), str(len(one.rows)), f"{one.mean:.2f}", spread, apart])
    return found


def _ranking_json(ranking: Ranking) -> dict[str, Any]:
    methods = [
        {"method": method_of(one), "seeds": list(one.seeds), "nll": one.mean, "std": one.std,
         "standard_errors_from_the_best": ranking.apart(one)}
        for one in ranking.groups
    ]  # fmt: skip
    own = {"data": ranking.data, "structure": ranking.structure, "importance_samples": ranking.samples}
    return own | {"variant": ranking.variant, "methods": methods}


def _progress(row: GradientRow) -> None:
    typer.echo(f"{row.method}, {row.groups} groups, K = {row.samples}, {row.stage}", err=True)


def _texts(row: GradientRow) -> list[str]:
    own = row.encoder
    return [
        row.method, str(row.groups), str(row.samples), row.stage, f"{own.bias:.4f}", f"{own.error:.4f}",
        f"{own.variance:.3g}", str(row.evaluations), f"{row.cost:.3g}",
    ]  # fmt: skip
