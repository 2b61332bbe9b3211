"""Checkpoints that survive a kill at any moment: tensors in safetensors, everything else in JSON, never a pickle.

A checkpoint `last` is two files. `last-<token>.safetensors` holds the tensors and is never written twice;
`last.json` names it, with its size and SHA-256, and is replaced in one atomic step once the tensors are on the
disk. Whoever reads `last.json` therefore finds either the old pair or the new one. Files that it does not name
are what a killed save left behind; the next save deletes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from softspin import __version__
from softspin.config import migrate_tensors
from softspin.errors import CheckpointError, ConfigError, DamagedError
from softspin.files import sync_folder, write_synced

FORMAT = 1
"""Version of the layout of both files; raised when an older softspin could not read a newer checkpoint."""

_TOKEN = "[0-9a-f]{16}"
Folder = str | os.PathLike[str]


def save(folder: Folder, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Replace the checkpoint `name` in a folder (made if missing) by these tensors and this plain data, atomically.

    Tensors of any device, shape and dtype; meta is what strict JSON can hold, so neither NaN nor infinity.
    Raises CheckpointError where the disk does not take it; the checkpoint before is then still there.
    """
    folder = Path(folder)
    host = {key: one.detach().cpu().clone(memory_format=torch.contiguous_format) for key, one in tensors.items()}
    content = safetensors.torch.save(host)
    file = folder / f"{name}-{secrets.token_hex(8)}.safetensors"
    manifest = _manifest_path(folder, name)
    text = _manifest(file.name, content, meta)
    fresh = file.with_suffix(".json")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_synced(file, content, exclusive=True)
        write_synced(fresh, text, exclusive=True)
        sync_folder(folder)  # both names are on the disk before one file says that the other is there
        os.replace(fresh, manifest)
    except BaseException as error:
        if not _holds(manifest, text):  # Ctrl-C may come just after the replacement
            _delete((file, fresh))
        if isinstance(error, OSError):
            raise _unwritable(folder, name, error) from error
        raise
    sync_folder(folder)
    _delete(_leftovers(folder, name, current=file))


def load(folder: Folder, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the host, and meta of the checkpoint `name`; runs no code from the files.

    Of an earlier version, the tensors have the names that they have now. Raises CheckpointError where it is missing,
    damaged, or of another format.
    """
    manifest = _read_manifest(Path(folder), name)
    while True:
        try:
            content = (Path(folder) / manifest["tensors"]).read_bytes()
            break
        except OSError as error:
            # A run that is still going may have replaced the pair since its manifest was read.
            again = _read_manifest(Path(folder), name)
            if again == manifest:
                raise _unreadable(folder, name, manifest["tensors"], error) from None
            manifest = again
    if len(content) != manifest["size"]:
        what = "is truncated" if len(content) < manifest["size"] else "is too long"
        raise _damaged(folder, name, f"{manifest['tensors']} {what}: {len(content)} bytes of {manifest['size']}")
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise _damaged(folder, name, f"{manifest['tensors']} does not have the SHA-256 that was written")
    try:
        tensors, meta = safetensors.torch.load(content), manifest["meta"]
        return migrate_tensors(tensors, meta["config"]) if "config" in meta else tensors, meta
    except ConfigError as error:  # a ValueError too
        raise CheckpointError(f"checkpoint '{name}' in {folder} cannot be used: {error}") from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise _damaged(folder, name, f"{manifest['tensors']} holds no tensors: {error}") from None


def load_meta(folder: Folder, name: str) -> dict[str, Any]:
    """The meta alone, without reading the tensors."""
    meta: dict[str, Any] = _read_manifest(Path(folder), name)["meta"]
    return meta


def exists(folder: Folder, name: str) -> bool:
    """Whether a checkpoint of that name was ever completed; it may still be damaged."""
    return os.path.exists(_manifest_path(Path(folder), name))


def _manifest_path(folder: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise CheckpointError(f"a checkpoint cannot be called '{name}'; use letters, digits and underscores")
    return folder / f"{name}.json"


def _manifest(file: str, content: bytes, meta: Mapping[str, Any]) -> bytes:
    body = {
        "format": FORMAT,
        "softspin": __version__,
        "tensors": file,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "meta": dict(meta),
    }
    body = json.loads(json.dumps(body, allow_nan=False))  # as it will be read, with texts for all keys
    return json.dumps({**body, "seal": _seal(body)}, indent=1, allow_nan=False).encode()


def _seal(body: Mapping[str, Any]) -> str:
    """A digest of the manifest's other entries, so that a change to meta does not pass unseen either."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _read_manifest(folder: Path, name: str) -> dict[str, Any]:
    path = _manifest_path(folder, name)
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        found = (re.fullmatch(rf"(\w+)-{_TOKEN}", other.stem) for other in folder.glob("*.safetensors"))
        others = sorted({match[1] for match in found if match})
        known = f"there are: {', '.join(others)}" if others else "there is none in this folder"
        raise CheckpointError(f"no checkpoint '{name}' in {folder}; {known}") from None
    except OSError as error:
        raise _unreadable(folder, name, path.name, error) from None
    except (ValueError, RecursionError):
        raise _damaged(folder, name, f"{path.name} is not JSON") from None
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise _damaged(folder, name, f"{path.name} is not a checkpoint's")
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint '{name}' in {folder} was written by softspin {manifest.get('softspin')} with format "
            f"{manifest['format']}; this one, {__version__}, reads format {FORMAT}"
        )
    seal = manifest.pop("seal", None)
    try:
        sealed = seal == _seal(manifest)
    except ValueError:  # NaN, which we never write
        sealed = False
    if not sealed:
        raise _damaged(folder, name, f"{path.name} does not have the SHA-256 that was written")
    if not re.fullmatch(rf"{name}-{_TOKEN}\.safetensors", str(manifest.get("tensors"))):
        raise _damaged(folder, name, f"{path.name} names no file of its own")
    if type(manifest.get("size")) is not int or not isinstance(manifest.get("meta"), dict):
        raise _damaged(folder, name, f"{path.name} lacks a size or meta")
    return manifest


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _leftovers(folder: Path, name: str, current: Path) -> list[Path]:
    """What earlier saves of this name left: the tensors before, and the files of a save that was killed."""
    own = re.compile(rf"{name}-{_TOKEN}\.(safetensors|json)")
    return [path for path in folder.glob(f"{name}-*") if path != current and own.fullmatch(path.name)]


def _unwritable(folder: Path, name: str, error: OSError) -> CheckpointError:
    before = "the one before is intact" if exists(folder, name) else "there was none before"
    return CheckpointError(f"checkpoint '{name}' could not be written to {folder}: {error.strerror}; {before}")


def _unreadable(folder: Folder, name: str, file: str, error: OSError) -> CheckpointError:
    """A file that was written and is gone is damage; one that the system does not let us read may be whole."""
    why = f"{file} cannot be read: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return _damaged(folder, name, why)
    return CheckpointError(f"checkpoint '{name}' in {folder}: {why}")


def _damaged(folder: Folder, name: str, what: str) -> DamagedError:
    return DamagedError(f"checkpoint '{name}' in {folder} is damaged: {what}; to begin anew, move the folder away")
