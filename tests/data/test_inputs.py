"""Images as people have them in Python become the same data set, or are refused in one line."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse import coo_matrix, csr_array, csr_matrix
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)

from softspin.data import as_dataset, as_images, from_arrays, parse_shape
from softspin.data.inputs import as_array, picture_array
from softspin.errors import DataError, DataWarning, ShapeError, SoftspinError, SupportError

BITS = np.random.default_rng(3).integers(0, 2, (30, 4, 5)).astype(np.uint8)
CLASSES = np.arange(30) % 7


class Items:
    """A map-style data set; it has a length and items, and no base class."""

    def __init__(self, item: Callable[[int], Any], count: int = len(BITS)) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Endless(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.zeros(4, 5)


TENSOR = torch.from_numpy(BITS)
FORMS = {
    "array": BITS,
    "bool array": BITS.astype(bool),
    "big-endian": BITS.astype(">f8"),
    "not contiguous": np.asfortranarray(BITS),
    "negative strides": BITS[::-1].copy()[::-1],
    "read only": np.frombuffer(BITS.tobytes(), np.uint8).reshape(BITS.shape),
    "tensor": TENSOR,
    **{str(dtype): TENSOR.to(dtype) for dtype in (torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16)},
    "float64": TENSOR.double(),
    "gradient": TENSOR.float().requires_grad_(),
    "strided tensor": TENSOR.transpose(1, 2).contiguous().transpose(1, 2),
    "sparse": TENSOR.float().to_sparse(),
    "nested list": BITS.tolist(),
    "list of tensors": list(TENSOR),
    "list of arrays": list(BITS),
    "list of pairs": list(zip(TENSOR, CLASSES.tolist(), strict=True)),
    "tensor data set": TensorDataset(TENSOR, torch.from_numpy(CLASSES)),
    "tensors alone": TensorDataset(TENSOR),
    "map-style": Items(lambda i: TENSOR[i].float()),
    "pairs": Items(lambda i: (BITS[i], int(CLASSES[i]))),
    "mappings": Items(lambda i: {"image": BITS[i], "label": int(CLASSES[i])}),
    "PIL": Items(lambda i: (Image.fromarray(BITS[i].astype(bool)), int(CLASSES[i]))),
    "lists of numbers": Items(lambda i: BITS[i].tolist()),
    "pairs of lists": Items(lambda i: (BITS[i].tolist(), int(CLASSES[i]))),
    "subset": Subset(TensorDataset(TENSOR), range(30)),
    "loader": DataLoader(TensorDataset(TENSOR, torch.from_numpy(CLASSES)), batch_size=7),
    "shuffled loader": DataLoader(TensorDataset(TENSOR), batch_size=7, shuffle=True, drop_last=True),
    "other sampler": DataLoader(TensorDataset(TENSOR), batch_size=7, sampler=range(30)),
    "own collation": DataLoader(
        TensorDataset(TENSOR, torch.from_numpy(CLASSES)),
        4,
        collate_fn=lambda items: [torch.stack(x) for x in zip(*items, strict=True)],
    ),
}
LABELED = {"list of pairs", "pairs of lists", "tensor data set", "pairs", "mappings", "PIL", "loader", "own collation"}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_data(form: str) -> None:
    data = as_dataset(FORMS[form])
    assert data.fingerprint == from_arrays(BITS).fingerprint
    assert data.shape == (4, 5)
    if form in LABELED:
        assert data.labels is not None
        assert data.places is not None
        together = torch.cat(data.labels[:3])
        assert np.array_equal(together[data.places.argsort()].numpy(), CLASSES)
    else:
        assert data.labels is None
    assert np.array_equal(as_images(FORMS[form], (4, 5)).numpy(), BITS.reshape(30, 20))


def test_sparse_matrices_and_masked_arrays_without_missing_values() -> None:
    flat = BITS.reshape(30, 20)
    wanted = from_arrays(flat).fingerprint
    for one in (csr_matrix(flat), csr_array(flat), coo_matrix(flat), np.ma.masked_array(flat)):
        assert as_dataset(one).fingerprint == wanted
        assert np.array_equal(as_images(one, (4, 5)).numpy(), flat)


def test_a_loader_of_some_images_gives_only_these() -> None:
    loader = DataLoader(TensorDataset(TENSOR), 4, sampler=SubsetRandomSampler([3, 5, 8]))
    found = {row.tobytes() for row in as_array("train", loader).array}
    assert found == {BITS[index].tobytes() for index in (3, 5, 8)}
    data = TensorDataset(TENSOR)
    few = DataLoader(data, 4, sampler=RandomSampler(data, num_samples=5))
    assert len(as_array("train", few).array) == 5
    assert len(as_array("train", DataLoader(data, 4, sampler=RandomSampler(data, num_samples=60))).array) == 60


def test_pairs_mappings_and_given_splits() -> None:
    pair = as_dataset((BITS, CLASSES))
    assert pair.labels is not None
    assert sorted(torch.cat(pair.labels[:3]).tolist()) == sorted(CLASSES.tolist())
    given = as_dataset(
        {"x_train": BITS[:20], "X_val": TENSOR[20:24], "test_images": BITS[24:], "y_train": CLASSES[:20]}
    )
    assert np.array_equal(given.train, BITS[:20].reshape(20, 20))
    assert np.array_equal(given.valid, BITS[20:24].reshape(4, 20))
    assert np.array_equal(given.test, BITS[24:].reshape(6, 20))
    assert given.labels is None  # only one of three splits has labels
    named = from_arrays(
        BITS[:2], BITS[2:4], BITS[4:6], labels={"train": ["b", "a"], "valid": ["a", "a"], "test": ["c", "b"]}
    )
    assert named.labels is not None
    assert named.labels.names == ("a", "b", "c")
    assert [part.tolist() for part in named.labels[:3]] == [[1, 0], [0, 0], [2, 1]]


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ((BITS[:20], BITS[20:]), DataError, r"a tuple of 2 arrays; give a mapping that names them"),
        (Endless(), DataError, "train is of type Endless; expected a tensor, an array, a list"),
        (DataLoader(Endless()), DataError, "a DataLoader of a data set without a length"),
        (iter([1]), DataError, "train is of type list_iterator"),
        (3.5, DataError, "train is of type float"),
        (None, DataError, "train is of type NoneType; expected a tensor, an array, a list"),
        ([[0, 1], [1]], ShapeError, r"\(images, ...\): its images have different sizes"),
        (TENSOR.to("meta"), DataError, "a tensor on the device 'meta' has no values"),
        ([], ShapeError, r"it has shape \(0,\)"),
        (Items(lambda i: BITS[i], 0), ShapeError, "train has no images"),
        (Items(lambda i: BITS[i, : 3 + i % 2]), ShapeError, r"image 1 has \(4, 5\), the first \(3, 5\)"),
        (Items(lambda i: {"pixels": 3}), DataError, "has the keys pixels; expected one named image"),
        (TENSOR.to(torch.complex64), SupportError, "not complex64"),
        ({"a": BITS, "b": BITS}, DataError, "should hold one array, or arrays named train"),
        ({"x_train": BITS, "train": BITS}, DataError, "has both 'x_train' and 'train' for train"),
        ({"x": BITS, "y": CLASSES[:5]}, ShapeError, "there are 5 labels of train for 30 images"),
        (BITS * 0.5 * 254, SupportError, "from 0 to 127, .* divide gray levels of 0 .. 255 by 255"),
        (BITS * 60_000.0, SupportError, "from 0 to 60000, .* divide gray levels of 16 bits by 65535"),
        (BITS * 2.0 - 1, SupportError, r"from -1 to 1, .*; convert spins with \(x \+ 1\) / 2"),
        (BITS * 1.5 - 0.8, SupportError, r"from -0.8 to 0.7, .*; rescale values in \[-1, 1\] with \(x \+ 1\) / 2"),
        (BITS * 1.05, SupportError, r"from 0 to 1.05, .*; clip them to \[0, 1\]"),
        (
            np.where(np.arange(600).reshape(30, 4, 5) == 47, np.nan, BITS),
            SupportError,
            r"NaN, first at index \[2, 1, 2\]",
        ),
        ("digits", DataError, "train is of type str"),
        (Items(lambda i: f"{i}.png"), DataError, "an item of the data is of type str; expected a tensor"),
        (Items(lambda i: None), DataError, "an item of the data is of type NoneType"),
        (Items(lambda i: object()), DataError, "an item of the data is of type object; expected a tensor"),
        (
            random_split(TensorDataset(TENSOR), [20, 10]),
            DataError,
            'train is a list of data sets; give one of them, or name them: {"train": a, "test": b}',
        ),
        (["a", "b"], SupportError, "train must hold booleans, integers or floats, not str"),
        (np.array([[object()]]), SupportError, "train must hold booleans, integers or floats, not object"),
        (np.ma.masked_array(BITS, BITS == 0), DataError, "a masked array with missing values; replace them first"),
    ],
)
def test_anything_else_is_refused_in_one_line(data: Any, error: type[SoftspinError], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        as_dataset(data)
    assert "\n" not in str(raised.value)


def test_bytes_are_divided_by_255() -> None:
    gray = np.random.default_rng(1).integers(0, 256, (20, 6)).astype(np.uint8)
    with pytest.warns(
        DataWarning, match=r"gray levels of train, valid, test are bytes \(uint8\); they were divided by 255"
    ):
        data = from_arrays(gray[:10], gray[10:14], gray[14:])
    assert data.binarization == "per-batch"
    assert np.array_equal(data.train, gray[:10].astype(np.float32) / np.float32(255))
    # One split may be dark: all bytes have one scale.
    with pytest.warns(DataWarning, match="train, valid, test are bytes"):
        dark = from_arrays(gray, gray & 1, gray)
    assert not bool(dark.valid[:].sum() > 10), "bytes of 1 are nearly black"
    with pytest.warns(DataWarning, match="divided by 255"):
        sharp = from_arrays(BITS * np.uint8(255))
    assert sharp.binarization == "static"
    assert sharp.fingerprint == from_arrays(BITS).fingerprint


def test_gray_images_for_a_model_are_binarized_as_held_out_ones_are() -> None:
    gray = np.random.default_rng(2).random((8, 4, 5))
    held_out = from_arrays(gray, gray, gray).test
    with pytest.warns(DataWarning, match="binarized with a fixed seed, each pixel 1 with the probability of its gray"):
        assert torch.equal(as_images(gray, (4, 5)), torch.as_tensor(held_out))
    accepted = as_images(gray, (4, 5), lambda x: None)
    assert np.array_equal(accepted.numpy(), gray.reshape(8, 20).astype(np.float32))


@pytest.mark.parametrize(
    ("shape", "own", "text"),
    [
        ((4, 5), (4, 5), r"shape \(4, 5\); expected \(N, 4, 5\) or \(N, 20\) .*; add a dimension to a single image"),
        ((3, 19), (20,), r"expected \(N, 20\) with N >= 1$"),
        ((0, 20), (20,), r"with N >= 1$"),
        ((2, 3, 4, 5), (4, 5, 3), r"\(N, 4, 5, 3\) or \(N, 60\) with N >= 1; permute their dimensions"),
    ],
)
def test_images_of_another_shape_are_refused(shape: tuple[int, ...], own: tuple[int, ...], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        as_images(np.zeros(shape), own)


def test_flat_and_single_channel_images_fit() -> None:
    for shape, own in (((2, 20), (4, 5)), ((2, 1, 4, 5), (4, 5)), ((2, 4, 5, 1), (4, 5)), ((2, 4, 5), (20,))):
        assert as_images(np.ones(shape), own).shape == (2, 20)


def test_pictures_of_every_mode() -> None:
    levels = np.array([[0, 100], [200, 255]], np.uint8)
    gray = Image.fromarray(levels)
    assert np.array_equal(picture_array(gray), levels)
    assert np.array_equal(picture_array(gray.convert("LA")), levels)
    assert np.array_equal(picture_array(gray.convert("RGBA"))[..., 1], levels)
    assert np.array_equal(picture_array(gray.convert("P"))[..., 2], levels)
    assert picture_array(gray.convert("1")).dtype == bool
    stream = io.BytesIO()
    Image.fromarray(levels.astype(np.uint16) * 257).save(stream, "png")
    assert np.array_equal(picture_array(Image.open(stream)), levels)


@pytest.mark.parametrize("text", ["", "x", "0x3", "axb", "-2x3", "28x"])
def test_shapes_are_parsed(text: str) -> None:
    assert parse_shape("3x16x16") == parse_shape("3,16,16") == (3, 16, 16)
    if text == "28x":
        assert parse_shape(text) == (28,)
    else:
        with pytest.raises(ShapeError, match="is not the shape of an image; write it as 28x28"):
            parse_shape(text)


def test_sparse_matrices_and_anndata_are_the_same_data() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    flat = BITS.reshape(30, 20)
    expected = from_arrays(flat).fingerprint
    for made in (sparse.csr_matrix(flat), sparse.coo_array(flat), {"train": sparse.csc_matrix(flat)}):
        assert as_dataset(made).fingerprint == expected
    anndata = pytest.importorskip("anndata")
    counts = 3 * flat.astype(np.float32)
    for x in (counts, sparse.csr_matrix(counts)):
        found = as_dataset(anndata.AnnData(x), binarize=False)
        assert found.fingerprint == from_arrays(counts, binarize=False).fingerprint


def test_a_table_of_mixed_columns_is_read_and_the_first_text_in_it_is_named() -> None:
    """pandas converts a table of several types to Python objects, numbers first."""
    mixed = np.array([[1.5, True, 2], [0.5, False, 3], [2.5, True, 4]], dtype=object)
    found = as_array("train", mixed).array
    assert found.dtype == np.float64
    assert (found == mixed.astype(float)).all()
    assert as_array("labels", np.array([3, 1], dtype=object)).array.dtype.kind == "i"
    for wrong, text in (("a", r"not str \(at index \[1, 2\]\)"), (None, r"not a missing value \(at index \[1, 2\]\)")):
        mixed[1, 2] = wrong
        with pytest.raises(SupportError, match=f"train must hold booleans, integers or floats, {text}"):
            from_arrays(mixed, binarize=False)
