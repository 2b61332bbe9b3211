"""The public data sets: their files, addresses and checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softspin.data import readers
from softspin.data.dataset import Dataset


@dataclass(frozen=True)
class KnownFile:
    """A published file."""

    name: str
    digests: Mapping[str, str]
    """Digests by kind, see :func:`checksums.digest`. A file without digests is checked by its reader."""
    addresses: tuple[str, ...] = ()
    """URLs of the file."""
    most_bytes: int = 100_000_000
    """Maximum size of a download."""


@dataclass(frozen=True)
class Copy:
    """One format of a data set: its files, and the function that reads them."""

    files: tuple[KnownFile, ...]
    read: Callable[[Sequence[Path]], Dataset]


@dataclass(frozen=True)
class PublicSet:
    """A data set that is read from files, which may be downloaded."""

    name: str
    copies: tuple[Copy, ...]
    """Formats in order of preference within a folder."""
    published: Copy
    """The format that can be downloaded."""
    keep: Callable[[Sequence[Path], Path], Path]
    """Converts the downloaded files to the one file for the cache, in the given folder."""
    prepare: Callable[[], None] = lambda: None
    """Raises if the downloaded files could not be read."""

    def wanted(self) -> str:
        """The files of each copy, as text for messages."""
        return ", or ".join(" + ".join(file.name for file in copy.files) for copy in self.copies)


def mnist_set(texts: tuple[KnownFile, KnownFile, KnownFile], pixels_sha256: str) -> PublicSet:
    """Binarized MNIST as three text files, or as one packed file made from them."""
    compact_name = "binarized_mnist.npz"

    def read_compact(paths: Sequence[Path]) -> Dataset:
        return readers.binarized_mnist(readers.read_packed(paths[0], pixels_sha256))

    def read_texts(paths: Sequence[Path]) -> Dataset:
        return readers.binarized_mnist(readers.read_amat(paths))

    def keep(paths: Sequence[Path], folder: Path) -> Path:
        readers.pack(readers.read_amat(paths), folder / compact_name)
        return folder / compact_name

    published = Copy(texts, read_texts)
    compact = Copy((KnownFile(compact_name, {}),), read_compact)
    return PublicSet("mnist", (compact, published), published, keep)


def omniglot_set(original: KnownFile, reconstruction: KnownFile) -> PublicSet:
    """OMNIGLOT in 28 x 28: the original, preferred if a folder has both, or its reconstruction."""
    published = Copy((original,), lambda paths: readers.read_chardata(paths[0]))
    rebuilt = Copy((reconstruction,), lambda paths: readers.read_omniglot_npz(paths[0]))
    return PublicSet("omniglot", (published, rebuilt), published, lambda paths, folder: paths[0], readers.require_scipy)


def _mnist_text(part: str, size: int, sha256: str) -> KnownFile:
    name = f"binarized_mnist_{part}.amat"
    addresses = (
        f"http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/{name}",
        f"https://github.com/riannevdberg/sylvester-flows/raw/master/data/MNIST_static/{name}",
    )
    return KnownFile(name, {"sha256": sha256}, addresses, size)


MNIST = mnist_set(
    (
        _mnist_text("train", 78_400_000, "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d"),
        _mnist_text("valid", 15_680_000, "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2"),
        _mnist_text("test", 15_680_000, "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c"),
    ),
    pixels_sha256="c462f82a020638a4d5d8d44e4c83242ee0145ee1d125869d0e030c35011837e6",
)

OMNIGLOT = omniglot_set(
    # No sha256 of this file is published; its md5 and its Git blob id (a sha1) are.
    KnownFile(
        "chardata.mat",
        {"md5": "21ecaf34373511aa7691cf2e0802aa3d", "git-blob": "016a3536ffe5e1d38e42563a18d7a78bfaf643ec"},
        ("https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT/chardata.mat",),
    ),
    KnownFile("omniglot.npz", {"sha256": "0001d8dc68b9059b68906008b21172ea686d5d462db2421e2da8a929cdb92143"}),
)

PUBLIC_SETS = {source.name: source for source in (MNIST, OMNIGLOT)}
