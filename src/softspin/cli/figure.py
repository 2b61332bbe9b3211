"""`softspin figure`: the paper's figures, from stored arrays or recomputed."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from softspin.cli.console import say, say_json, warn_of_rejection
from softspin.cli.options import NOT_FINISHED, Device, Json
from softspin.errors import unknown_name
from softspin.experiments.figures import NAMES, TRAINED, arrays, one_bit, training
from softspin.report.figures import caption, draw


def figure(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"{', '.join(NAMES)}, or all.", show_default=False)
    ],
    compute: Annotated[bool, typer.Option("--compute", help="Recompute the arrays before drawing.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Set the number of training steps for fig2a, fig2b and fig2c.",
            min=1,
            show_default=f"{training.STEPS}, the paper's",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Stop training after this many minutes with a partial result and exit code 75.",
            show_default="no limit",
        ),
    ] = None,
    device: Device = "auto",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting of the training; repeatable.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--arrays",
            help="Read and write arrays in this directory.",
            show_default=f"{arrays.COMPUTED}, else those of the package",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Write pictures to this directory.")] = Path("docs/figures"),
    json: Json = False,
) -> None:
    """Draw figures of the paper as PNG and SVG from stored arrays; --compute recomputes the arrays first.

    fig1 and appendix take seconds to compute. fig2a, fig2b and fig2c train models; given together, they share one
    training. Deviations from the paper, such as fewer steps, are stated in the picture.
    """
    chosen = _chosen(names)
    for option, given in {"--steps": steps, "--minutes": minutes, "--set": sets}.items():
        if given is not None and not compute:
            raise typer.BadParameter("this option needs --compute", param_hint=option)
    ending = "done"
    if compute:
        warn_of_rejection()
        command = f"softspin {shlex.join(sys.argv[1:])}"
        for name in (name for name in chosen if name not in TRAINED):
            _compute_one_bit(name, source or arrays.COMPUTED, command)
        trained = [name for name in chosen if name in TRAINED]
        if trained:
            ending = training.compute(
                trained, source or arrays.COMPUTED, command=command, steps=steps or training.STEPS, device=device,
                minutes=math.inf if minutes is None else minutes, settings=sets or [],
                say=(lambda text: None) if json else say,
            )  # fmt: skip
    written = {name: draw(name, source, out) for name in chosen}
    if json:
        say_json([_info(name, source, paths) for name, paths in written.items()])
    else:
        for paths in written.values():
            say(f"written: {', '.join(map(str, paths))}")
    if ending != "done":
        raise typer.Exit(130 if ending == "interrupted" else NOT_FINISHED)


def _info(name: str, source: Path | None, paths: list[Path]) -> dict[str, Any]:
    found = arrays.load(source, name)
    return {"figure": name, "written": paths, "caption": caption(found), "meta": found.meta}


def _chosen(names: list[str]) -> list[str]:
    """In the paper's order, each once."""
    for name in names:
        if name not in (*NAMES, "all"):
            raise unknown_name("figure", name, (*NAMES, "all"))
    return [name for name in NAMES if name in names or "all" in names]


def _compute_one_bit(name: str, folder: Path, command: str) -> None:
    config: dict[str, object]
    if name == "fig1":
        values, config = one_bit.inverse_cdfs(), {"betas": one_bit.INVERSE_CDFS, "points": one_bit.POINTS}
    else:
        values, config = one_bit.closeness(), {"betas": one_bit.CLOSENESS, "draws": one_bit.DRAWS, "seed": 0}
    arrays.save(folder, values, arrays.metadata(name, command, torch.device("cpu"), {"q": one_bit.Q, **config}))
