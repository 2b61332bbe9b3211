"""`softspin report`: output, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.command import Call
from report.synthetic import CELLS, ROOT, row, rows

from softspin.records import ResultRow
from softspin.report.welch import as_normal, degrees_of_freedom

POWER = CELLS["mnist/1-linear/k1/dvae#-power/pa"]


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def options(folder: Path, *given: ResultRow, arrays: object = "none") -> list[object]:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(one.to_json())}\n" for one in given))
    return ["--rows", path, "--out", folder / "a" / "page.html", "--results", folder / "b.md", "--arrays", arrays]


def test_a_report_of_the_committed_rows_and_arrays(call: Call, tmp_path: Path) -> None:
    ended = call("report", "--out", tmp_path / "page.html", "--results", tmp_path / "results.md")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"written: {tmp_path / 'page.html'}, {tmp_path / 'results.md'}"
    text = (tmp_path / "page.html").read_text()
    assert text.count("data-cell=") == 192 + 24
    assert text.count("data:image/svg+xml") >= 2
    assert len(text) < 1_500_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "results.md"]
    assert (tmp_path / "results.md").read_text().startswith("# Results\n")


def test_json_contains_every_cell_and_verdict(call: Call, tmp_path: Path) -> None:
    failed = row(POWER, 0, 0.0, ["steps=7"], status="failed", error="not finite")
    ended = call(
        "report",
        "--json",
        *options(tmp_path, *rows(POWER, 89.6, 0.08), failed, row(POWER, 1, 1.0, ["steps=8"], commit=None)),
    )
    assert ended.code == 0, ended.err
    info = ended.json
    assert info["summary"] == {
        "cells": 204,
        "run": 1,
        "all_seeds": 1,
        "outdated": 0,
        "flagged": 0,
        "compared": 1,
        "near": 0,
    }
    (cell,) = [one for one in info["cells"] if one["nll"] is not None]
    assert cell["cell"] == POWER.id
    assert [cell[name] for name in ("nll", "std", "difference", "nll_low", "standard_errors")] == pytest.approx(
        [89.6, 0.08, 0.25, 89.5, as_normal(0.25 / (0.1 / 5**0.5), degrees_of_freedom([(0.08, 5), (0.06, 5)]))]
    )
    assert (cell["seeds"], cell["flags"]) == ([0, 1, 2, 3, 4], ["far from published"])
    assert [(one["observation"], one["verdict"]) for one in info["observations"]] == [
        (name, "not yet tested") for name in ("i", "ii", "iii", "iv", "v", "vi", "Table 2")
    ]
    assert info["failed"] == [{"cell": POWER.id, "seed": 0, "error": "not finite", "retried": False}]
    assert info["rejected"] == [{"cell": POWER.id, "seed": 1, "reason": "its commit is unknown"}]
    assert set(info["figures"].values()) == {False}


def test_text_output(call: Call, tmp_path: Path) -> None:
    ended = call("report", *options(tmp_path, *rows(POWER, 89.6), row(POWER, 0, 1.0, ["steps=8"], commit="abc+")))
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == (
        "1 of 204 cells has been run at full length. 0 of 1 agree with the published value within 0.15 nat, or 3 "
        "published standard deviations where that is more; the largest difference is 0.25 nat. 1 of 1 has 5 seeds, as "
        "in the paper."
    )
    assert "observation iii: not yet tested (0 of 8 comparisons)" in lines
    assert "figures missing: fig1, fig2a, fig2b, fig2c, appendix" in lines
    assert "rows rejected: 1" in lines


def test_a_report_without_rows(call: Call, tmp_path: Path) -> None:
    ended = call("report", *options(tmp_path))
    assert (ended.code, ended.out.splitlines()[0]) == (
        0,
        "None of the 204 cells of the paper's two tables has been run at full length yet.",
    )


def test_only_rejected_rows_exit_with_1_and_a_page_with_reasons(call: Call, tmp_path: Path) -> None:
    ended = call("report", *options(tmp_path, row(POWER, 0, 1.0, commit=None)))
    assert ended.code == 1
    assert "every result was rejected" in ended.err
    assert "its commit is unknown" in (tmp_path / "a" / "page.html").read_text()


def test_a_truncated_last_line_is_reported(call: Call, tmp_path: Path) -> None:
    words = options(tmp_path, row(POWER, 0, 89.0))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"status": "ok", "ce')
    ended = call("report", *words)
    assert ended.code == 0
    assert "is truncated (20 bytes) and is ignored" in ended.err


def test_mistakes(call: Call, tmp_path: Path) -> None:
    words = options(tmp_path, row(POWER, 0, 89.0))
    (tmp_path / "damaged.jsonl").write_text("{}\n")
    (tmp_path / "file").write_text("")
    for changes, code, message in (
        (["--rows", tmp_path / "none.jsonl"], 1, f"no rows {tmp_path / 'none.jsonl'}; make them with softspin grid"),
        (["--rows", tmp_path / "damaged.jsonl"], 1, "damaged: line 1 has no 'seed'"),
        (["--out", tmp_path / "b.md"], 2, "it is the same file as --results"),
        (["--out", tmp_path / "file" / "x.html"], 1, "File exists"),
    ):
        ended = call("report", *words, *changes)
        assert ended.code == code, ended
        assert message in " ".join(ended.err.replace("│", " ").split()), ended.err


def test_outside_a_clone(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("report")
    assert (ended.code, ended.err) == (
        1,
        "error: no rows rows.jsonl; make them with softspin grid, or give another file: --rows FILE\n",
    )
    options(tmp_path, row(POWER, 0, 89.0))
    ended = call("report")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("1 of 204 cells has been run")
    assert "figures missing" not in ended.out
