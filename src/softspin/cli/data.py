"""`softspin data`: which data sets there are, fetch one, check that it is the right one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin import data as datasets
from softspin.cli.console import say, say_json, show_table
from softspin.cli.options import Json
from softspin.data import Dataset
from softspin.data.sources import PUBLIC_SETS
from softspin.errors import DataError, MissingExtraError

app = typer.Typer(help="Data sets: list, fetch, verify.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(help="Look in this folder alone.", show_default="$SOFTSPIN_DATA, then the cache"),
]


@app.command("list")
def list_sets(json: Json = False) -> None:
    """List the data sets by name, and whether each is here."""
    rows = []
    for name in datasets.available():
        try:
            rows.append(_describe(datasets.load(name, download=False)))
        except MissingExtraError as error:
            rows.append({"name": name, "here": False, "why": str(error)})
        except DataError as error:
            rows.append({"name": name, "here": False, "why": _why(name, error)})
    if json:
        say_json(rows)
        return
    columns = [(str(row["name"]), str(row.get("images", "-")), str(row.get("source", row.get("why")))) for row in rows]
    show_table(("name", "images", "what"), columns)
    say("Bars and stripes come in every size up to 16x16. Own data: --data FILE.npy or FILE.npz, shape (images, ...).")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist, omniglot, or another name from the list.", show_default=False)],
    json: Json = False,
) -> None:
    """Download a data set into the cache, unless it is here, and check it."""
    _say(datasets.load(name), json)


@app.command()
def verify(
    name: Annotated[str, typer.Argument(help="A name, a .npy or a .npz file.", show_default=False)],
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Check the files of a data set against their digests, without network."""
    if folder is not None and name not in PUBLIC_SETS:
        raise DataError(f"--folder is for {' and '.join(PUBLIC_SETS)}; '{name}' is not looked for in folders")
    _say(datasets.load(name, folder, download=False), json)


def _say(data: Dataset, json: bool) -> None:
    about = _describe(data)
    if json:
        say_json(about)
    else:
        say(f"{data.name}: {data.source}, {about['images']} images (train/valid/test) of {about['shape']}, all right")
        say(f"fingerprint {data.fingerprint}")


def _describe(data: Dataset) -> dict[str, object]:
    return {
        "name": data.name,
        "here": True,
        "images": "/".join(f"{len(part):,}" for part in (data.train, data.valid, data.test)),
        "shape": "x".join(map(str, data.shape)),
        "binarization": data.binarization,
        "source": data.source,
        "fingerprint": data.fingerprint,
    }


def _why(name: str, error: DataError) -> str:
    """A missing set is no fault, it can be fetched; a damaged one is."""
    return f"not here; softspin data fetch {name}" if "downloading is off" in str(error) else str(error)
