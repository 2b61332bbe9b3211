"""`softspin reconstruct`: encode and decode data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Data, Device, Json, Replica, Run, Seed, Split, Which
from softspin.cli.runs import (
    check_ending,
    check_not_data,
    images_of,
    open_data,
    open_model,
    place_in,
    write_array,
)
from softspin.evaluation import pictures


def reconstruct(
    run: Run,
    n: Annotated[int, typer.Option("-n", help="Reconstruct the first n data points of the split.", min=1)] = 40,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a .png (images and reconstructions) or a .npy array.", show_default="RUN/reconstructions.png"
        ),
    ] = None,
    data: Data = None,
    split: Split = "test",
    replica: Replica = 0,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Encode images and decode one posterior sample: pixel probabilities as a picture or an array."""
    model = open_model(run, which, device)
    out = out or place_in(run, "reconstructions.png")
    check_ending(out, (".png", ".npy"))
    check_not_data(out, model, data)
    x = images_of(open_data(model, data), split, seed)[:n]
    if out.suffix == ".png":
        pictures.reconstructions(model.net, x, pictures.picture_shape(model.shape), out, replica=replica, seed=seed)
    else:
        found = model.reconstruct(x, replica=replica, seed=seed)
        write_array(out, found.reshape(len(x), *model.shape))
    if json:
        say_json({"written": out, "images": len(x), "split": split})
    else:
        say(f"{len(x):,} reconstructions: {out}")
