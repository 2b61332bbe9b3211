"""`softspin encode`: latent bits of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Data, Device, Json, Replica, Run, Seed, Split, Which
from softspin.cli.runs import check_ending, check_not_data, open_model, open_split, write_array


def encode(
    run: Run,
    out: Annotated[Path, typer.Option(help="Write this .npy file.")] = Path("bits.npy"),
    data: Data = None,
    split: Split = "test",
    replica: Replica = 0,
    seed: Seed = 0,
    which: Which = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Sample the latent bits of each data point from q(z|x), and write them as a .npy array (images, bits)."""
    model = open_model(run, which, device)
    check_ending(out, (".npy",))
    check_not_data(out, model, data)
    z = model.encode(open_split(model, data, split, seed).test, replica=replica, seed=seed)
    write_array(out, z.to(torch.uint8))
    if json:
        say_json({"written": out, "images": z.shape[0], "bits": z.shape[1], "split": split})
    else:
        say(f"{z.shape[0]:,} x {z.shape[1]} bits: {out}")
