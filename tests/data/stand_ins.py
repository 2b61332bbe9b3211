"""Small replacements for tests: binarized MNIST, and the server that publishes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from softspin.data.sources import PUBLIC_SETS, KnownFile, mnist_set


def as_amat(bits: NDArray[np.uint8]) -> bytes:
    """The published text format: values separated by single spaces, one image per line."""
    text = np.full((len(bits), 2 * bits.shape[1]), ord(" "), dtype=np.uint8)
    text[:, ::2] = bits + ord("0")
    text[:, -1] = ord("\n")
    return text.tobytes()


@dataclass
class Server:
    """Serves ``content`` by path; of the paths in ``cut`` only half is sent. Records the requests."""

    address: str
    content: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)


@dataclass
class SmallMnist:
    """Three tables of random bits in place of binarized MNIST, with their digests."""

    tables: dict[str, NDArray[np.uint8]]
    texts: dict[str, bytes]
    pixels_sha256: str

    def install(self, monkeypatch: pytest.MonkeyPatch, *bases: str) -> None:
        """Make ``load("mnist")`` return these tables, published under the given addresses."""
        files = tuple(
            KnownFile(
                name,
                {"sha256": hashlib.sha256(text).hexdigest()},
                tuple(f"{base}/{name}" for base in bases),
                most_bytes=len(text),
            )
            for name, text in self.texts.items()
        )
        monkeypatch.setitem(PUBLIC_SETS, "mnist", mnist_set((files[0], files[1], files[2]), self.pixels_sha256))

    def serve(self, server: Server, prefix: str = "") -> None:
        server.content.update({f"{prefix}/{name}": text for name, text in self.texts.items()})

    def write_texts(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            (folder / name).write_bytes(text)

    def write_compact(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "binarized_mnist.npz"
        np.savez(path, **{part: np.packbits(table, axis=1) for part, table in self.tables.items()})  # type: ignore[arg-type]
        return path
