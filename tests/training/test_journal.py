"""The metrics log: complete lines, strict JSON, and equality after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import largest_file

from softspin.errors import JournalError
from softspin.training.journal import NAME, Journal, read


def write(folder: Path, start: int | None, stop: int) -> None:
    folder.mkdir(exist_ok=True)
    with Journal.open(folder, start) as journal:
        for step in range((start or 0) + 10, stop + 1, 10):
            journal.write({"step": step, "bound": [-step / 3, -step / 7], "kind": "report"})
            if step % 20 == 0:
                journal.write({"step": step, "nll": 1 / step, "kind": "evaluation"})


def test_lines_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, None, 40)
    lines = read(tmp_path)
    assert [line["step"] for line in lines] == [10, 20, 20, 30, 40, 40]
    assert lines[2] == {"step": 20, "nll": 0.05, "kind": "evaluation"}


def test_a_line_is_strict_json(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.write(
            {
                "step": 1,
                "bound": torch.tensor([1.5, float("nan")]),
                "deep": {"x": (float("inf"), np.float32(0.5), np.float64("-inf"))},
                "count": torch.tensor(3),
                "flag": True,
                "none": None,
            }
        )
    (text,) = (tmp_path / NAME).read_text().splitlines()
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert line == {
        "step": 1,
        "bound": [1.5, None],
        "deep": {"x": [None, 0.5, None]},
        "count": 3,
        "flag": True,
        "none": None,
    }


def test_a_line_is_on_the_disk_when_write_returns(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.write({"step": 1})
        assert read(tmp_path) == [{"step": 1}]


@pytest.mark.parametrize("resume", [0, 10, 20, 30, 60])
@pytest.mark.parametrize("half", ["", '{"step": 70', '{"step": 20}', "\xff"])
def test_a_resumed_log_equals_an_uninterrupted_one(tmp_path: Path, resume: int, half: str) -> None:
    write(tmp_path / "unbroken", None, 100)
    write(tmp_path / "broken", None, 60)
    with (tmp_path / "broken" / NAME).open("ab") as file:
        file.write(half.encode("latin1"))
    write(tmp_path / "broken", resume, 100)
    assert (tmp_path / "broken" / NAME).read_bytes() == (tmp_path / "unbroken" / NAME).read_bytes()
    assert [path.name for path in (tmp_path / "broken").iterdir()] == [NAME]


def test_a_new_run_in_an_old_folder_starts_an_empty_log(tmp_path: Path) -> None:
    write(tmp_path, None, 60)
    write(tmp_path, None, 20)
    assert [line["step"] for line in read(tmp_path)] == [10, 20, 20]


def test_a_half_written_line_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, None, 20)
    whole = (tmp_path / NAME).read_bytes()
    count = {whole[:end].count(b"\n"): end for end in range(len(whole) + 1)}
    assert set(count) == {0, 1, 2, 3}
    for end in range(len(whole) + 1):
        (tmp_path / NAME).write_bytes(whole[:end])
        assert len(read(tmp_path)) == whole[:end].count(b"\n")


@pytest.mark.parametrize("bad", ["nonsense", "[1]", '{"bound": 1}', '{"step": true}', "", "[" * 100_000])
def test_the_error_for_a_damaged_line_has_its_number(tmp_path: Path, bad: str) -> None:
    (tmp_path / NAME).write_text(f'{{"step": 1}}\n{bad}\n{{"step": 2}}\n')
    with pytest.raises(JournalError, match="is damaged: line 2 is not an object with a step"):
        read(tmp_path)
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(JournalError, match="line 2"):
        Journal.open(tmp_path, 1)
    assert (tmp_path / NAME).read_bytes() == before


def test_invalid_folders_and_lines_are_one_line_errors(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"no journal\.jsonl in .*nowhere; is it a run directory\?"):
        read(tmp_path / "nowhere")
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(JournalError, match=r"taken.* cannot be written: (Not a directory|File exists)"):
        Journal.open(tmp_path / "taken")
    with pytest.raises(JournalError, match=r"taken.* cannot be read: Not a directory"):
        read(tmp_path / "taken")
    with Journal.open(tmp_path) as journal:
        for line in ({}, {"step": None}, {"step": 1.5}, {"step": True}):
            with pytest.raises(JournalError, match="needs an integer 'step'"):
                journal.write(line)
    assert read(tmp_path) == []


@pytest.mark.parametrize("free", [0, 4])
def test_a_full_disk_is_an_error_and_leaves_no_part_of_a_line(tmp_path: Path, free: int) -> None:
    with Journal.open(tmp_path) as journal:
        journal.write({"step": 1})
        before = journal.path.read_bytes()
        with (
            largest_file(len(before) + free),
            pytest.raises(JournalError, match=r"journal\.jsonl cannot be written: (File too large|No space left)"),
        ):
            journal.write({"step": 2})
        assert journal.path.read_bytes() == before
        journal.write({"step": 3})
    assert [line["step"] for line in read(tmp_path)] == [1, 3]


def test_a_directory_that_was_moved_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.jsonl cannot be written: No such file or directory"):
        Journal.open(tmp_path / "moved", 3)
    assert not (tmp_path / "moved").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    (tmp_path / NAME).symlink_to("other")
    with pytest.raises(JournalError, match=r"cannot be written: journal\.jsonl is a symbolic link; delete it"):
        Journal.open(tmp_path, 0)
    assert (tmp_path / "other").read_text() == ""
