"""`softspin data`: list, download and verify data sets."""

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

app = typer.Typer(help="List, fetch and verify data sets.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(help="Look only in this directory.", show_default="$SOFTSPIN_DATA, then the cache"),
]


@app.command("list")
def list_sets(json: Json = False) -> None:
    """List the data sets and whether each is available locally."""
    rows = []
    for name in datasets.available():
        try:
            rows.append(_describe(datasets.load(name, download=False)))
        except MissingExtraError as error:
            rows.append({"name": name, "available": False, "reason": str(error)})
        except DataError as error:
            rows.append({"name": name, "available": False, "reason": _reason(name, error)})
    if json:
        say_json(rows)
        return
    columns = [
        (str(row["name"]), str(row.get("images", "-")), str(row.get("source", row.get("reason")))) for row in rows
    ]
    show_table(("name", "images", "what"), columns)
    say("Bars and stripes exist in every size up to 16x16.")
    say("Train on your own data with --data FILE (.npy, .npz, .pt, .csv; shape (images, ...)) or a folder of images.")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data set, such as mnist or omniglot.", show_default=False)],
    json: Json = False,
) -> None:
    """Download a data set into the cache if it is missing, and verify it."""
    _say(datasets.load(name), json)


@app.command()
def verify(
    name: Annotated[
        str, typer.Argument(help="Name of the data set, or a file or folder of images.", show_default=False)
    ],
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Verify the files of a data set against their checksums, without network access."""
    if folder is not None and name not in PUBLIC_SETS:
        raise DataError(f"--folder is for {' and '.join(PUBLIC_SETS)}; '{name}' is not looked for in folders")
    _say(datasets.load(name, folder, download=False), json)


def _say(data: Dataset, json: bool) -> None:
    found = _describe(data)
    if json:
        say_json(found)
    else:
        say(f"{data.name}: {data.source}, {found['images']} images (train/valid/test) of {found['shape']}: verified")
        say(f"fingerprint {data.fingerprint}")


def _describe(data: Dataset) -> dict[str, object]:
    return {
        "name": data.name,
        "available": True,
        "images": "/".join(f"{len(part):,}" for part in (data.train, data.valid, data.test)),
        "shape": "x".join(map(str, data.shape)),
        "binarization": data.binarization,
        "source": data.source,
        "fingerprint": data.fingerprint,
    }


def _reason(name: str, error: DataError) -> str:
    """Why a set is unavailable: missing files can be downloaded, damaged ones are an error."""
    return f"not downloaded; run: softspin data fetch {name}" if "downloading is off" in str(error) else str(error)
