"""A folder as a data set: images, in subfolders by class or split, or files of arrays named by split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softspin.data.formats import ENDINGS, READERS, read_file
from softspin.data.inputs import Images, picture_array
from softspin.data.keys import find_keys, split_name
from softspin.data.limits import check_memory
from softspin.data.readers import one_line
from softspin.errors import DataError, ShapeError, missing_extra


def read_folder(path: Path, limit: float | None = None) -> dict[str, Images]:
    """Read the images of a folder, in alphabetic order.

    Subfolders named train, valid and test are splits, if there is train. Any other subfolders, also inside those, are
    classes: their names become the labels. Hidden files are left out. Instead of images, a folder may hold files of
    arrays, such as train.npy and test.npy.

    Args:
        path: The folder.
        limit: Most memory, in GiB, that the images may take.

    Returns:
        Images of `train`, and of `valid` and `test` if there are such subfolders.

    Raises:
        DataError: There are no images, or one cannot be read.
        ShapeError: The images do not have one size.
        MissingExtraError: Pillow is not installed.
    """
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    arrays = [entry for entry in entries if entry.suffix.lower() in READERS and entry.is_file()]
    splits = {entry.name: entry for entry in entries if entry.is_dir() and split_name(entry.name)}
    if "train" in map(split_name, splits):
        keys = find_keys(splits, str(path)).images
        return {part: _read_images(splits[name], limit) for part, name in keys.items()}
    if arrays and not any(_pictures(path)):
        return _read_arrays(path, arrays, limit)
    return {"train": _read_images(path, limit)}


def _read_arrays(path: Path, files: Sequence[Path], limit: float | None) -> dict[str, Images]:
    """The arrays of several files, each of which holds images or labels of one split."""
    if len(files) == 1:
        return read_file(files[0], limit)
    by_name = {file.stem: file for file in files}
    if len(by_name) < len(files):
        raise DataError(f"{path} has files of one name with different endings; keep one of each")
    keys = find_keys(by_name, str(path))

    def only(name: str) -> Images:
        found = read_file(by_name[name], limit)
        if len(found) > 1:
            raise DataError(f"{by_name[name]} has several splits, but stands for one; load the file itself")
        return found["train"]

    images = {part: only(name) for part, name in keys.images.items()}
    return images | {part: images[part]._replace(labels=only(name).array) for part, name in keys.labels.items()}


def _pictures(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _read_images(folder: Path, limit: float | None) -> Images:
    """All images of a folder; those in its subfolders are labeled."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise missing_extra("a folder of images needs the package Pillow", "images") from error
    files = _pictures(folder)
    if not files:
        raise DataError(f"{folder} has no images ({', '.join(ENDINGS)}) and no {', '.join(READERS)} files")
    arrays: list[NDArray[Any]] = []
    used = 0
    for file in files:
        try:
            with Image.open(file) as picture:
                check_memory(len(files) * picture.width * picture.height, f"the images of {folder}", limit)
                arrays.append(picture_array(picture))
        except UnidentifiedImageError as error:
            raise DataError(f"cannot read {file}: it is damaged, or not an image; remove it") from error
        except (Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
            raise DataError(f"cannot read {file}: {one_line(error)}") from error
        if arrays[-1].shape[:2] != arrays[0].shape[:2]:
            sizes = [
                f"{file} is {array.shape[1]} x {array.shape[0]}"
                for file, array in ((files[0], arrays[0]), (file, arrays[-1]))
            ]
            raise ShapeError(f"all images must have one size; {', '.join(sizes)}; resize them first")
        used += arrays[-1].nbytes
        check_memory(used, f"the images of {folder}", limit)
    labels = [file.relative_to(folder).parts[0] if file.parent != folder else None for file in files]
    return Images(_alike(arrays), None if None in labels else np.asarray(labels))


def _alike(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array: bits beside gray levels become 0 and 255, gray levels beside colors become gray colors."""
    if len({(array.dtype, array.ndim) for array in arrays}) == 1:
        return np.stack(arrays)
    levels = [array * np.uint8(255) if array.dtype == bool else array for array in arrays]
    colored = any(array.ndim == 3 for array in levels)
    return np.stack([np.repeat(one[..., None], 3, axis=2) if colored and one.ndim == 2 else one for one in levels])
