"""Download of one file, verified by its checksum."""

from __future__ import annotations

import http.client
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from softspin.data.checksums import verify
from softspin.data.sources import KnownFile
from softspin.errors import DataError

_CHUNK = 1 << 18
_TIMEOUT_S = 30.0


def download(file: KnownFile, target: Path) -> None:
    """Download a file from the first of its addresses that sends the right content.

    If an address is unreachable or sends something else (a login page, a truncated file), the next one is tried.

    Args:
        file: Name, digests and addresses of the file.
        target: Where to write it.

    Raises:
        DataError: All addresses failed; the message has the host and the reason for each.
    """
    failures = []
    for address in file.addresses:
        try:
            _stream(address, file, target)
            verify(target, file.digests, "the download is corrupt or truncated")
        except (OSError, http.client.HTTPException, DataError) as error:
            failures.append(f"{urlsplit(address).netloc}: {error}")
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
    """Progress bar on stderr; none if stderr is not a terminal or rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
