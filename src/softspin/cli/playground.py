"""`softspin playground`: a run's model as a page that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Data, Json, Replica, Run
from softspin.cli.runs import check_ending, choose_replica, open_data, open_model, place_in, write_text
from softspin.playground.page import page

IMAGES = 24
"""Default number of test images on a page."""


def playground(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="Write the page to this HTML file.", show_default="RUN/playground.html")
    ] = None,
    images: Annotated[int, typer.Option(help="Include this many test images.", min=1, max=200)] = IMAGES,
    data: Data = None,
    replica: Replica = None,
    json: Json = False,
) -> None:
    """Write an HTML page that runs the model in a browser: draw, flip bits, sample. It needs no server or network.

    The page holds encoder, decoder and RBM of the best checkpoint. Open it from disk.
    """
    out = out or place_in(run, "playground.html")
    check_ending(out, (".html",))
    size, number = write_page(run, out, images, data, replica)
    if json:
        say_json({"written": out, "bytes": size, "replica": number})
    else:
        say(f"{size / 1e6:.1f} MB: {out}; open it in a browser")


def write_page(
    run: Path, out: Path, images: int = IMAGES, data: str | None = None, replica: str | None = None
) -> tuple[int, int]:
    """Write the page of a run's model; returns how many bytes it has, and the replica."""
    model = open_model(run, device="cpu")
    shown = open_data(model, data)
    assert model.metadata is not None
    unseen = shown.fingerprint == model.metadata.data.fingerprint  # only then is it the test set of this training
    number = choose_replica(model, replica)
    text = page(model, shown.test, replica=number, count=images, unseen=unseen)
    write_text(out, text)
    return len(text.encode()), number
