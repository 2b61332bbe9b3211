"""Own data on the command line: files, folders, splits, shapes, and what is said about them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from cli.command import TINY, Call
from PIL import Image
from training.runs import small
from unsealed import unseal

import softspin
from softspin import data as datasets
from softspin.errors import DataWarning

OWN = TINY[2:]
says = pytest.mark.filterwarnings("always::softspin.errors.DataWarning")


def discs(count: int) -> np.ndarray:
    y, x = np.mgrid[-1:1:6j, -1:1:6j]
    radius = np.random.default_rng(0).uniform(0.3, 1.2, count)
    return (np.hypot(x, y) < radius[:, None, None]).astype(np.uint8) * np.uint8(200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "discs"
    path.mkdir()
    for index, image in enumerate(discs(30)):
        Image.fromarray(np.stack([image] * 3, -1)).save(path / f"{index:02}.png")
    return path


@says
def test_train_on_a_folder_of_images(call: Call, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    ended = call("train", tmp_path / "run", "--data", "discs", *OWN)
    assert ended.code == 0, ended.err
    assert ended.err == "warning: the gray levels of train are bytes (uint8); they were divided by 255\n"
    assert "data    discs: 24 + 3 + 3 images of 6 x 6 x 3 (train + valid + test)" in ended.out
    assert "batch   all 24 training images; batch_size = 100 is larger" in ended.out
    monkeypatch.chdir(tmp_path)  # the path of the data is absolute
    assert json.loads(Path("run/run.json").read_text())["config"]["data"] == str(folder)
    assert call("evaluate", "run").code == 0
    assert call("sample", "run", "--shape", "18x6").code == 0
    assert call("reconstruct", "run", "-n", 3, "--shape", "108").code == 0
    ended = call("sample", "run", "--shape", "5x5")
    assert (ended.code, ended.err) == (1, "error: --shape 5x5 has 25 pixels; images of this model have 108\n")


@says
def test_evaluate_other_data(call: Call, folder: Path, tmp_path: Path) -> None:
    run, new = tmp_path / "run", tmp_path / "new.npy"
    np.save(tmp_path / "train.npy", discs(30).reshape(30, 36))
    assert call("train", run, "--data", tmp_path / "train.npy", "--shape", "6x6", *OWN).code == 0
    assert json.loads((run / "run.json").read_text())["data"]["shape"] == [6, 6]
    np.save(new, discs(7) / 255)
    (row,) = call("evaluate", run, "--data", new, "--split", "all", "--json").json
    assert row["images"] == 7
    assert row["fingerprint"] == datasets.load(new, split=False).fingerprint
    for split, images in (("train", 24), ("valid", 3), ("test", 3), ("all", 30)):
        (row,) = call("evaluate", run, "--split", split, "--json").json
        assert (row["images"], row["split"]) == (images, split)
    np.save(new, discs(1))
    ended = call("evaluate", run, "--data", new, "--split", "all")
    assert ended.code == 0
    assert "all NLL" in ended.out
    assert "+- ? (one image), log Z" in ended.out
    assert "; 1 image\n" in ended.out
    for command in ("evaluate", "encode", "reconstruct"):
        ended = call(command, run, "--data", new)
        assert (ended.code, ended.out) == (1, "")
        hint = f"To use all images of {new}, add --split all"
        assert f"cannot split 1 images into train, valid, test; that needs at least 3. {hint}\n" in ended.err
    out = tmp_path / "bits.npy"
    assert call("encode", run, "--data", new, "--split", "all", "--out", out).code == 0
    assert np.load(out).shape == (1, 6)
    unseal(run / "run.json")
    (run / "run.json").write_text((run / "run.json").read_text().replace("train.npy", "moved.npy"))
    assert call("evaluate", run).err.endswith("; if the data are in another place, give it by --data FILE\n")
    assert call("evaluate", run, "--data", tmp_path / "train.npy").code == 0


def test_resume_keeps_the_shape_of_the_images(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", (discs(30) > 0).reshape(30, 36))
    run = tmp_path / "run"
    assert call("train", run, "--data", tmp_path / "flat.npy", "--shape", "4x9", *OWN).code == 0
    (run / "result.json").unlink()
    ended = call("train", "--resume", run)
    assert ended.code == 0
    assert "images of 4 x 9" in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "28by28"], "'28by28' is not the shape of an image; write it as 28x28"),
        (["--shape", "5x5"], "a shape of 5x5 has 25 pixels; images of own have 36"),
    ],
)
def test_wrong_shapes(call: Call, tmp_path: Path, words: list[str], message: str) -> None:
    np.save(tmp_path / "own.npy", discs(30) > 0)
    ended = call("train", tmp_path / "run", "--data", tmp_path / "own.npy", *OWN, *words)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert ended.err.startswith(f"error: {message}")
    assert not (tmp_path / "run").exists()


@says
def test_a_run_of_an_earlier_version_of_the_data_says_so_when_it_is_loaded(tmp_path: Path, call: Call) -> None:
    config = small(data="digits8x8", steps=1)
    first = datasets.load("digits8x8@1")
    softspin.fit(config, first, tmp_path / "named")
    softspin.load(tmp_path / "named")
    softspin.fit(config, dataclasses.replace(first, name="digits8x8"), tmp_path / "old")  # as runs were made before
    with pytest.warns(DataWarning, match=r"made with 'digits8x8@1'.*softspin.data.load\('digits8x8@1'\)"):
        softspin.load(tmp_path / "old").save(tmp_path / "shared")
    with pytest.warns(DataWarning, match="made with 'digits8x8@1'"):
        softspin.load(tmp_path / "shared")
    for path in (tmp_path / "old", tmp_path / "shared", tmp_path / "named"):
        assert "digits8x8@1, an earlier version with another order" in call("info", path).out
    assert "made with 'digits8x8@1'" in call("sample", tmp_path / "old").err
