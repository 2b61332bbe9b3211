"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="Folder of a run, or a shared model: a folder or a .safetensors file.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.", min=0, max=2**31 - 1)]
Replica = Annotated[int, typer.Option(help="Which model of the run, from 0.", min=0)]
Which = Annotated[str, typer.Option(help="Checkpoint: best (by validation NLL) or last.")]
Split = Annotated[str, typer.Option(help="Part of the data: train, valid, test, or all, in the order of a file.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="Other data than the run's, or the same elsewhere: a name, a .npz file (its parts keep their order) or a "
        ".npy file (shuffled and split).",
        show_default=False,
    ),
]
Temperatures = Annotated[
    int | None, typer.Option(help="Temperatures of the annealing for log Z.", min=1, show_default="the run's")
]
Chains = Annotated[int | None, typer.Option(help="Chains of that annealing.", min=2, show_default="the run's")]

NOT_FINISHED = 75
"""The exit code for "try again later", EX_TEMPFAIL of sysexits.h."""
