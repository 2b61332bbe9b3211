"""Files and names that were made to break a reader: an error in one line, or the right output, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.command import TINY, Call
from experiments.tables import POWER, STRIPES, write_table

import softspin
from softspin.cli.console import show_table
from softspin.config.toml import MAX_BYTES
from softspin.errors import JournalError, RunError, SharingError
from softspin.experiments.rows import append_rows, read_rows
from softspin.training.journal import Journal, read

HUGE = "1" + "0" * 5000
"""An integer with more digits than Python reads."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 100_000 + b"]" * 100_000, "values are nested too deeply"),
        (b"a = " + b"{b=" * 3000 + b"1" + b"}" * 3000, "values are nested too deeply"),
        (f"steps = {HUGE}".encode(), "is not TOML: Exceeds the limit"),
        (b"#" * (MAX_BYTES + 1), "is larger than 10,000,000 bytes"),
        (b"\xff", "is not TOML: 'utf-8' codec"),
    ],
    ids=["arrays", "tables", "integer", "size", "bytes"],
)
@pytest.mark.parametrize("words", [["train", "run", "--config"], ["grid", "--dry-run"]], ids=["train", "grid"])
def test_toml(call: Call, tmp_path: Path, words: list[str], content: bytes, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    ended = call(*words, path)
    assert ended.code == 1
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("name", ["nu\0l.npy", "loop.npy", "./loop.npy"])
@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_data(call: Call, tiny: Path, tmp_path: Path, command: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("loop.npy", "loop.npy")
    words = [tmp_path / "run", *TINY] if command == "train" else [tiny]
    ended = call(command, *words, "--data", name)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["loop.npy"]


@pytest.mark.parametrize("command", ["info", "playground", "sample"])
def test_a_run_that_is_a_loop_of_links(command: str, call: Call, tmp_path: Path) -> None:
    os.symlink("loop", tmp_path / "loop")
    ended = call(command, tmp_path / "loop")
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("zeros", [20, 400, 5000])
def test_a_huge_step_in_the_metrics_log(zeros: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(tmp_path) as log:
        log.write({"step": 1})
        before = path.read_bytes()
        with pytest.raises(JournalError, match="needs an integer 'step' from 0 to"):
            log.write({"step": 10**zeros})
        assert path.read_bytes() == before
    path.write_bytes(before + b'{"step": 1' + b"0" * zeros + b"}\n")
    with pytest.raises(JournalError, match="line 2 is not an object with a step"):
        read(tmp_path)


def test_a_deep_last_line_of_rows(tmp_path: Path) -> None:
    """It has no newline, so it counts as truncated; with one it would be damage."""
    path, warned = tmp_path / "rows.jsonl", list[str]()
    path.write_text("[" * 100_000)
    assert read_rows(path, warned.append) == []
    assert warned == [f"the last line of {path} is truncated (100000 bytes) and is ignored"]
    assert append_rows(path, []) == []
    assert path.read_bytes() == b""


def test_names_that_are_not_text(call: Call, tiny: Path, tmp_path: Path) -> None:
    """A name of data that trains can also be shown and shared, with a replacement for what is not text."""
    data = tmp_path / os.fsdecode(b"d\xff\x1b\xc2\xa0.npy")  # not UTF-8, a control character, a non-breaking space
    np.save(data, np.random.default_rng(0).integers(0, 2, (30, 3, 3)))
    run = tmp_path / "run"
    assert call("train", run, *TINY, "--data", data).code == 0
    page = tmp_path / "page.html"
    ended = call("playground", run, "--out", page)
    assert (ended.code, ended.err) == (0, "")
    assert "d\ufffd\ufffd\ufffd" in page.read_text().partition("</title>")[0]
    assert call("export", run, "--out", tmp_path / "shared").code == 0
    shared = softspin.load(tmp_path / "shared")
    assert shared.config.data == "d\ufffd\ufffd\ufffd.npy"
    assert shared.result is not None
    assert shared.result[0].nll == (softspin.load(run).result or ())[0].nll
    assert (tmp_path / "shared" / "README.md").read_text(encoding="utf-8").replace("\n", "").isprintable()


def test_output_with_bytes_that_are_not_text(tmp_path: Path) -> None:
    """Strict output, as in most languages, cannot have them."""
    code = "from softspin.cli import main; main()"
    words = [sys.executable, "-c", code, "cache", "show"]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict", "SOFTSPIN_CACHE": os.fsdecode(b"/no\xff")}
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "/no\\udcff/compiled: 0.0 MB\n"), ended.stderr


@pytest.mark.parametrize("text", ["[/x]", "[red]", "a\\[red]", "[link=x]y[/link]", "\\"])
def test_markup_in_tables(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name",), [(text,)])
    assert capsys.readouterr().out.split("\n")[1].rstrip() == text


def test_markup_in_a_dry_run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "[red]own.npy"
    monkeypatch.chdir(tmp_path)
    np.save(data, np.eye(20, 9))
    table = write_table(Path("own.toml"), POWER)
    table.write_text(table.read_text().replace(STRIPES, data))
    ended = call("grid", table, "--dry-run", "--rows", "rows.jsonl")
    assert data in ended.out, ended


@pytest.mark.parametrize("command", ["info", "evaluate", "runs", "export", "sample", "playground"])
def test_markup_in_paths(command: str, call: Call, tmp_path: Path) -> None:
    ended = call(command, tmp_path / "[/x]")
    assert ended.code in (0, 1)
    assert "[/x]" in ended.err + ended.out


@pytest.mark.parametrize("name", ["a" * 5000, "a/" + "b" * 5000, "a/" * 3000])
@pytest.mark.parametrize("read_model", [softspin.load, softspin.Model.from_pretrained, softspin.load_boltzmann])
def test_long_names_of_models(name: str, read_model: Any) -> None:
    with pytest.raises((RunError, SharingError), match="cannot be read: File name too long") as error:
        read_model(name)
    assert len(str(error.value)) < 120
