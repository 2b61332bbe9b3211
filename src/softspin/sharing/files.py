"""A shared model on the disk.

It is one safetensors file: the model's tensors, and in its header, as strict JSON, all that is known of them. A shared
folder holds that file as `model.safetensors`, and for people the same JSON as `config.json` and a card, `README.md`.
Reading runs no code from the file and follows no name in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open

from softspin.config import Config, migrate_tensors
from softspin.errors import ShapeError, SharingError, SupportError
from softspin.files import temporary_path, write_synced
from softspin.model import DiscreteVAE, restore
from softspin.records import ModelRecord
from softspin.sharing.card import card
from softspin.sharing.metadata import MOST_BYTES, from_text, to_text
from softspin.training.results import RUN

TENSORS, DESCRIPTION, CARD = "model.safetensors", "config.json", "README.md"
KEY = "softspin"
"""Of the description among the header's metadata."""


def is_shared(path: Path) -> bool:
    """Whether a path is that of a file, or of a folder with the file of a shared model."""
    return path.is_file() or (path / TENSORS).is_file()


def read(path: Path) -> tuple[DiscreteVAE, Config, ModelRecord]:
    """Model, on the host, config and description; SharingError in one line where anything is not as it should be."""
    file = path / TENSORS if path.is_dir() else path
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            text = (opened.metadata() or {}).get(KEY)
            if text is None:
                raise SharingError(f"{file} is a safetensors file, but not of softspin: its header has no '{KEY}'")
            record, config = from_text(text, file)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise SharingError(f"there is no {file}") from None
    except (SafetensorError, OSError) as error:
        raise SharingError(f"{file} is damaged, or no safetensors file: {_line(error)}") from None
    try:
        net = restore(config, migrate_tensors(tensors, record.config), record.data.shape)
    except (ShapeError, SupportError) as error:
        raise SharingError(f"{file} does not fit its own config: {error}") from None
    if len(net.mean) != math.prod(record.data.shape):
        raise SharingError(f"{file} has {len(net.mean)} pixels and images of shape {list(record.data.shape)}")
    if path.is_dir():
        _check_copy(path / DESCRIPTION, text)
    return net, config, dataclasses.replace(record, config=config.to_dict())


def write(path: Path, net: DiscreteVAE, record: ModelRecord, *, overwrite: bool = False) -> list[Path]:
    """Write a model to a file (a name that ends in .safetensors) or to a folder; what was written.

    What is there already is replaced only if told so, and a run never is; other files of a folder stay. Stopped at any
    moment, the folder has the whole old model or the whole new one; what is for people may be missing, never another's.
    """
    if not all(part.rebuildable for part in net.nets):
        raise SharingError(
            "a model with custom networks cannot be shared as a file, which holds no code; share the code, and "
            "model.net.state_dict() by safetensors.torch.save_file"
        )
    text = to_text(record)
    tensors = {name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}
    try:
        restore(record.read_config(), tensors, record.data.shape)  # what could not be read is not written
    except (ShapeError, SupportError) as error:
        raise SharingError(f"this model is not what its config makes: {error}") from None
    content = safetensors.torch.save(tensors, {"format": "pt", KEY: text})
    if path.suffix == ".safetensors":
        files = {path: content}
    else:
        files = {path / CARD: card(record).encode(), path / DESCRIPTION: text.encode(), path / TENSORS: content}
    _check_place(path, overwrite)
    _replace(path, files)
    return list(files)


def _check_place(path: Path, overwrite: bool) -> None:
    single = path.suffix == ".safetensors"
    if path.is_dir() and single:
        raise SharingError(f"{path} is a folder; give it another name, or the model's file one")
    if path.is_file() and not single:
        raise SharingError(f"{path} is a file; a model goes to a folder, or to a file that ends in .safetensors")
    if (path / RUN).exists():
        raise SharingError(f"{path} is the folder of a run; take another one")
    if not overwrite and path.exists() and (single or any(path.iterdir())):
        raise SharingError(f"{path} exists already; take another name, or replace it: --overwrite, overwrite=True")


def _replace(path: Path, files: dict[Path, bytes]) -> None:
    """All files beside their places first, then each into its own; after an error nothing is left beside them.

    The last of them is the model itself, which is replaced at once. The others tell of it: the old ones go before that,
    the new ones come after it.
    """
    halves = {file: temporary_path(file) for file in files}
    made = not path.exists() and path.suffix != ".safetensors"
    try:
        next(iter(files)).parent.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write_synced(halves[file], content)
        for file in [*files][:-1]:
            file.unlink(missing_ok=True)
        for file in reversed(files):
            halves[file].replace(file)
    except BaseException as error:
        with contextlib.suppress(OSError):
            for half in halves.values():
                half.unlink(missing_ok=True)
            if made:
                path.rmdir()
        if isinstance(error, OSError):
            raise SharingError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def _check_copy(path: Path, text: str) -> None:
    """Raise if the description for people is not that of the tensors: someone has edited it, to no effect."""
    try:
        with path.open("rb") as file:
            same = json.loads(file.read(MOST_BYTES + 1)) == json.loads(text)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SharingError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise SharingError(f"{path} is not what {TENSORS} says of itself; put it back, or delete it")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
