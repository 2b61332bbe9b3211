"""`softspin playground`: a run's model as a page that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softspin import files
from softspin.cli.console import say, say_json
from softspin.cli.options import Data, Json, Run
from softspin.cli.runs import check_ending, choose_replica, given_of, open_data, open_model, place_in
from softspin.data.mapped import Table, table_chunks
from softspin.errors import ConfigError, RunError
from softspin.playground.export import spread
from softspin.playground.page import render
from softspin.playground.payload import MAX_BYTES, payload
from softspin.playground.stored import migrated, read_data

IMAGES = 24
"""Default number of test images on a page."""
MEGABYTE = 1_000_000


def playground(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="Write the page to this HTML file.", show_default="RUN/playground.html")
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Include this many test images.", min=1, max=200, show_default=str(IMAGES))
    ] = None,
    data: Data = None,
    replica: Annotated[
        str | None,
        typer.Option(
            help="Include only this replica: a number from 0, or best (by validation NLL).",
            show_default="all, lowest validation NLL first",
        ),
    ] = None,
    max_mb: Annotated[
        int, typer.Option(help="Include replicas up to this many megabytes, at least one.", min=1, max=1000)
    ] = MAX_BYTES // MEGABYTE,
    json: Json = False,
) -> None:
    """Write an HTML page that runs the model in a browser: draw, flip bits, sample. It needs no server or network.

    The page holds encoder, decoder and prior of the best checkpoint. Open it from disk. If RUN is a page that an older
    softspin wrote (.html), it is rewritten with the present controls; its model is not changed.
    """
    out = out or (run if run.suffix == ".html" else place_in(run, "playground.html"))
    check_ending(out, (".html",))
    if run.suffix == ".html":
        if any(one is not None for one in (images, replica, data)):
            raise ConfigError("--images, --replica and --data need the run of the model; a page has its own")
        content = _read_page(run)
    else:
        content = _collect(run, images or IMAGES, data, replica, max_mb * MEGABYTE)
    size = _write(out, content)
    numbers = [one["number"] for one in content["replicas"]]
    if json:
        say_json({"written": out, "bytes": size, "replicas": numbers})
        return
    say(f"{size / MEGABYTE:.1f} MB: {out}; open it in a browser")
    if len(numbers) > 1:
        say(f"replicas to choose from: {', '.join(map(str, numbers))} (lowest validation NLL first)")
    if replica is None and content.get("trained", 0) > len(numbers):
        say(f"{content['trained'] - len(numbers)} of {content['trained']} replicas are left out; see --max-mb")


def write_page(run: Path, out: Path) -> int:
    """Write the page of a run's model.

    Args:
        run: Run directory, or a shared model.
        out: Path of the page.

    Returns:
        Its size in bytes.
    """
    return _write(out, _collect(run, IMAGES, None, None, MAX_BYTES))


def _collect(run: Path, count: int, data: str | None, replica: str | None, max_bytes: int) -> dict[str, Any]:
    model = open_model(run, device="cpu")
    shown = open_data(model, data)
    assert model.metadata is not None
    some = list(spread(len(shown.test), count))
    # Only then is it the test set of this training; and the sets of a small data set may have the same images.
    unseen = shown.fingerprint == model.metadata.data.fingerprint and not _share_rows(shown.train, shown.test[some])
    given = given_of(model, shown)
    number = None if replica is None else choose_replica(model, replica)
    options: dict[str, Any] = {"max_bytes": max_bytes, "unseen": unseen}
    options["condition"] = None if given is None else given[some]
    return payload(model, shown.test[some], replica=number, **options)


def _share_rows(table: Table, rows: Table) -> bool:
    """Whether any of the rows is one of the table."""
    wanted = {row.numpy().tobytes() for row in rows[:]}
    return any(row.tobytes() in wanted for some in table_chunks(table) for row in some.cpu().numpy())


def _read_page(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"the page {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return migrated(read_data(text))


def _write(out: Path, content: dict[str, Any]) -> int:
    text = render(content)
    files.write_text(out, text, parents=True)
    return len(text.encode())
