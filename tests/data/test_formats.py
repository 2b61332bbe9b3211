"""Files and folders of images: every format gives the same data; damaged, hostile and huge ones end in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from softspin.data import Dataset, as_dataset, from_arrays, limits, load
from softspin.errors import DataError, DataWarning, MissingExtraError, ShapeError, SupportError

BITS = np.random.default_rng(5).integers(0, 2, (40, 3, 4)).astype(np.uint8)
CLASSES = np.arange(40) % 3
FLAT = BITS.reshape(40, 12)


def labels_in_file_order(data: Dataset) -> list[int]:
    assert data.labels is not None
    assert data.places is not None
    return torch.cat(data.labels[:3])[data.places.argsort()].tolist()


def write_csv(path: Path, table: np.ndarray, header: str = "", mark: str = ",") -> Path:
    path.write_text(header + "".join(mark.join(map(str, row)) + "\n" for row in table.tolist()))
    return path


def test_one_array_in_every_format(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", BITS)
    np.savez_compressed(tmp_path / "a.npz", images=BITS, labels=CLASSES)
    torch.save(torch.from_numpy(BITS), tmp_path / "a.pt")
    torch.save((torch.from_numpy(BITS), torch.from_numpy(CLASSES)), tmp_path / "pair.pt")
    torch.save({"x": torch.from_numpy(BITS).bfloat16(), "epoch": 3}, tmp_path / "dict.pt")
    write_csv(tmp_path / "a.csv", FLAT)
    with_labels = np.c_[FLAT[:, :5], CLASSES, FLAT[:, 5:]]
    names = [f"pixel{i}" for i in range(5)] + ["Label"] + [f"pixel{i}" for i in range(5, 12)]
    write_csv(tmp_path / "labels.csv", with_labels, ";".join(names) + "\n", ";")
    wanted = from_arrays(BITS).fingerprint
    for name in ("a.npy", "a.npz", "a.pt", "pair.pt", "dict.pt", "a.csv", "labels.csv"):
        assert load(tmp_path / name).fingerprint == wanted, name
    for name in ("a.npz", "pair.pt", "labels.csv"):
        assert labels_in_file_order(load(tmp_path / name)) == CLASSES.tolist(), name
    assert load(tmp_path / "a.csv").labels is None


def test_labels_of_a_table_may_be_text(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", '"owl"'])[np.arange(len(FLAT)) % 3]
    lines = [",".join([*map(str, row), name]) for row, name in zip(FLAT.tolist(), names, strict=True)]
    header = ",".join([f"p{i}" for i in range(FLAT.shape[1])] + ["label"])
    (tmp_path / "a.csv").write_text("\n".join([header, *lines]) + "\n")
    data = load(tmp_path / "a.csv")
    assert data.fingerprint == from_arrays(BITS).fingerprint
    assert data.labels is not None
    assert data.labels.names == ("cat", "dog", "owl")
    assert labels_in_file_order(data) == [i % 3 for i in range(len(FLAT))]
    (tmp_path / "a.csv").write_text("\n".join([header, lines[0].replace("0", "x", 1), *lines[1:]]) + "\n")
    with pytest.raises(DataError, match=r"line 2, column \d+: 'x' is not a number"):
        load(tmp_path / "a.csv")


def test_held_out_images_alone_are_not_trained_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_test=BITS)
    with pytest.raises(DataError, match=r"own arrays a.npz: there is an array for test, but none for train"):
        load(tmp_path / "a.npz")
    assert torch.equal(load(tmp_path / "a.npz", split=False).test, torch.from_numpy(FLAT))
    with pytest.raises(DataError, match="none for train"):
        as_dataset({"test": BITS})


@pytest.mark.parametrize(
    "names",
    [
        ("train", "valid", "test"),
        ("x_train", "x_val", "x_test"),
        ("X_train", "X_valid", "X_test"),
        ("train_images", "val_images", "test_images"),
        ("train_data", "validation_data", "testing_data"),
    ],
)
def test_splits_by_their_usual_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    parts = dict(zip(names, (BITS[:20], BITS[20:30], BITS[30:]), strict=True))
    np.savez(tmp_path / "a.npz", **parts, notes=np.zeros(3))  # type: ignore[arg-type]
    torch.save({name: torch.from_numpy(part) for name, part in parts.items()}, tmp_path / "a.pt")
    (tmp_path / "folder").mkdir()
    for name, part in parts.items():
        np.save(tmp_path / "folder" / f"{name}.npy", part)
    wanted = from_arrays(BITS[:20], BITS[20:30], BITS[30:]).fingerprint
    for path in ("a.npz", "a.pt", "folder"):
        assert load(tmp_path / path).fingerprint == wanted


def test_labels_of_given_splits(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz",
        train_images=BITS[:20], train_labels=CLASSES[:20, None], val_images=BITS[20:30], val_labels=CLASSES[20:30],
        test_images=BITS[30:], test_labels=CLASSES[30:],
    )  # fmt: skip
    labels = load(tmp_path / "a.npz").labels
    assert labels is not None
    assert [part.tolist() for part in labels[:3]] == [
        CLASSES[:20].tolist(),
        CLASSES[20:30].tolist(),
        CLASSES[30:].tolist(),
    ]


def test_all_images_of_a_file_without_a_split(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", BITS[:1])
    assert load(tmp_path / "one.npy", split=False).test.tolist() == FLAT[:1].tolist()
    np.savez(tmp_path / "three.npz", train=BITS[:20], valid=BITS[20:30], test=BITS[30:])
    assert np.array_equal(load(tmp_path / "three.npz", split=False).test, FLAT)
    gray = np.random.default_rng(0).random((5, 12))
    np.save(tmp_path / "gray.npy", gray)
    assert torch.equal(
        torch.as_tensor(load(tmp_path / "gray.npy", split=False).test),
        torch.as_tensor(from_arrays(gray, gray, gray).test),
    )


def test_whole_numbers_of_a_table_of_text_are_bytes(tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (20, 4))
    with pytest.warns(DataWarning, match="divided by 255"):
        data = load(write_csv(tmp_path / "a.csv", levels))
    assert {tuple(row) for row in np.rint(data.train.numpy() * 255).tolist()} <= {tuple(row) for row in levels.tolist()}


def test_a_folder_of_images(tmp_path: Path) -> None:
    for index, (image, label) in enumerate(zip(BITS, CLASSES, strict=True)):
        folder = tmp_path / "all" / f"class {label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image * np.uint8(255)).save(folder / f"{index:02}.png")
    (tmp_path / "all" / ".hidden.png").touch()
    (tmp_path / "all" / ".cache").mkdir()
    (tmp_path / "all" / ".cache" / "0.png").touch()
    (tmp_path / "all" / "notes.txt").touch()
    order = np.argsort(CLASSES, kind="stable")
    with pytest.warns(DataWarning, match="divided by 255"):
        data = load(tmp_path / "all")
    assert data.fingerprint == from_arrays(BITS[order]).fingerprint
    assert data.labels is not None
    assert data.labels.names == ("class 0", "class 1", "class 2")
    assert labels_in_file_order(data) == CLASSES[order].tolist()
    assert (data.name, data.source) == ("all", "own images all")


def test_a_folder_with_splits_and_mixed_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, images in (("train", BITS[:30]), ("test", BITS[30:])):
        (tmp_path / "split" / part).mkdir(parents=True)
        for index, image in enumerate(images):
            picture = Image.fromarray(image * np.uint8(255))
            picture = picture.convert(("L", "1", "RGB")[index % 3]) if part == "train" else picture.convert("RGB")
            picture.save(tmp_path / "split" / part / f"{index:02}.png")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(DataWarning, match="divided by 255"):
        data = load("split")  # a folder without a slash
    assert data.shape == (3, 4, 3)
    assert np.array_equal(data.test, np.repeat(FLAT[30:], 3, axis=1))


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    for index, name in enumerate(("control", "test", "test")):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(BITS[index].astype(bool)).save(tmp_path / name / f"{index}.png")
    data = load(tmp_path)
    assert data.labels is not None
    assert data.labels.names == ("control", "test")


def test_bad_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"has no images \(.png, .jpg.* and no .npy"):
        load(tmp_path)
    Image.fromarray(BITS[0]).save(tmp_path / "a.png")
    Image.fromarray(BITS[0].T).save(tmp_path / "b.png")
    with pytest.raises(ShapeError, match=r"one size; .*a.png is 4 x 3, .*b.png is 3 x 4; resize them first"):
        load(tmp_path)
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cannot read .*b.png: it is damaged, or not an image; remove it$"):
        load(tmp_path)
    (tmp_path / "b.png").unlink()
    with pytest.raises(DataError, match=r"the images of .* would take .* GiB"):
        load(tmp_path, limit=1e-9)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"a folder of images needs the package Pillow; .*images"):
        load(tmp_path)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_torch_files_run_no_code(tmp_path: Path) -> None:
    witness = tmp_path / "executed"
    for legacy in (False, True):
        torch.save([Trap(witness)], tmp_path / "trap.pt", _use_new_zipfile_serialization=not legacy)
        with pytest.raises(
            DataError, match=r"cannot read .*trap.pt: .*other than tensors, which are never loaded"
        ) as raised:
            load(tmp_path / "trap.pt")
        assert "\n" not in str(raised.value)
        assert not witness.exists()
    torch.load(tmp_path / "trap.pt", weights_only=False)  # companion: the pickle does create the file
    assert witness.exists()
    torch.save({"a": 3}, tmp_path / "none.pt")
    with pytest.raises(DataError, match="holds a dict; expected a tensor, or a dict of tensors"):
        load(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv has no lines of numbers; write one image per line"),
        ("a,b\n\n", "a.csv has no lines of numbers"),
        ("1,2\n\n3\n", "cannot read .*a.csv: line 3 has 1 values, those before it 2; each line is one image"),
        ("a,b\n1,x\n", "cannot read .*a.csv: line 2, column 2: 'x' is not a number; write numbers, separated"),
        ("1,2\n1,\n", "cannot read .*a.csv: line 2, column 2: a value is missing"),
        ("1 2\n3 4\n5\n", "cannot read .*a.csv: line 3 has 1 values, those before it 2"),
        ("True,False\nTrue,True\n", "line 2, column 1: 'True' is not a number; write 1 for true and 0 for false"),
        ("0,5;1\n0,25;0\n", "line 2, column 1: '0,25' is not a number; write it with a decimal point"),
        (f"a,b\n1,{'x' * 99}\n", f"column 2: '{'x' * 30}...' is not a number"),
        ("label,y,p\n1,2,3\n", "2 columns of labels; keep one"),
        ("0.5,nan\n0.5,0.5\n0.5,0.5\n", r"NaN, first at index \[0, 1\]"),
    ],
)
def test_bad_tables_of_text(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises((DataError, SupportError), match=message):
        load(tmp_path / "a.csv")


def test_a_table_that_is_not_utf8_is_named_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("Größe,b\n1,0\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"cannot read .*a.csv: it is not text in UTF-8; save it as UTF-8"):
        load(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("numpy", None),
        ("numpy header", None),
        ("quoted", None),
        ("pandas", "the first column of a.csv (without a name) was left out, because it numbers the rows"),
        ("ids", "the first column of a.csv (ID) was left out, because it numbers the rows"),
        ("numbers", "the first line of a.csv, 0 to 11, was taken for numbers of columns"),
    ],
)
def test_tables_as_programs_write_them(form: str, said: str | None, tmp_path: Path) -> None:
    """Row numbers are no pixels, and column numbers no image. All of these are the same data."""
    path, columns = tmp_path / "a.csv", ",".join(map(str, range(FLAT.shape[1])))
    rows = [",".join(map(str, row)) for row in FLAT.tolist()]
    if form.startswith("numpy"):
        np.savetxt(path, FLAT, header="p q r" if "header" in form else "")
    elif form == "quoted":
        path.write_text("\n".join('"' + row.replace(",", '","') + '"' for row in [columns.replace("0", "p", 1), *rows]))
    else:
        names = {"pandas": f",{columns}", "ids": f"ID,{columns}", "numbers": columns}[form]
        numbers = [] if form == "numbers" else [f"{'abc'[i % 3] if form == 'ids' else i}," for i in range(len(rows))]
        path.write_text("\n".join([names, *(a + b for a, b in zip(numbers or [""] * len(rows), rows, strict=True))]))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert load(path).fingerprint == from_arrays(BITS).fingerprint
    assert [str(one.message) for one in found] == ([said] if said else [])


@pytest.mark.parametrize("length", [0, 100, 200])
def test_a_truncated_file_is_named_in_plain_words(tmp_path: Path, length: int) -> None:
    np.save(tmp_path / "whole.npy", np.zeros((9, 4, 4)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:length])
    with pytest.raises(DataError, match=r"cannot read .*cut.npy: the file ends too early: it is empty, damaged, or"):
        load(tmp_path / "cut.npy")


def bomb(path: Path, mib: int) -> None:
    """A small .npz file whose array has zeros of so many MiB."""
    header = str({"descr": "|u1", "fortran_order": False, "shape": (mib << 10, 1024)}).encode()
    header += b" " * (118 - len(header) - 1) + b"\n"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train.npy", "w", force_zip64=True) as out,
    ):
        out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        zeros = bytes(1 << 20)
        for _ in range(mib):
            out.write(zeros)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb(tmp_path / "bomb.npz", 256)
    assert (tmp_path / "bomb.npz").stat().st_size < 2 << 20
    with pytest.raises(
        DataError, match=r"bomb.npz would take 0.25 GiB of memory, more than the limit of 0.1 GiB; .*SOFTSPIN_DATA"
    ):
        load(tmp_path / "bomb.npz", limit=0.1)
    code = f"""
