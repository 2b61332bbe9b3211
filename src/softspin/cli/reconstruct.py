"""`softspin reconstruct`: encode and decode data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Condition, Data, Device, Json, Replica, Run, Seed, Shape, Split, Which
from softspin.cli.regions import read_region
from softspin.cli.runs import (
    check_ending,
    check_not_data,
    choose_replica,
    encoded_given,
    given_of,
    open_model,
    open_split,
    picture_shape,
    place_in,
    write_array,
)
from softspin.evaluation import pictures
from softspin.trained.arguments import read_mask


def reconstruct(
    run: Run,
    n: Annotated[int, typer.Option("-n", help="Reconstruct the first n data points of the split.", min=1)] = 40,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a .png (images and reconstructions) or a .npy array.",
            show_default="RUN/reconstructions.png; inpainted.png with --mask",
        ),
    ] = None,
    data: Data = None,
    condition: Condition = None,
    split: Split = "test",
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="REGION",
            help="Remove these pixels and sample them given the others: top, bottom, left, right, rows and columns "
            "such as 0:14,0:28, or a .npy file that is True where a pixel is missing.",
            show_default="none",
        ),
    ] = None,
    chain_steps: Annotated[
        int, typer.Option(help="Set the number of steps of the Markov chains that fill in missing pixels.", min=1)
    ] = 100,
    shape: Shape = None,
    replica: Replica = None,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Encode images and decode one posterior sample, or fill in missing pixels: a picture or an array."""
    model = open_model(run, which, device)
    out = out or place_in(run, "reconstructions.png" if mask is None else "inpainted.png")
    check_ending(out, (".png", ".npy"))
    check_not_data(out, model, data)
    number, drawn = choose_replica(model, replica), picture_shape(model, shape)
    shown_data = open_split(model, data, split, seed, condition)
    x, given = shown_data.test[:n], given_of(model, shown_data)
    given = None if given is None else given[:n]
    if mask is not None:
        missing = read_region(mask, model.shape)
        filled = model.inpaint(x, missing, condition=given, steps=chain_steps, replica=number, seed=seed)
        if out.suffix == ".png":
            shown = (model.net.likelihood.shades(one.to(model.net.mean)) for one in (x, filled.flatten(1)))
            pictures.inpainted(next(shown), read_mask(missing, len(x), model.shape), next(shown), drawn, out)
        else:
            write_array(out, filled)
    elif out.suffix == ".png":
        encoded = encoded_given(model, given)
        pictures.reconstructions(model.net, x, drawn, out, replica=number, seed=seed, condition=encoded)
    else:
        write_array(out, model.reconstruct(x, condition=given, replica=number, seed=seed))
    what = "reconstructions" if mask is None else "images with missing pixels filled in"
    if json:
        say_json({"written": out, "images": len(x), "split": split, "replica": number})
    else:
        say(f"{len(x):,} {what}: {out}")
