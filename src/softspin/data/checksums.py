"""Is this the file we think it is?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from softspin.errors import DataError

_CHUNK = 1 << 20


def digest(path: Path, kind: str) -> str:
    """Hex digest of a file; kind is "sha256", "md5" or "git-blob".

    A Git blob id is the sha1 of the content behind a header that holds its length: for files that somebody
    else published in a repository, it is often the only strong digest known.
    """
    if kind == "git-blob":
        state = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    else:
        state = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def verify(path: Path, expected: Mapping[str, str], hint: str) -> None:
    """Raise DataError, with ``hint`` as its last words, unless the file has all the digests expected."""
    for kind, wanted in expected.items():
        found = digest(path, kind)
        if found != wanted:
            raise DataError(
                f"checksum mismatch: {path.name} should have {kind} {wanted}, "
                f"found {found} in {path.stat().st_size:,} bytes; {hint}"
            )
