"""`softspin export`, and other commands on an exported model."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.command import TINY, Call
from sharing.shared import forge


@pytest.fixture
def shared(call: Call, tiny: Path, tmp_path: Path) -> Path:
    assert call("export", tiny, "--out", tmp_path / "shared").code == 0
    return tmp_path / "shared"


@pytest.fixture(params=["folder", "file"])
def place(request: pytest.FixtureRequest, shared: Path) -> Path:
    return shared if request.param == "folder" else shared / "model.safetensors"


def test_export_prints_the_written_files(call: Call, tiny: Path, tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "seal"} for row in json.loads((tiny / "result.json").read_text())]
    ended = call("export", tiny, "--out", tmp_path / "m.safetensors")
    assert ended.code == 0
    assert ended.out.count("test NLL") == 2
    assert f"written: {tmp_path / 'm.safetensors'} (" in ended.out
    output = call("export", tiny, "--out", tmp_path / "one", "--replica", "1", "--license", "mit", "--json").json
    assert output["result"] == rows[1:]
    assert output["written"][-1] == str(tmp_path / "one" / "model.safetensors")
    best = min(rows, key=lambda row: row["valid_nll"])
    assert call("export", tiny, "--out", tmp_path / "best", "--replica", "best", "--json").json["result"] == [best]
    last = call("export", tiny, "--out", tmp_path / "last", "--which", "last")
    assert "not evaluated on test data; the model card says so" in last.out


def test_the_default_directory_is_beside_the_run(call: Call, tiny: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(tiny, tmp_path / "run"))
    assert call("export", run).code == 0
    assert (tmp_path / "run-shared" / "README.md").is_file()
    ended = call("export", run)
    message = "already exists; give another name, or replace it: --overwrite, overwrite=True"
    assert (ended.code, ended.err) == (1, f"error: {tmp_path / 'run-shared'} {message}\n")
    assert call("export", run, "--overwrite").code == 0


def test_every_command_accepts_a_shared_model(call: Call, tiny: Path, place: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "a.npy", tmp_path / "b.npy"
    for words in (["sample", "-n", 5], ["reconstruct", "-n", 5], ["encode"]):
        command, *more = words
        assert call(command, place, *more, "--out", out, "--replica", 1).code == 0
        assert call(command, tiny, *more, "--out", other, "--replica", 1).code == 0
        np.testing.assert_array_equal(np.load(out), np.load(other))
    for command in ("evaluate", "logz"):
        assert call(command, place).out == call(command, tiny).out
    assert call("sample", place).code == 0
    drawn = tmp_path / "shared-samples.png" if place.is_dir() else place.with_name("samples.png")
    assert drawn.is_file(), "next to what is shared, not in it"
    assert call("export", place, "--out", tmp_path / "again.safetensors").code == 0
    ended = call("evaluate", place, "--which", "last")
    assert (ended.code, ended.err.count("\n")) == (1, 1)


def test_info(call: Call, tiny: Path, place: Path) -> None:
    about, run = call("info", place, "--json").json, call("info", tiny, "--json").json
    assert about["state"] == "shared"
    for name in ("data", "provenance", "config", "config_overrides", "replicas", "best", "result", "steps"):
        assert about[name] == run[name]
    text = call("info", place).out
    assert f"{place}: shared" in text
    assert "  replicas     all replicas of the run" in text
    assert "  license      not given" in text
    assert [line for line in text.splitlines() if line.startswith("  replica ")] == [
        line for line in call("info", tiny).out.splitlines() if line.startswith("  replica ")
    ]


def test_missing_own_data_are_an_error(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "own.npy", np.eye(20, 9))
    assert call("train", tmp_path / "run", *TINY, "--data", tmp_path / "own.npy").code == 0
    assert call("export", tmp_path / "run", "--out", tmp_path / "m").code == 0
    monkeypatch.chdir(tmp_path / "run")
    ended = call("evaluate", tmp_path / "m")
    assert (ended.code, ended.err) == (
        1, "error: there is no file own.npy; if the data are in another place, give it by --data FILE\n",
    )  # fmt: skip
    assert (
        call("evaluate", tmp_path / "m", "--data", tmp_path / "own.npy").out == call("evaluate", tmp_path / "run").out
    )


def test_other_data_of_the_same_name_are_an_error(call: Call, place: Path) -> None:
    file = place / "model.safetensors" if place.is_dir() else place
    (file.parent / "config.json").unlink()
    forge(file, lambda about: about["data"].update(fingerprint="0"))
    ended = call("evaluate", place)
    message = f"error: the data set 'bars-and-stripes-3x3' is not the one that {place} was trained on, which is "
    assert (ended.code, ended.err.startswith(message)) == (1, True)
    assert ended.err.endswith("; give that by --data FILE\n")


def test_mistakes(call: Call, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (tmp_path / "x.safetensors").write_text("no")
    (tmp_path / "empty").mkdir()
    for words, message in (
        (["export", tiny, "--replica", "x"], "--replica x is not possible; it must be all, best, or a number from 0"),
        (["export", tiny, "--replica", "2"], "no replica 2; this model has 2, counted from 0"),
        (["export", tiny, "--out", tiny], f"{tiny} is a run directory; give another folder"),
        (
            ["export", tiny, "--push", "me/x"],
            "the Hugging Face Hub needs the package huggingface_hub; in a clone of softspin, run: pip install",
        ),
        (["sample", tmp_path / "x.safetensors"], f"{tmp_path / 'x.safetensors'} is damaged, or not a safetensors file"),
        (["info", tmp_path / "x.safetensors"], f"{tmp_path / 'x.safetensors'} is damaged, or not a safetensors file"),
        (["sample", tmp_path / "empty"], f"no run in {tmp_path / 'empty'}; "),
        (["sample", tmp_path / "no.safetensors"], f"no directory {tmp_path / 'no.safetensors'}; "),
    ):
        ended = call(*words)
        assert ended.code == 1, ended
        assert ended.err.count("\n") == 1
        assert ended.err.startswith(f"error: {message}"), ended.err


def test_push(call: Call, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def push(name: str, write: object, **more: object) -> str:
        sent.append((name, more))
        return "address"

    monkeypatch.setattr("softspin.sharing.hub.push", push)
    ended = call("export", tiny, "--push", "me/x", "--private", "--json")
    assert ended.json["sent"] == "address"
    assert ended.json["written"] == []
    assert sent == [("me/x", {"private": True, "token": None})]
