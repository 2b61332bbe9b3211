"""Files of images: .npy, .npz, .pt and .csv. No code in a file is executed."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softspin.data.inputs import Images, tensor_array
from softspin.data.keys import find_keys
from softspin.data.limits import GIB, check_memory, check_zip
from softspin.data.readers import UNREADABLE, one_line
from softspin.data.tables import read_csv
from softspin.errors import DataError

MAP_ABOVE = GIB
"""A .npy file of more bytes stays on disk and is read batch by batch. Smaller ones are read whole, which is faster."""
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
"""Endings of the files that are read as images."""
_ADDRESS = re.compile(r"(https?|s3|gs|hf):/")
"""Beginning of an address; a path has lost one of its slashes."""


def read_file(path: Path, limit: float | None = None, *, of_conditions: bool = False) -> dict[str, Images]:
    """Read the images and labels of a file by split.

    Args:
        path: A .npy, .npz, .pt or .csv file.
        limit: Most memory, in GiB, that the arrays may take, see :func:`softspin.data.limits.memory_limit`.
        of_conditions: Whether the file holds conditions of other images.

    Returns:
        Images of `train`, and of `valid` and `test` if the file has them.

    Raises:
        DataError: The file does not exist, has another format, is damaged or too large.
    """
    if path.suffix.lower() not in READERS:
        hint = "; give the folder of the image" if path.suffix.lower() in ENDINGS else ""
        if path.suffix.lower() == ".h5ad":
            hint = "; in Python, give softspin.fit the object that anndata.read_h5ad returns"
        raise DataError(f"cannot read {path}: expected a {', '.join(READERS)} file or a folder of images{hint}")
    if not path.is_file():
        hint = "; nothing is downloaded from an address, so download it first" if _ADDRESS.search(str(path)) else ""
        raise DataError(f"there is no file {path}{hint}")
    try:
        if of_conditions and path.suffix.lower() == ".csv":
            return read_csv(path, limit, of_conditions=True)
        return READERS[path.suffix.lower()](path, limit)
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise DataError(f"cannot read {path}: {one_line(error)}") from error


def _read_npy(path: Path, limit: float | None) -> dict[str, Images]:
    if path.stat().st_size > MAP_ABOVE:
        return {"train": Images(np.load(path, mmap_mode="r", allow_pickle=False))}
    with path.open("rb") as stream:
        if zipfile.is_zipfile(stream):
            return _read_npz(path, limit)
        stream.seek(0)
        return {"train": Images(np.load(stream, allow_pickle=False))}


def _read_npz(path: Path, limit: float | None) -> dict[str, Images]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        if not hasattr(archive, "files"):  # a .npy file with another ending
            return {"train": Images(np.array(archive))}
        keys = find_keys(archive.files, str(path))
        others = [own[part] for own in (keys.labels, keys.conditions) for part in own if part in keys.images]
        names = {*keys.images.values(), *others}
        check_zip(path, limit, names | {f"{name}.npy" for name in names})
        return _by_part({name: _member(path, archive, name) for name in names}, path)


def _member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    """One array of a .npz file. Its header is checked first: NumPy allocates whatever size it claims."""
    member = name if name in archive.zip.namelist() else f"{name}.npy"
    with archive.zip.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    claimed, stored = int(np.prod(shape, dtype=object)) * dtype.itemsize, archive.zip.getinfo(member).file_size
    if claimed > stored:
        raise DataError(f"{path} is damaged: '{name}' claims {claimed:,} bytes, but {stored:,} are stored")
    return np.asarray(archive[name])


def _read_torch(path: Path, limit: float | None) -> dict[str, Images]:
    """Tensors only: `weights_only` restricts the unpickler, so that no code in the file can run."""
    if zipfile.is_zipfile(path):
        check_zip(path, limit)
    else:
        check_memory(path.stat().st_size, str(path), limit)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise DataError(
            f"cannot read {path}: it is damaged, or holds objects other than tensors, which are never loaded; "
            "save tensors by torch.save"
        ) from error
    if isinstance(found, tuple | list) and 1 <= len(found) <= 2 and all(isinstance(one, torch.Tensor) for one in found):
        found = dict(zip(("x", "y"), found, strict=False))  # the files of torchvision hold (images, labels)
    tensors = {"train": found} if isinstance(found, torch.Tensor) else found if isinstance(found, Mapping) else {}
    # An expanded tensor stores one number for many.
    sizes = (one.numel() * one.element_size() for one in tensors.values() if isinstance(one, torch.Tensor))
    check_memory(sum(sizes), str(path), limit)
    if isinstance(found, torch.Tensor):
        return {"train": Images(tensor_array(found))}
    arrays = {str(name): tensor_array(one) for name, one in tensors.items() if isinstance(one, torch.Tensor)}
    if not arrays:
        raise DataError(
            f"{path} holds a {type(found).__name__}; expected a tensor, or a dict of tensors named train, test"
        )
    return _by_part(arrays, path)


READERS: dict[str, Callable[[Path, float | None], dict[str, Images]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".csv": read_csv,
}
"""Functions that read a file, by its ending."""


def _by_part(arrays: Mapping[str, NDArray[Any]], path: Path) -> dict[str, Images]:
    keys = find_keys(arrays, str(path))
    return {
        part: Images(arrays[name], arrays.get(keys.labels.get(part, "")), arrays.get(keys.conditions.get(part, "")))
        for part, name in keys.images.items()
    }
