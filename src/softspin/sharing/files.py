"""Files of a shared model.

A shared model is one safetensors file with the tensors, and with the metadata as strict JSON in its header. A digest of
both, also in the header, detects damage; the same model always gives the same bytes. A shared
folder holds that file as `model.safetensors`, the same JSON as `config.json`, and a model card, `README.md`. Reading
runs no code from the file and opens no path that it names. Custom networks are code: the reader gives them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from softspin.config import Config, migrate_tensors
from softspin.custom_nets import Encoder, restore_with_nets
from softspin.errors import ConfigError, ShapeError, SharingError, SupportError
from softspin.files import remove_leftovers, temporary_path, write_synced
from softspin.model import DiscreteVAE
from softspin.records import ModelRecord
from softspin.sharing.card import card
from softspin.sharing.metadata import MAX_BYTES, from_text, to_text
from softspin.sharing.sealed import BOLTZMANN_KEY, is_intact, pack
from softspin.stored_model import restore
from softspin.training.run_files import RUN

TENSORS, DESCRIPTION, CARD = "model.safetensors", "config.json", "README.md"
OTHER_ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".npy", ".npz", ".h5", ".onnx", ".json", ".zip")
"""Endings of files in other formats, which would be misleading names of a folder."""
KEY = "softspin"
"""Key of the metadata in the header of the file."""


def is_shared(path: Path) -> bool:
    """Whether a path is a file, or a folder with the file of a shared model."""
    return path.is_file() or (path / TENSORS).is_file()


def read(
    path: Path, encoder: Encoder | None = None, decoder: nn.Module | None = None
) -> tuple[DiscreteVAE, Config, ModelRecord]:
    """Read a shared model.

    Args:
        path: File or folder.
        encoder: Custom encoder networks, if the model has them.
        decoder: Custom decoder network, if the model has one.

    Returns:
        Networks on the CPU, config and metadata.

    Raises:
        SharingError: The file is missing, damaged or inconsistent, or the networks do not fit; one line.
    """
    file = path / TENSORS if path.is_dir() else path
    tensors, config, record = read_tensors(path)
    try:
        net = restore_with_nets(config, tensors, record.data.shape, encoder, decoder)
    except (ShapeError, SupportError, ConfigError) as error:
        raise SharingError(f"{file} does not fit {_owner(encoder, decoder)}: {error}") from None
    _name_classes(net, record, file)
    if len(net.mean) != math.prod(record.data.shape):
        raise SharingError(f"{file} has {len(net.mean)} pixels, but images of shape {list(record.data.shape)}")
    return net, config, record


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Config, ModelRecord]:
    """Read a shared model without its networks.

    Args:
        path: File or folder.

    Returns:
        Tensors by name on the CPU, config and metadata.

    Raises:
        SharingError: The file is missing, damaged or inconsistent; one line.
    """
    file = path / TENSORS if path.is_dir() else path
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            header = opened.metadata() or {}
            text = header.get(KEY)
            if BOLTZMANN_KEY in header:
                own = "a Boltzmann machine on its own"
                raise SharingError(f"{file} holds {own}; use softspin rbm, or softspin.load_boltzmann")
            if text is None:
                raise SharingError(f"{file} is not a model of softspin: the header of the file has no '{KEY}'")
            record, config = from_text(text, file)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise SharingError(f"there is no file {file}") from None
    except (SafetensorError, OSError) as error:
        if isinstance(error, SafetensorError) and file.suffix != ".safetensors":
            raise SharingError(f"{file} is neither a run directory nor a .safetensors file") from None
        raise SharingError(f"{file} is damaged, or not a safetensors file: {_line(error)}") from None
    if not is_intact(header, text, tensors):
        raise SharingError(f"{file} is damaged: it does not have the SHA-256 that was written; get it again")
    if path.is_dir():
        _check_copy(path / DESCRIPTION, text)
    current = dataclasses.replace(record, config=config.to_dict())
    return migrate_tensors(tensors, record.config), config, current


def _name_classes(net: DiscreteVAE, record: ModelRecord, what: object) -> None:
    """Give the classes of the condition their names; raises SharingError if they do not fit."""
    try:
        if net.condition is not None:
            net.condition.name_classes(record.data.class_names)
    except ShapeError as error:
        raise SharingError(f"{what} has {error}") from None


def _owner(encoder: Encoder | None, decoder: nn.Module | None) -> str:
    return "its own config" if encoder is None and decoder is None else "these networks"


def write(path: Path, net: DiscreteVAE, record: ModelRecord, *, overwrite: bool = False) -> list[Path]:
    """Write a model to a file or to a folder.

    Other files of a folder are kept. If the process is killed, the folder holds either the old model or the new one.
    Its JSON and model card may then be missing, but never belong to another model.

    Args:
        path: File, if the name ends in `.safetensors`, else folder.
        net: Networks and prior.
        record: Metadata.
        overwrite: Whether existing files are replaced; those of a run never are.

    Returns:
        The files that were written.

    Raises:
        SharingError: The model cannot be shared, or the files exist or cannot be written.
    """
    text = to_text(record)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in net.state_dict().items()}
    if all(part.rebuildable for part in net.nets):
        try:
            restore(record.read_config(), tensors, record.data.shape)  # never write what could not be read
        except (ShapeError, SupportError) as error:
            raise SharingError(f"this model does not fit its config: {error}") from None
    _name_classes(net, record, "this model")
    content = pack(tensors, KEY, text)
    if path.suffix == ".safetensors":
        files = {path: content}
    else:
        files = {
            path / CARD: card(record, custom=custom_nets(net)).encode(),
            path / DESCRIPTION: text.encode(),
            path / TENSORS: content,
        }
    _check_place(path, overwrite)
    _replace(path, files)
    return list(files)


def custom_nets(net: DiscreteVAE) -> list[str]:
    """Parts with custom networks, in which only the parameters are shared: `encoder`, `decoder`."""
    *encoder, decoder = net.nets
    custom = {"encoder": not all(one.rebuildable for one in encoder), "decoder": not decoder.rebuildable}
    return [part for part, is_custom in custom.items() if is_custom]


def _check_place(path: Path, overwrite: bool) -> None:
    single = path.suffix == ".safetensors"
    if path.suffix.lower() in OTHER_ENDINGS:
        raise SharingError(
            f"{path} ends in {path.suffix}; a model is written as one file that ends in .safetensors, such as "
            f"{path.with_suffix('.safetensors')}, or as a folder, such as {path.with_suffix('')}"
        )
    if path.is_dir() and single:
        raise SharingError(f"{path} is a folder; give another name for the file")
    if path.is_file() and not single:
        raise SharingError(f"{path} is a file; give a folder, or a file that ends in .safetensors")
    if (path / RUN).exists():
        raise SharingError(f"{path} is a run directory; give another folder")
    if not overwrite and path.exists() and (single or any(path.iterdir())):
        raise SharingError(f"{path} already exists; give another name, or replace it: --overwrite, overwrite=True")


def _replace(path: Path, files: dict[Path, bytes]) -> None:
    """Write all files to temporary paths, then rename them; after an error no temporary file is left.

    The last file is the model itself, which is replaced atomically. The others describe it: the old ones are deleted
    before that, the new ones are renamed after it.
    """
    temporary = {file: temporary_path(file) for file in files}
    made = not path.exists() and path.suffix != ".safetensors"
    try:
        next(iter(files)).parent.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write_synced(temporary[file], content, exclusive=True)
        for file in [*files][:-1]:
            file.unlink(missing_ok=True)
        for file in reversed(files):
            temporary[file].replace(file)
            remove_leftovers(file)
    except BaseException as error:
        with contextlib.suppress(OSError):
            for leftover in temporary.values():
                leftover.unlink(missing_ok=True)
            if made:
                path.rmdir()
        if isinstance(error, OSError):
            raise SharingError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def _check_copy(path: Path, text: str) -> None:
    """Raise if the separate JSON file differs from the metadata in the file: edits of it would have no effect."""
    try:
        with path.open("rb") as file:
            same = json.loads(file.read(MAX_BYTES + 1)) == json.loads(text)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SharingError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise SharingError(f"{path} differs from the metadata in {TENSORS}; restore or delete it")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
