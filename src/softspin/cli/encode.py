"""`softspin encode`: latent bits of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Condition, Data, Device, Json, Replica, Run, Seed, Split, Which
from softspin.cli.runs import (
    check_ending,
    check_not_data,
    choose_replica,
    given_of,
    open_model,
    open_split,
    write_array,
)


def encode(
    run: Run,
    out: Annotated[Path, typer.Option(help="Write this .npy file.")] = Path("bits.npy"),
    data: Data = None,
    condition: Condition = None,
    split: Split = "test",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write the probabilities q(z=1|x) instead of sampled bits.")
    ] = False,
    replica: Replica = None,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Sample the latent bits of each data point from q(z|x), or compute their probabilities: a .npy array."""
    model = open_model(run, which, device)
    check_ending(out, (".npy",))
    check_not_data(out, model, data)
    number = choose_replica(model, replica)
    shown = open_split(model, data, split, seed, condition)
    x, given = shown.test, given_of(model, shown)
    if probabilities:
        z = model.probabilities(x, condition=given, replica=number, seed=seed)
    else:
        z = model.encode(x, condition=given, replica=number, seed=seed).to(torch.uint8)
    write_array(out, z)
    if json:
        say_json({"written": out, "images": z.shape[0], "bits": z.shape[1], "split": split, "replica": number})
    else:
        say(f"{z.shape[0]:,} x {z.shape[1]} {'probabilities of ' if probabilities else ''}bits: {out}")
