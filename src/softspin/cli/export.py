"""`softspin export`: write a model in a form to share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, say_json
from softspin.cli.options import Json, Replicas, Run, Which
from softspin.cli.runs import open_model, with_replicas
from softspin.formatting import replica_name, result_line


def export(
    run: Run,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write to this directory, or to one .safetensors file.", show_default="RUN-shared, unless --push"
        ),
    ] = None,
    replicas: Replicas = "all",
    license: Annotated[
        str | None,
        typer.Option(help="Name the license of the model, such as apache-2.0.", show_default="none"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME", help="Upload to this repository of the Hugging Face Hub.", show_default=False
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository private if --push creates it.")
    ] = False,
    which: Which = "best",
    json: Json = False,
) -> None:
    """Export a model to share: tensors, metadata, and a model card with its likelihood and provenance."""
    model = with_replicas(open_model(run, which, "cpu"), replicas)
    written, address = [], None
    if out is not None or push is None:
        written = model.save(out or run.with_name(f"{run.stem}-shared"), license=license, overwrite=overwrite)
    if push is not None:
        address = model.push_to_hub(push, private=private or None, license=license)
    if json:
        result = None if model.result is None else [row.to_json() for row in model.result]
        say_json({"written": written, "sent": address, "replicas": model.net.replicas, "result": result})
        return
    for row in model.result or ():
        say(f"{replica_name(row)}: {result_line(row)}")
    if model.result is None:
        say("not evaluated on test data; the model card says so")
    for path in written:
        say(f"written: {path} ({path.stat().st_size:,} bytes)")
    if address is not None:
        say(f"sent: {address}")
