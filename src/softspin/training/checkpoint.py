"""Crash-safe checkpoints: tensors in safetensors, everything else in JSON, no pickles.

A checkpoint `last` is two files. `last-<token>.safetensors` holds the tensors and is never overwritten. `last.json` has
its name, size and SHA-256, and is replaced atomically once the tensors are on the disk. A reader of `last.json`
therefore finds either the old pair or the new one. Files that it does not name were left by a killed save; the next
save deletes them.
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
from softspin.seals import seal

FORMAT = 1
"""Version of the layout of both files; increased if an older softspin cannot read newer checkpoints."""

_TOKEN = "[0-9a-f]{16}"
Folder = str | os.PathLike[str]


def save(
    folder: Folder, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, parents: bool = True
) -> None:
    """Write a checkpoint, atomically replacing the previous one of the same name.

    Args:
        folder: Folder.
        name: Name of the checkpoint: letters, digits and underscores.
        tensors: Tensors of any device, shape and dtype, by name.
        meta: Plain data for strict JSON, so neither NaN nor infinity.
        parents: Create a missing folder.

    Raises:
        CheckpointError: The files cannot be written; the previous checkpoint is then unchanged.
    """
    folder = Path(folder)
    host = {key: one.detach().cpu().clone(memory_format=torch.contiguous_format) for key, one in tensors.items()}
    content = safetensors.torch.save(host)
    file = folder / f"{name}-{secrets.token_hex(8)}.safetensors"
    manifest = _manifest_path(folder, name)
    text = _manifest(file.name, content, meta)
    fresh = file.with_suffix(".json")
    try:
        if parents:
            folder.mkdir(parents=True, exist_ok=True)
        write_synced(file, content, exclusive=True)
        write_synced(fresh, text, exclusive=True)
        sync_folder(folder)  # both files are on the disk before the manifest refers to the tensors
        os.replace(fresh, manifest)
    except BaseException as error:
        if not _holds(manifest, text):  # Ctrl-C may arrive just after the replacement
            _delete((file, fresh))
        if isinstance(error, OSError):
            raise _unwritable(folder, name, error) from error
        raise
    sync_folder(folder)
    _delete(_leftovers(folder, name, current=file))


def load(folder: Folder, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint. Runs no code from the files.

    Args:
        folder: Run directory.
        name: Name of the checkpoint, such as `"best"` or `"last"`.

    Returns:
        Tensors by name, on the CPU, and the meta data. Tensors of an earlier version get their current names.

    Raises:
        CheckpointError: The checkpoint is missing, damaged, or of another format.
    """
    manifest = _read_manifest(Path(folder), name)
    while True:
        try:
            content = (Path(folder) / manifest["tensors"]).read_bytes()
            break
        except OSError as error:
            # Another process may have replaced the pair since the manifest was read.
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
    """Read only the meta data of a checkpoint.

    Args:
        folder: Run directory.
        name: Name of the checkpoint.

    Returns:
        The meta data.

    Raises:
        CheckpointError: The checkpoint is missing, damaged, or of another format.
    """
    meta: dict[str, Any] = _read_manifest(Path(folder), name)["meta"]
    return meta


def exists(folder: Folder, name: str) -> bool:
    """Whether a checkpoint exists; it may be damaged.

    Args:
        folder: Run directory.
        name: Name of the checkpoint.

    Returns:
        True if its manifest exists.
    """
    return os.path.exists(_manifest_path(Path(folder), name))


def _manifest_path(folder: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise CheckpointError(f"invalid checkpoint name '{name}'; use letters, digits and underscores")
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
    body = json.loads(json.dumps(body, allow_nan=False))  # as it will be read, with string keys
    return json.dumps({**body, "seal": seal(body)}, indent=1, allow_nan=False).encode()


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
        raise _damaged(folder, name, f"{path.name} is not the manifest of a checkpoint")
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint '{name}' in {folder} was written by softspin {manifest.get('softspin')} with format "
            f"{manifest['format']}; this one, {__version__}, reads format {FORMAT}"
        )
    stored = manifest.pop("seal", None)
    try:
        sealed = stored == seal(manifest)
    except ValueError:  # NaN, which is never written
        sealed = False
    if not sealed:
        raise _damaged(folder, name, f"{path.name} does not have the SHA-256 that was written")
    if not re.fullmatch(rf"{name}-{_TOKEN}\.safetensors", str(manifest.get("tensors"))):
        raise _damaged(folder, name, f"{path.name} names no tensor file of this checkpoint")
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
    """Files of earlier saves of this name: the previous tensors, and what killed saves left."""
    own = re.compile(rf"{name}-{_TOKEN}\.(safetensors|json)")
    return [path for path in folder.glob(f"{name}-*") if path != current and own.fullmatch(path.name)]


def _unwritable(folder: Path, name: str, error: OSError) -> CheckpointError:
    before = "the previous one is intact" if exists(folder, name) else "there was no previous one"
    return CheckpointError(f"checkpoint '{name}' could not be written to {folder}: {error.strerror}; {before}")


def _unreadable(folder: Folder, name: str, file: str, error: OSError) -> CheckpointError:
    """A missing file is damage; one that the system does not allow us to read may be intact."""
    why = f"{file} cannot be read: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return _damaged(folder, name, why)
    return CheckpointError(f"checkpoint '{name}' in {folder}: {why}")


def _damaged(folder: Folder, name: str, what: str) -> DamagedError:
    return DamagedError(f"checkpoint '{name}' in {folder} is damaged: {what}; to start over, move the folder away")
