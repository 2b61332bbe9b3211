"""Arrays on disk: the same data as in memory, read batch by batch."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training.runs import small

import softspin
from softspin.data import formats, from_arrays, load
from softspin.data.mapped import MappedTable, table_chunks
from softspin.data.rows import RowReader
from softspin.errors import DataError, SupportError

KINDS = {
    "bits": lambda r: r.integers(0, 2, (50, 3, 3)).astype(np.uint8),
    "float bits": lambda r: r.integers(0, 2, (50, 3, 3)).astype(np.float64),
    "gray": lambda r: r.random((50, 3, 3)).astype(np.float32),
    "bytes": lambda r: r.integers(0, 256, (50, 3, 3)).astype(np.uint8),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::softspin.errors.DataWarning")
def test_an_array_on_disk_gives_the_same_data(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = KINDS[kind](np.random.default_rng(7))
    np.save(tmp_path / "a.npy", array)
    in_memory = load(tmp_path / "a.npy")
    monkeypatch.setattr(formats, "MAP_ABOVE", 100)
    monkeypatch.setattr("softspin.data.values.CHUNK_BYTES", 200)
    monkeypatch.setattr("softspin.data.mapped.CHUNK_BYTES", 200)
    on_disk = load(tmp_path / "a.npy")
    assert isinstance(in_memory.train, torch.Tensor)
    for part in ("train", "valid", "test"):
        table, wanted = getattr(on_disk, part), getattr(in_memory, part)
        assert isinstance(table, MappedTable)
        assert isinstance(table.array, np.memmap)
        assert (len(table), table.shape, table.dtype) == (len(wanted), wanted.shape, wanted.dtype)
        index = torch.tensor([[3, 0], [1, 4]])
        assert torch.equal(table[index], wanted[index])
        assert torch.equal(table[1:4], wanted[1:4])
        assert torch.equal(table[[4, 2]], wanted[[4, 2]])
        assert len(list(table_chunks(table))) > 1 or len(table) < 10
    assert on_disk.fingerprint == in_memory.fingerprint
    in_memory = dataclasses.replace(in_memory)  # without the mean that is cached
    assert torch.equal(on_disk.pixel_mean(), in_memory.pixel_mean())
    assert on_disk.pixel_mean().tolist() == pytest.approx(in_memory.train.double().mean(0).tolist(), rel=1e-6)
    index = torch.arange(20)
    batches = [data.batch(index, torch.Generator().manual_seed(1)) for data in (on_disk, in_memory)]
    assert torch.equal(*batches)
    assert torch.equal(*[data.every_image(torch.Generator().manual_seed(1)) for data in (on_disk, in_memory)])
    moved = on_disk.train.to("meta")
    assert moved.shape == in_memory.train.shape


@pytest.mark.parametrize("kind", ["bits", "bytes"])
@pytest.mark.filterwarnings("ignore::softspin.errors.DataWarning")
def test_training_on_an_array_on_disk(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", KINDS[kind](np.random.default_rng(7)))
    config = small(steps=4, evaluate_every=2, checkpoint_every=2)
    results = []
    for name, mode in (("disk", "r"), ("memory", None)):
        data = from_arrays(np.load(tmp_path / "a.npy", mmap_mode=mode))  # type: ignore[arg-type]
        assert isinstance(data.train, MappedTable) == (mode == "r")
        results.append(softspin.fit(config, data, tmp_path / name).result)
    (disk,), (memory,) = results  # type: ignore[misc]
    assert disk.nll == memory.nll
    assert disk.fingerprint == memory.fingerprint
    assert disk.baseline_nll == memory.baseline_nll


VIEWS = {
    "all": lambda a: a,
    "part": lambda a: a[5:40],
    "every third": lambda a: a[1::3],
    "backwards": lambda a: a[::-1],
    "of the pixels": lambda a: a[:, 1:, ::2],
    "part of a part": lambda a: a[3:][:, 1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["uint8", "bool", ">f8", "float32", "int16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_a_map_are_read_from_its_file(view: str, dtype: str, order: Any, tmp_path: Path) -> None:
    array = np.random.default_rng(3).integers(0, 200, (50, 3, 4)).astype(dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    wanted, mapped = (VIEWS[view](a) for a in (array, np.load(tmp_path / "a.npy", mmap_mode="r")))
    reader = RowReader(mapped)
    assert (reader._path is not None) == (order == "C" and view != "of the pixels")
    for rows in (slice(None), slice(2, 7), slice(9, 2, -2), slice(4, 4), np.array([3, 0, 3, -1]), np.arange(0)):
        found = reader[rows]
        assert not isinstance(found, np.memmap) or reader._path is None
        assert found.dtype == array.dtype
        assert np.array_equal(found, wanted[rows])
    with pytest.raises(IndexError):
        reader[np.array([len(wanted)])]


def test_a_private_map_is_not_read_from_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 3)))
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[2] = 7
    assert RowReader(private)[1:4].tolist() == [[0] * 3, [7] * 3, [0] * 3]
    assert RowReader(private[[2, 1]])[:].tolist() == [[7] * 3, [0] * 3], "a copy in memory"


def test_a_copied_table_does_not_need_the_first_one(tmp_path: Path) -> None:
    """The number of the open file would be that of any file that is opened later."""
    np.save(tmp_path / "a.npy", np.eye(20, 3, dtype=np.uint8))
    first = MappedTable(np.load(tmp_path / "a.npy", mmap_mode="r"))
    copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first)), MappedTable(first.array)]
    copies[-1]._reader = copy.copy(first._reader)
    del first
    with (tmp_path / "b").open("wb+") as other:
        other.write(bytes(1000))
        for table in copies:
            assert torch.equal(table[:], torch.eye(20, 3, dtype=torch.uint8))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((5, 3), np.uint8))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    reader = RowReader(mapped)
    os.truncate(tmp_path / "a.npy", 128 + 3 * 3 + 1)
    assert reader[:3].tolist() == [[1] * 3] * 3
    for rows in (slice(2, 5), np.array([0, 3])):
        with pytest.raises(DataError, match=r"a\.npy: it was truncated while it was in use; it has 138 bytes"):
            reader[rows]
    (tmp_path / "a.npy").unlink()
    with pytest.raises(DataError, match=r"a\.npy: No such file"):
        RowReader(mapped)


def test_values_on_disk_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softspin.data.values.CHUNK_BYTES", 64)
    array = np.zeros((50, 4), np.float32)
    array[33, 2] = np.nan
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(SupportError, match=r"NaN, first at index \[33, 2\]"):
        from_arrays(np.load(tmp_path / "a.npy", mmap_mode="r"))
    array[33, 2] = -0.7
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(SupportError, match=r"from -0.7 to 0"):
        from_arrays(np.load(tmp_path / "a.npy", mmap_mode="r"))


def test_a_file_larger_than_memory(tmp_path: Path) -> None:
    """320 MiB of data in a process that may allocate only 128 MiB more. The file has holes, so it is quick to write."""
    path = tmp_path / "large.npy"
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (10 << 10, 1 << 15))
    array[::100, 7] = 1
    del array
    code = f"""
import re, resource, torch, numpy as np, softspin.data
softspin.data.formats.MAP_ABOVE = 1 << 20
used = 1024 * int(re.search(r'VmData:\\s*(\\d+)', open('/proc/self/status').read())[1])
resource.setrlimit(resource.RLIMIT_DATA, (used + (128 << 20),) * 2)
try:
    np.load({str(path)!r})
except MemoryError:
    print('too large')
data = softspin.data.load({str(path)!r})
print(isinstance(data.train.array, np.memmap), len(data.train), data.binarization)
print(int(sum(softspin.data.mapped.pixel_sums(part)[7] for part in (data.train, data.valid, data.test))))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == ["too large", "True 8192 static", "103"], found.stderr
