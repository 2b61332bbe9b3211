"""Files of a run that are sent between machines without a common folder.

A receiver always holds a complete checkpoint, or none. Tensor files have unique names and are never overwritten, so
they are written first, and the manifests that name them last: `best` before `last`, as training writes them.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from pathlib import Path

from softspin import files
from softspin.errors import RunError

Contents = dict[str, bytes]
"""Contents of files by relative path, in the order in which they are to be written."""

MANIFESTS = ("best.json", "last.json")
"""Manifests of checkpoints, in the order in which they are written."""
LOCKS = ("lock", "lock.claim")
"""Lock of a run directory, which belongs to a machine; its module imports torch, which a task does not need."""
_SAVED = re.compile(r"\w+-[0-9a-f]{16}\.(safetensors|json)")
"""Tensors of a checkpoint, or its manifest before it gets its name."""
_TOKEN = ".shared-"


class ChangedFiles:
    """Finds what has changed in a run directory since it was last read.

    Args:
        folder: Run directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifests: Contents = {}
        self._seen: dict[str, tuple[int, int]] = {}

    def read(self, *, final: bool = False) -> Contents:
        """Read the files that have changed.

        Args:
            final: Whether to read them even if there is no new checkpoint.

        Returns:
            Their contents; empty if there is no new checkpoint and `final` is false.
        """
        manifests = {}
        for name in MANIFESTS:
            with contextlib.suppress(FileNotFoundError):
                manifests[name] = (self.folder / name).read_bytes()
        if manifests == self._manifests and not final:
            return {}
        tensors = {_tensors(content) for content in manifests.values()}
        seen, changed = dict(self._seen), {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name in (*LOCKS, *MANIFESTS) or path.name.startswith(".") or not path.is_file():
                continue
            if _SAVED.fullmatch(name) and name not in tensors:  # being written, or about to be deleted
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                key = status.st_mtime_ns, status.st_size
                if seen.get(name) != key:
                    changed[name] = path.read_bytes()
                seen[name] = key
        if not tensors <= seen.keys():  # replaced by a newer checkpoint meanwhile, which is read next time
            return {}
        for name in MANIFESTS:
            if name in manifests and manifests[name] != self._manifests.get(name):
                changed[name] = manifests[name]
        self._manifests, self._seen = manifests, seen
        return changed


def write_files(folder: Path, contents: Contents) -> None:
    """Write files of a run, each atomically, and delete tensors of earlier checkpoints.

    Args:
        folder: Run directory, created if missing.
        contents: Contents by relative path, in this order.

    Raises:
        RunError: A file cannot be written. The checkpoint is then the previous one.
    """
    try:
        for name, content in contents.items():
            files.write_bytes(folder / name, content, parents=True)
    except OSError as error:
        raise RunError(f"folder {folder} cannot be written: {error.strerror}") from error
    if contents.keys() & set(MANIFESTS):
        named = {_tensors((folder / name).read_bytes()) for name in MANIFESTS if (folder / name).exists()}
        for path in folder.glob("*.safetensors"):
            if _SAVED.fullmatch(path.name) and path.name not in named:
                path.unlink(missing_ok=True)


def _tensors(manifest: bytes) -> str:
    return str(json.loads(manifest)["tensors"])


def write_token(folder: Path) -> Path:
    """Write a file of unique name, by which another process finds out whether it sees the same folder.

    Args:
        folder: Run directory, created if missing. Tokens that a killed process left are deleted.

    Returns:
        Absolute path of the file.

    Raises:
        RunError: The folder cannot be written.
    """
    path = folder.absolute() / f"{_TOKEN}{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{_TOKEN}*"):
            old.unlink(missing_ok=True)
        path.touch()
    except OSError as error:
        raise RunError(f"folder {folder} cannot be written: {error.strerror}") from error
    return path


def take_token(path: Path) -> bool:
    """Delete a token.

    Args:
        path: Path that :func:`write_token` returned, maybe on another machine.

    Returns:
        Whether it was there.
    """
    try:
        path.unlink()
    except OSError:
        return False
    return True