import json, resource, softspin.data
from softspin.errors import SoftspinError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    softspin.data.load({str(tmp_path / "bomb.npz")!r})
except SoftspinError as error:
    print(json.dumps([str(error), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SOFTSPIN_DATA_LIMIT": "0.2"},
        capture_output=True,
        text=True,
        check=True,
    )
    message, kilobytes = json.loads(found.stdout)
    assert "more than the limit of 0.2 GiB" in message
    assert kilobytes < 50_000


@pytest.mark.parametrize("named", [False, True])
def test_an_expanded_tensor_is_checked_by_its_size(named: bool, tmp_path: Path) -> None:
    path, tensor = tmp_path / "bomb.pt", torch.zeros(1).expand(10**6, 784)
    torch.save({"train": tensor} if named else tensor, path)
    assert path.stat().st_size < 5000
    with pytest.raises(DataError, match=r"bomb.pt would take 2.92 GiB of memory, more than the limit of 0.1 GiB"):
        load(path, limit=0.1)


def test_a_forged_header_is_rejected(tmp_path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999, 9)}".ljust(117) + b"\n"
    raw = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(90)
    (tmp_path / "a.npy").write_bytes(raw)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("train.npy", raw)
    with pytest.raises(
        DataError, match=r"a.npz is damaged: 'train' claims 89,999,999,999,991 bytes, but 218 are stored"
    ):
        load(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"cannot read .*a.npy: "):
        load(tmp_path / "a.npy")


def test_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(limits.VARIABLE, raising=False)
    monkeypatch.setattr(limits, "_free_memory", lambda: 6 << 30)
    assert limits.memory_limit() == 2
    monkeypatch.setattr(limits, "_free_memory", lambda: None)
    assert limits.memory_limit() == 16
    monkeypatch.setenv(limits.VARIABLE, "40")
    assert limits.memory_limit() == 40
    assert limits.memory_limit(3) == 3
    for text in ("much", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(limits.VARIABLE, text)
        with pytest.raises(DataError, match=f"SOFTSPIN_DATA_LIMIT is '{text}'; it must be a positive number of GiB"):
            limits.memory_limit()


def test_odd_paths(tmp_path: Path) -> None:
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    for path, text in (
        (tmp_path / "loop.npy", "there is no file|cannot read"),
        (f"{tmp_path}/a\0.npy", "cannot read|no file"),
        (tmp_path / "a.xyz", "expected a .npy, .npz, .pt, .csv file or a folder of images"),
        (tmp_path / "a.h5ad", "in Python, give softspin.fit the object that anndata.read_h5ad returns"),
    ):
        with pytest.raises(DataError, match=text):
            load(path)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a/picture.PNG", "or a folder of images; give the folder of the image"),
        ("https://example.com/x.npy", "x.npy; nothing is downloaded from an address, so download it first"),
    ],
)
def test_paths_that_are_no_files_of_images(path: str, error: str) -> None:
    with pytest.raises(DataError, match=error):
        load(path)
