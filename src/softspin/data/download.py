"""One file from the network, or an error: never half a file."""

from __future__ import annotations

import http.client
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from softspin.data.checksums import verify
from softspin.data.sources import KnownFile
from softspin.errors import DataError

_CHUNK = 1 << 18
_TIMEOUT_S = 30.0


def download(file: KnownFile, target: Path) -> None:
    """Fetch a file to ``target`` from the first of its addresses that has the right bytes.

    An address that is down and one that sends something else (a login page, half of the file) are treated
    alike: the next one is tried, and the error at the end names what each of them did.
    """
    failures = []
    for address in file.addresses:
        try:
            _stream(address, file, target)
            verify(target, file.digests, "the download is corrupt or cut short")
        except (OSError, http.client.HTTPException, DataError) as error:
            failures.append(f"{address}: {error}")
        else:
            return
    raise DataError(f"downloading {file.name} failed: {'; '.join(failures)}")


def _stream(address: str, file: KnownFile, target: Path) -> None:
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response, target.open("wb") as out:
        length = response.headers.get("Content-Length")
        received = 0
        with _progress(file.name, int(length) if length and length.isdigit() else None) as advance:
            while chunk := response.read(_CHUNK):
                received += len(chunk)
                if received > file.most_bytes:
                    raise DataError(f"more than the expected {file.most_bytes:,} bytes")
                out.write(chunk)
                advance(len(chunk))


@contextmanager
def _progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, for a person: none where nobody looks, or where rich is missing."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
