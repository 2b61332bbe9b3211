"""Images as people have them in Python: tensors, arrays, lists, PIL images, data sets and data loaders of torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softspin.data.columns import column_names
from softspin.data.mapped import MappedTable
from softspin.data.readers import one_line
from softspin.errors import DataError, ShapeError

_ACCEPTED = "a tensor, an array, a list, a Dataset with a length, or a DataLoader"
_IMAGE_KEYS = ("image", "img", "images", "x", "pixel_values", "data")
_LABEL_KEYS = ("label", "labels", "y", "target", "fine_label")


class Images(NamedTuple):
    """Images `(N, ...)`, and their labels and conditions `(N, ...)` if there are any."""

    array: NDArray[Any]
    labels: NDArray[Any] | None = None
    condition: NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None
    """Names of the columns of a table."""


def as_array(part: str, values: Any) -> Images:
    """Convert images to an array, in any of the forms in which they come.

    A tensor may have any dtype, device and layout, and require gradients. An item of a list, of a map-style data set or
    of a batch of a loader is an image (a tensor, an array, a PIL image), a pair of an image and a label, or a mapping
    with `image` and `label`. A loader that reads all items of its data set, in order or shuffled, gives them in the
    order of the data set, so that the result is reproducible; any other loader is read once. Of an AnnData object, the
    matrix `X` is read; sparse matrices become dense.

    Args:
        part: Name for messages, such as "train".
        values: The images.

    Returns:
        Images and labels, and the names of the columns of a DataFrame or an AnnData object.

    Raises:
        ShapeError: The images do not have one shape.
        DataError: `values` is something else.
    """
    if (columns := column_names(values)) is not None:
        matrix = anndata_matrix(values) if is_anndata(values) else np.asarray(values)
        return as_array(part, matrix)._replace(columns=columns)
    if is_anndata(values):
        values = anndata_matrix(values)
    if hasattr(values, "toarray"):  # a sparse matrix of SciPy
        values = values.toarray()
    if isinstance(values, Tensor | MappedTable):
        return Images(tensor_array(values if isinstance(values, Tensor) else values[:]))
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"{part} is a masked array with missing values; replace them first, by values.filled(0)")
    if isinstance(values, np.ndarray):
        return Images(_with_type(values))
    if isinstance(values, list | tuple) and values and isinstance(values[0], torch.utils.data.Dataset):
        names = '{"train": a, "test": b}'
        raise DataError(f"{part} is a {type(values).__name__} of data sets; give one of them, or name them: {names}")
    if isinstance(values, list | tuple) and values and _is_item(values[0]):
        return _stack(part, values, len(values))
    if isinstance(values, list | tuple) or hasattr(values, "__array__"):
        return Images(_with_type(_nested(part, values)))
    return _from_torch(part, values)


def is_anndata(x: Any) -> bool:
    """Whether data are an AnnData object; the package itself is not needed to use one."""
    return type(x).__module__.partition(".")[0] == "anndata" and hasattr(x, "obsm")


def anndata_matrix(data: Any) -> Any:
    """The matrix `X` of an AnnData object, dense or sparse.

    Args:
        data: The AnnData object.

    Returns:
        The matrix.

    Raises:
        DataError: It is on disk, or there is none.
    """
    if data.isbacked:
        raise DataError("the matrix X of the AnnData object is on disk; read it into memory first: data.to_memory()")
    if data.X is None:
        raise DataError("the AnnData object has no matrix X; set it first, such as data.X = data.layers['counts']")
    return data.X


def tensor_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor of any dtype, device and layout as an array; bfloat16, which NumPy lacks, becomes float32."""
    if tensor.is_meta:
        raise DataError("a tensor on the device 'meta' has no values; give one on a CPU or GPU")
    plain = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    plain = plain.cpu().resolve_conj().resolve_neg()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.to(torch.float32)
    return plain.numpy()


def picture_array(picture: Any) -> NDArray[Any]:
    """A PIL image as bits, bytes `(height, width)` or bytes `(height, width, 3)`. Transparency is dropped."""
    mode = picture.mode
    if mode in ("1", "L", "RGB", "F"):
        return np.asarray(picture)
    if mode.startswith("I"):  # 16 bits per pixel
        return (np.asarray(picture).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8)
    return np.asarray(picture.convert("L" if mode in ("LA", "La") else "RGB"))


def _is_picture(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "convert") and hasattr(value, "getbands")


