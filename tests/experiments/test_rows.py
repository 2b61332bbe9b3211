"""Rows: round trips, truncated lines, and uniqueness of results."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_rows import made_row, row_json

from softspin.errors import RowsError
from softspin.experiments.rows import append_rows, key_of, latest, make_key, read_rows
from softspin.files import lock
from softspin.records import ResultRow


def row(seed: int = 0, status: str = "ok", **changes: Any) -> ResultRow:
    return made_row(status, **{"seed": seed, **changes})


def line(seed: object = 0, status: str = "ok", **changes: Any) -> str:
    return json.dumps(row_json(status, **{"seed": seed, **changes}))


def without(name: str, **changes: Any) -> str:
    return json.dumps({key: value for key, value in row_json(seed=1, **changes).items() if key != name})


def test_rows_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    assert read_rows(path) == []
    assert append_rows(path, [row(0), row(1)]) == [row(0), row(1)]
    append_rows(path, [row(2, variant={"tf32": True})])
    append_rows(path, [])
    assert read_rows(path) == [row(0), row(1), row(2, variant={"tf32": True})]


def test_a_key_has_one_result(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [row(0, "failed")])
    append_rows(path, [row(0, "failed", error="again")])
    assert append_rows(path, [row(0), row(1)]) == [row(0), row(1)]
    assert append_rows(path, [row(0, nll=1.0), row(0, "failed"), row(1, steps=10)]) == [row(1, steps=10)]
    rows = read_rows(path)
    assert [one.status for one in rows] == ["failed", "failed", "ok", "ok", "ok"]
    assert latest(rows)[make_key("c", 0, 9, {})] == row(0)
    assert append_rows(path, [row(5), row(5)]) == [row(5)]
    assert len(read_rows(path)) == 6


def test_an_outdated_result_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    old = row(0, outdated="it rounded down")
    append_rows(path, [old])
    assert append_rows(path, [row(0)]) == [row(0)]
    assert read_rows(path) == [old, row(0)]
    assert latest([row(0), old])[make_key("c", 0, 9, {})] == row(0)
    assert append_rows(path, [old, row(0)]) == []


def test_the_order_of_the_settings_of_a_variant_does_not_matter() -> None:
    assert key_of(row(variant={"a": 1, "b": 2})) == key_of(row(variant={"b": 2, "a": 1}))
    assert key_of(row(variant={"a": 1})) != key_of(row(variant={"a": 2}))


def test_a_line_truncated_anywhere_is_reported_ignored_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [row(0), row(1, cell="ü")])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in sorted({*range(first, len(whole), 9), *range(first, first + 9), *range(len(whole) - 9, len(whole) + 1)}):
        path.write_bytes(whole[:cut])
        messages: list[str] = []
        rows = read_rows(path, messages.append)
        torn = first < cut < len(whole) - 1
        assert rows == [row(0), row(1, cell="ü")][: 1 if cut < len(whole) - 1 else 2]
        assert messages == (
            [f"the last line of {path} is truncated ({cut - first} bytes) and is ignored"] if torn else []
        )
        append_rows(path, [row(1, cell="ü"), row(2)])
        assert read_rows(path, messages.append) == [row(0), row(1, cell="ü"), row(2)]
        assert len(messages) == torn


def test_two_concurrent_writers_write_complete_lines_without_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def write(_: int) -> int:
        return sum(len(append_rows(path, [row(seed, error="x" * 5000)])) for seed in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write, range(4))) == 20
    assert sorted(one.seed for one in read_rows(path)) == list(range(20))
    assert sorted(file.name for file in tmp_path.iterdir()) == [".rows.jsonl.lock", "rows.jsonl"]


def test_a_writer_waits_for_the_lock_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with ThreadPoolExecutor(1) as pool:
        with lock(tmp_path / ".rows.jsonl.lock"):
            waiting = pool.submit(append_rows, path, [row(0)])
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            assert read_rows(path) == []
        assert waiting.result(timeout=20) == [row(0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<<<<<< HEAD", "line 2 is not a JSON object"),
        ("[1]", "line 2 is not a JSON object"),
        (line(seed="1"), "line 2 has 'seed' = '1'; it must be an integer from 0 to 2147483647"),
        (line(seed=True), "line 2 has 'seed' = True; it must be an integer from 0 to 2147483647"),
        (without("seed"), "line 2 has no 'seed'"),
        (without("cell"), "line 2 has no 'cell'"),
        (without("variant"), "line 2 has no 'variant'"),
        (without("short"), "line 2 has no 'short'"),
        (line(1, variant=5), "line 2 has 'variant' = 5; it must be a JSON object"),
        (line(1, outdated=True), "line 2 has 'outdated' = True; it must be text"),
        (line(1, status="done"), "line 2 has 'status' = 'done'; it must be one of ok, failed"),
        (line(1, nll=None), "line 2 is ok, but has no finite 'nll'"),
        (line(1, nll=float("nan")), "line 2 is ok, but has no finite 'nll'"),
        (without("error", status="failed"), "line 2 is failed, but has no 'error'"),
        (line(1, version=5), "line 2 has version 5; softspin .* reads versions 1 to 4"),
        (line(1, version="2"), "line 2 has version '2'; softspin .* reads versions 1 to 4"),
        (line(0, nll=1.0), "line 2 comes after the result of .*, seed 0, in line 1; delete one of them"),
        (line(0, "failed"), "line 2 comes after the result of .*, seed 0, in line 1; delete one of them"),
    ],
)
def test_nothing_is_appended_to_a_damaged_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{line(0)}\n{text}\n{line(3)}\n")
    before = path.read_bytes()
    with pytest.raises(RowsError, match=f"rows {path} are damaged: .*{message}"):
        read_rows(path)
    with pytest.raises(RowsError, match="are damaged"):
        append_rows(path, [row(9)])
    assert path.read_bytes() == before


def test_blank_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{line(0)}\n\n  \n{line(3)}\n\n")
    assert [one.seed for one in read_rows(path)] == [0, 3]
    append_rows(path, [row(4)])
    assert [one.seed for one in read_rows(path)] == [0, 3, 4]


def test_files_that_cannot_be_read_or_written_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="cannot be read: Is a directory"):
        read_rows(tmp_path)
    with pytest.raises(RowsError, match="cannot be written: Is a directory"):
        append_rows(tmp_path, [row()])


def test_two_collectors_append_a_failed_row_once(tmp_path: Path) -> None:
    """Without `once` it is a second failure of the same seed, as after a retry."""
    path, failed = tmp_path / "rows.jsonl", made_row("failed")
    later = replace(failed, date="2026-01-02T03:04:06+00:00")
    assert append_rows(path, [failed], once=True) == [failed]
    assert append_rows(path, [failed, later], once=True) == [later]
    assert append_rows(path, [failed], once=True) == []
    assert append_rows(path, [failed]) == [failed]
    marked = tmp_path / "marked.jsonl"
    append_rows(marked, [replace(failed, outdated="it rounded down")])
    assert append_rows(marked, [failed], once=True) == [], "a row that was marked as outdated is not added again"
