"""Data that are not binarized: counts, categories and real numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softspin.api import load_data
from softspin.config import Config
from softspin.data import Dataset, as_dataset, as_images, from_arrays, load
from softspin.errors import DataError, DataWarning, SupportError

COUNTS = np.arange(60).reshape(20, 3) * 100


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (COUNTS, torch.float32),
        (COUNTS.astype(np.uint16), torch.float32),
        (COUNTS / 7 - 50, torch.float32),
        ((COUNTS % 256).astype(np.uint8), torch.uint8),
        (COUNTS % 3 == 0, torch.uint8),
    ],
)
def test_values_stay_as_they_are(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: torch.dtype) -> None:
    data = from_arrays(array, binarize=False)
    assert data.binarization == "none"
    assert {table.dtype for table in (data.train, data.valid, data.test)} == {dtype}
    np.testing.assert_array_equal(data.every_image().numpy(), array.astype(np.float32))
    np.testing.assert_array_equal(as_images(array, (3,), binarize=False).numpy(), data.every_image().to(dtype).numpy())


def test_files_in_memory_and_on_disk_are_the_same(tmp_path: Path) -> None:
    for array in (COUNTS, (COUNTS % 256).astype(np.uint8)):
        np.save(tmp_path / "own.npy", array)
        whole = load(tmp_path / "own.npy", binarize=False)
        mapped = from_arrays(np.load(tmp_path / "own.npy", mmap_mode="r"), binarize=False)
        assert not isinstance(mapped.train, torch.Tensor)
        assert mapped.train.dtype == whole.train.dtype
        assert mapped.fingerprint == whole.fingerprint
        torch.testing.assert_close(mapped.spec.mean, whole.spec.mean)


def test_a_table_of_text_keeps_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("\n".join(f"{i},{-i},{i}.5" for i in range(30)))
    found = load(tmp_path / "own.csv", binarize=False, split=False).test
    assert found[29].tolist() == [29, -29, 29.5]


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e39])
def test_values_must_be_finite_in_float32(value: float) -> None:
    array = COUNTS.astype(np.float64)
    array[3, 1] = value
    text = r"first at index \[3, 1\]; values must be finite" if np.isnan(value) else "beyond float32"
    with pytest.raises(SupportError, match=text):
        from_arrays(array, binarize=False)
    with pytest.raises(SupportError, match=text):
        as_images(array, (3,), binarize=False)
    table = torch.from_numpy(array).float()
    with pytest.raises(SupportError, match="train contains NaN or infinity"):
        Dataset("own", table, table, table, (3,), "none", "a test")
    with pytest.raises(SupportError, match="train must be uint8 or float32, not float64"):
        Dataset("own", table.double(), table, table, (3,), "none", "a test")


def test_the_data_set_must_fit_the_likelihood() -> None:
    gaussian = Config(likelihood="gaussian")
    gray = from_arrays(np.linspace(0, 1, 60).reshape(20, 3))
    with pytest.raises(DataError, match=r"is binarized; likelihood = gaussian needs values as they are: .*=False\)$"):
        load_data(gaussian, gray)
    with pytest.raises(DataError, match=r"is not binarized; likelihood = bernoulli needs binary data: .*=True\)$"):
        load_data(Config(), from_arrays(COUNTS, binarize=False))
    assert load_data(gaussian, as_dataset(COUNTS % 2)).binarization == "static"  # bits are numbers, too
    assert load_data(gaussian, {"train": COUNTS, "test": COUNTS}).binarization == "none"


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (1e8 + np.arange(60.0).reshape(20, 3), "has numbers such as 100000000, whose differences are lost in float32"),
        (2**40 + np.arange(60).reshape(20, 3), "has numbers such as 1099511627776, whose differences are lost"),
        (1e-60 * (1 + np.arange(60.0)).reshape(20, 3), "some values of train are too small for float32 and become 0"),
    ],
    ids=["offset", "counts", "small"],
)
def test_numbers_that_float32_cannot_tell_apart_are_told(array: Any, text: str, tmp_path: Path) -> None:
    """The density of rounded numbers would be another one. In memory, and from disk by chunks."""
    with pytest.warns(DataWarning, match=text):
        from_arrays(array, binarize=False)
    np.save(tmp_path / "own.npy", array)
    with pytest.warns(DataWarning, match=text):
        from_arrays(np.load(tmp_path / "own.npy", mmap_mode="r"), binarize=False)
    from_arrays((array - array.min()) / (array.max() - array.min()), binarize=False)  # warnings are errors
    from_arrays(array * 0 + 1e8 + 1, binarize=False)
