"""Checksums of data files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from softspin.errors import DataError

_CHUNK = 1 << 20


def digest(path: Path, kind: str) -> str:
    """Hex digest of a file.

    A Git blob id is the SHA-1 of a header with the length, followed by the content. For a file that is published in a
    Git repository, it is often the only strong digest known.

    Args:
        path: The file.
        kind: "sha256", "md5" or "git-blob".

    Returns:
        The digest in hexadecimal digits.
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
    """Raise unless a file has all expected digests.

    Args:
        path: The file.
        expected: Digests by kind.
        hint: What to do; the end of the message.

    Raises:
        DataError: A digest differs.
    """
    for kind, wanted in expected.items():
        found = digest(path, kind)
        if found != wanted:
            raise DataError(
                f"checksum mismatch: {path.name} should have {kind} {wanted}, "
                f"found {found} in {path.stat().st_size:,} bytes; {hint}"
            )
