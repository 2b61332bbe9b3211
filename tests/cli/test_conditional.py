"""Clamped samples, missing pixels, probabilities and the choice of a replica, by the command line."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.command import TINY, Call

import softspin
from softspin.cli.app import run
from softspin.cli.runs import place_in


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two betas, read only."""
    folder = tmp_path_factory.mktemp("cli") / "grid"
    before, sys.argv = sys.argv, ["softspin", "train", str(folder), "--beta", "5,9", *TINY]
    try:
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as end:
            run()
    finally:
        sys.argv = before
    assert end.value.code == 0
    return folder


def test_clamped_samples_are_those_of_python(tiny: Path, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "a.npy"
    assert call("sample", tiny, "-n", 5, "--clamp", "0=1,3=0", "--out", out, "--replica", 1, "--json").json == {
        "written": str(out),
        "samples": 5,
        "seed": 0,
        "replica": 1,
    }
    expected = softspin.load(tiny, device="cpu").sample(5, clamp={0: 1, 3: 0}, replica=1, seed=0)
    np.testing.assert_array_equal(np.load(out), expected.numpy())


@pytest.mark.parametrize("mask", ["bottom", "1:3,0:3", "file"])
def test_missing_pixels_are_those_of_python(mask: str, tiny: Path, call: Call, tmp_path: Path) -> None:
    """`bottom` of three rows are the last two, because half a row rounds to none."""
    missing = torch.zeros(3, 3, dtype=torch.bool)
    missing[1:] = True
    if mask == "bottom":
        missing[1] = round(0.5 * 3) <= 1
    if mask == "file":
        np.save(tmp_path / "mask.npy", missing.numpy())
        mask = str(tmp_path / "mask.npy")
    out, picture = tmp_path / "a.npy", tmp_path / "a.png"
    common = ("reconstruct", tiny, "-n", 4, "--chain-steps", 3, "--mask", mask)
    assert "4 images with missing pixels filled in" in call(*common, "--out", out).out
    x = softspin.data.load("bars-and-stripes-3x3").test[:4]
    expected = softspin.load(tiny, device="cpu").inpaint(x, missing, steps=3, seed=0)
    np.testing.assert_array_equal(np.load(out), expected.numpy())
    assert call(*common, "--out", picture).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_probabilities_are_those_of_python(tiny: Path, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "q.npy"
    assert "14 x 6 probabilities of bits" in call("encode", tiny, "--probabilities", "--out", out).out
    x = softspin.data.load("bars-and-stripes-3x3").test
    np.testing.assert_array_equal(np.load(out), softspin.load(tiny, device="cpu").probabilities(x).numpy())


def test_the_best_of_a_grid_of_beta_is_used_marked_and_said(grid: Path, call: Call, tmp_path: Path) -> None:
    valid = [row["valid_nll"] for row in json.loads((grid / "result.json").read_text())]
    best = valid.index(min(valid))
    out = tmp_path / "a.npy"
    for command, more in (("sample", ["-n", 3]), ("reconstruct", ["-n", 3]), ("encode", [])):
        ended = call(command, grid, *more, "--out", out, "--json")
        assert ended.json["replica"] == best
        text = f"using replica {best} (seed 0, beta {(5, 9)[best]}): it has the lowest validation NLL of 2; --replica"
        assert ended.err.startswith(text)
        chosen = call(command, grid, *more, "--out", out, "--json", "--replica", "best")
        assert (chosen.json["replica"], chosen.err) == (best, "")
        other = call(command, grid, *more, "--out", out, "--json", "--replica", 1 - best)
        assert (other.json["replica"], other.err) == (1 - best, "")
    for command in ("evaluate", "logz", "info"):
        marked = [line for line in call(command, grid).out.splitlines() if "(lowest validation NLL)" in line]
        assert len(marked) == 1
        assert f"seed 0, beta {(5, 9)[best]}" in marked[0]


@pytest.mark.parametrize("command", ["evaluate", "logz"])
def test_one_replica_is_evaluated_as_among_all(command: str, grid: Path, call: Call) -> None:
    valid = [row["valid_nll"] for row in json.loads((grid / "result.json").read_text())]
    best = valid.index(min(valid))
    every = call(command, grid, "--json").json
    for wanted, number in (("best", best), (0, 0), (1, 1)):
        (alone,) = call(command, grid, "--replica", wanted, "--json").json
        assert alone["beta"] == (5, 9)[number] == every[number]["beta"]
        for name in {"nll", "log_z"} & set(alone):
            assert alone[name] == pytest.approx(every[number][name], rel=1e-5)
    assert call(command, grid, "--replica", "best").out.startswith(f"seed 0, beta {(5, 9)[best]}: ")
    ended = call(command, grid, "--replica", "7")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "no replica 7; this model has 2" in ended.err
    assert "all, best, or a number" in call(command, grid, "--replica", "first").err


def test_replicas_that_differ_by_seed_are_equal(tiny: Path, call: Call, tmp_path: Path) -> None:
    ended = call("sample", tiny, "-n", 3, "--out", tmp_path / "a.npy", "--json")
    assert (ended.json["replica"], ended.err) == (0, "")
    assert "(lowest validation NLL)" not in call("evaluate", tiny).out


def test_pictures_of_a_shared_model_do_not_go_into_its_folder(tiny: Path, call: Call, tmp_path: Path) -> None:
    assert call("export", tiny, "--out", tmp_path / "shared").code == 0
    before = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert str(tmp_path / "shared-samples.png") in call("sample", tmp_path / "shared", "-n", 3).out
    assert (tmp_path / "shared-samples.png").is_file()
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == before
    assert place_in(tiny, "samples.png") == tiny / "samples.png"
    (tmp_path / "one.safetensors").touch()
    assert place_in(tmp_path / "one.safetensors", "samples.png") == tmp_path / "samples.png"


def test_pictures_of_the_run_are_not_replaced_by_conditional_ones(tiny: Path, call: Call, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert "run/clamped.png" in call("sample", tmp_path / "run", "-n", 2, "--clamp", "0=1").out
    assert "run/inpainted.png" in call("reconstruct", tmp_path / "run", "-n", 2, "--mask", "top").out
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in (tmp_path / "run").iterdir()} == {path.name for path in before} | {
        "clamped.png", "inpainted.png",
    }  # fmt: skip


def test_mistakes_end_in_one_line(tiny: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("hello")
    np.save(tmp_path / "wide.npy", np.zeros(4))
    sample = ("sample", tiny, "--out", tmp_path / "a.npy")
    mask = ("reconstruct", tiny, "--out", tmp_path / "a.npy", "--mask")
    cases: list[tuple[tuple[object, ...], str]] = [
        ((*sample, "--clamp", "3"), "--clamp 3 is not possible; give units and values 0 or 1"),
        ((*sample, "--clamp", "3=2"), "--clamp 3=2 is not possible"),
        ((*sample, "--clamp", "3=1,3=0"), "--clamp 3=1,3=0 has unit 3 twice"),
        ((*sample, "--clamp", "6=1"), "no unit 6 to clamp; there are 6, counted from 0"),
        ((*sample, "--replica", "bset"), "--replica bset is not possible; it must be a number from 0, or best"),
        ((*sample, "--replica", "7"), "no replica 7; this model has 2, counted from 0"),
        ((*mask, "middle"), "--mask middle is not possible; give top, bottom, left, right, rows and columns such as"),
        ((*mask, "0:4,0:3"), "--mask 0:4,0:3 has no pixels of an image of 3 x 3, or pixels outside of it"),
        ((*mask, "2:2,0:3"), "--mask 2:2,0:3 has no pixels"),
        ((*mask, tmp_path / "no.npy"), "there is no file"),
        ((*mask, tmp_path / "text.npy"), "cannot be read as a .npy file of numbers"),
        ((*mask, tmp_path / "wide.npy"), "the mask has shape (4,); expected (3, 3)"),
    ]
    for words, text in cases:
        ended = call(*words)
        assert ended.code == 1, words
        assert text in ended.err
        assert len(ended.err.strip().splitlines()) == 1
