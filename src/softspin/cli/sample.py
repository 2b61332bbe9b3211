"""`softspin sample`: samples of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Device, Given, Json, Replica, Run, Seed, Shape, Which
from softspin.cli.regions import read_clamp, read_values
from softspin.cli.runs import (
    check_ending,
    check_not_data,
    choose_replica,
    open_model,
    picture_shape,
    place_in,
    write_array,
)
from softspin.evaluation import pictures
from softspin.trained.given import read_given


def sample(
    run: Run,
    n: Annotated[int, typer.Option("-n", help="Set the number of samples.", min=1, max=1_000_000)] = 64,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a .png grid of images or a .npy array.",
            show_default="RUN/samples.png; clamped.png with --clamp",
        ),
    ] = None,
    clamp: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT=VALUE,...", help="Clamp latent bits and sample the others given them.", show_default="none"
        ),
    ] = None,
    condition: Given = None,
    draw: Annotated[
        bool | None,
        typer.Option(
            "--draw/--mean",
            help="Write data drawn from the likelihood, or its means, to a .npy file; a .png shows means.",
            show_default="--draw, but --mean for binary data",
        ),
    ] = None,
    shape: Shape = None,
    replica: Replica = None,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Sample the prior and decode: pixel probabilities, or data, as a picture or an array (n, *data shape)."""
    model = open_model(run, which, device)
    out = out or place_in(run, "samples.png" if clamp is None else "clamped.png")
    check_ending(out, (".png", ".npy"))
    check_not_data(out, model)
    number, drawn = choose_replica(model, replica), picture_shape(model, shape)
    clamped, given = read_clamp(clamp), read_values(condition, model.class_names)
    if out.suffix == ".png":
        z = model.sample_bits(n, condition=given, clamp=clamped, replica=number, seed=seed)
        states = z.expand(model.net.replicas, *z.shape)
        pictures.samples(model.net, states, drawn, out, replica=number, condition=read_given(model.net, given, n))
    else:
        write_array(out, model.sample(n, condition=given, draw=draw, clamp=clamped, replica=number, seed=seed))
    if json:
        say_json({"written": out, "samples": n, "seed": seed, "replica": number})
    else:
        say(f"{n:,} samples: {out}")