def _is_item(value: Any) -> bool:
    """Whether an element of a list is an image, perhaps with its label, rather than nested numbers."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[0]
    return isinstance(value, Tensor | np.ndarray | Mapping) or _is_picture(value)


def _from_torch(part: str, values: Any) -> Images:
    """Images of a data set or a loader of torch, or of any object with a length and items."""
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    if isinstance(values, DataLoader):
        return _from_loader(part, values)
    if isinstance(values, TensorDataset):
        array, *rest = map(tensor_array, values.tensors)
        return Images(array, rest[0] if rest and rest[0].ndim == 1 else None)
    sized = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if not sized or isinstance(values, IterableDataset | str | bytes | Mapping):
        raise DataError(f"{part} is of type {type(values).__name__}; expected {_ACCEPTED}")
    return _stack(part, (values[index] for index in range(len(values))), len(values))


def _from_loader(part: str, loader: Any) -> Images:
    """All items of a loader."""
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler, default_collate

    if isinstance(loader.dataset, IterableDataset):
        raise DataError(f"{part} is a DataLoader of a data set without a length; expected {_ACCEPTED}")
    sampler = loader.sampler
    reads_all = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(loader.dataset)
    )
    if reads_all and loader.batch_sampler is not None and loader.collate_fn is default_collate:
        return as_array(part, loader.dataset)
    batches = [_item(batch) for batch in loader]
    if not batches:
        raise ShapeError(f"{part} is a DataLoader without batches; expected at least one image")
    shapes = {image.shape[1:] for image, _ in batches}
    if len(shapes) > 1:
        raise ShapeError(f"batches of {part} have images of different shapes: {', '.join(map(str, sorted(shapes)))}")
    labels = [np.atleast_1d(np.asarray(label)) for _, label in batches if label is not None]
    images = np.concatenate([image for image, _ in batches])
    return Images(images, np.concatenate(labels) if len(labels) == len(batches) else None)


def _stack(part: str, items: Iterable[Any], count: int) -> Images:
    """One array from single images."""
    if not count:
        raise ShapeError(f"{part} has no images")
    array: NDArray[Any] | None = None
    labels = []
    for index, (image, label) in enumerate(map(_item, items)):
        if array is None:
            array = np.empty((count, *image.shape), image.dtype)
        if image.shape != array.shape[1:]:
            raise ShapeError(
                f"images of {part} must have one shape; image {index} has {image.shape}, the first {array.shape[1:]}"
            )
        if image.dtype != array.dtype:
            array = array.astype(np.result_type(array, image))
        array[index] = image
        labels.append(label)
    assert array is not None
    known = all(label is not None for label in labels)
    return Images(array, np.asarray(labels) if known else None)


def _item(item: Any) -> tuple[NDArray[Any], Any]:
    """Image and label of an item; the label is None if there is none."""
    label: Any = None
    if isinstance(item, Mapping):
        key = next((key for key in _IMAGE_KEYS if key in item), None)
        if key is None:
            raise DataError(f"an item of the data has the keys {', '.join(map(str, item))}; expected one named image")
        label = next((item[name] for name in _LABEL_KEYS if name in item), None)
        item = item[key]
    elif isinstance(item, tuple | list) and _is_pair(item):
        item, *rest = item
        label = rest[0] if rest else None
    return _image(item), _label(label)


def _image(value: Any) -> NDArray[Any]:
    if isinstance(value, Tensor):
        return tensor_array(value)
    array = picture_array(value) if _is_picture(value) else _nested("an image", value)
    if array.dtype.kind in "OSU":
        kind = type(value).__name__
        raise DataError(f"an item of the data is of type {kind}; expected a tensor, an array or an image")
    return array


def _label(label: Any) -> Any:
    """A label as a number, text or array; None for anything else."""
    if isinstance(label, Tensor):
        return tensor_array(label) if label.ndim else label.item()
    return label if isinstance(label, str | int | float | np.number | np.ndarray) else None


def _is_pair(item: Sequence[Any]) -> bool:
    """Whether the first of several values is an image, and the next its label; otherwise they are nested numbers."""
    if not item or isinstance(item[0], Tensor | np.ndarray):
        return bool(item) and item[0].ndim > 0
    return _is_picture(item[0]) or (isinstance(item[0], list) and len(item) == 2 and not isinstance(item[1], list))


def _nested(part: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        why = "its images have different sizes" if "inhomogeneous" in str(error) else one_line(error)
        raise ShapeError(f"{part} is not a regular array of shape (images, ...): {why}") from error


def _with_type(array: NDArray[Any]) -> NDArray[Any]:
    """An array of Python objects with the type of its numbers, if all are numbers, as in a table of mixed columns."""
    if array.dtype != object or not array.size:
        return array
    try:
        found = np.array(array.tolist())
    except (ValueError, OverflowError):
        return array
    return found if found.dtype.kind in "buif" and found.shape == array.shape else array


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape of an image from text.

    >>> parse_shape("28x28"), parse_shape("3, 16, 16")
    ((28, 28), (3, 16, 16))

    Args:
        text: Sizes separated by x, commas or spaces.

    Returns:
        The shape.

    Raises:
        ShapeError: The text is not a shape.
    """
    words = text.lower().replace("x", " ").replace(",", " ").split()
    try:
        shape = tuple(int(word) for word in words)
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ShapeError(f"'{text}' is not the shape of an image; write it as 28x28, or 16x16x3 for colors")
    return shape


def as_labels(part: str, labels: Any, count: int) -> NDArray[Any]:
    """Labels of `count` images as an array with one entry for each."""
    found = as_array(f"labels of {part}", labels).array
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if not found.ndim or len(found) != count:
        raise ShapeError(f"there are {len(found) if found.ndim else 1:,} labels of {part} for {count:,} images")
    return found


def numbered(labels: Sequence[NDArray[Any]]) -> tuple[list[Tensor], tuple[str, ...]]:
    """Labels as tensors; text is numbered in alphabetic order, and its names are returned."""
    if any(one.dtype.kind in "USO" for one in labels):
        names = sorted({str(label) for one in labels for label in one})
        number = {name: index for index, name in enumerate(names)}
        return [torch.tensor([number[str(label)] for label in one]) for one in labels], tuple(names)
    return [torch.from_numpy(np.ascontiguousarray(one)) for one in labels], ()
