"""`softspin runs`: every run of a folder, sorted by NLL, with the settings in which they differ."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cli.command import Call
from likelihoods.cases import CASES
from training.runs import bars, small

import softspin
from softspin.data import from_arrays
from softspin.training.run_files import read_result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs, one of them of two replicas and in a folder of its own, and one without a checkpoint."""
    top = tmp_path_factory.mktemp("runs")
    early = {"patience": 1, "learning_rate": 0.3, "steps": 90}
    for name, settings in (("wide", {"width": 8}), ("deep/two", {"seeds": (0, 1)}), ("early", early)):
        softspin.fit(small(**settings), bars(), top / name, progress=False, pictures=False)

    def stop(line: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        softspin.fit(small(), bars(), top / "begun", callbacks=stop, progress=False, pictures=False)
    return top


def test_the_best_is_first(call: Call, folder: Path) -> None:
    rows = call("runs", folder, "--json").json
    nll = [row["nll"] for row in rows if row["nll"] is not None]
    results = [read_result(folder / name) or [] for name in ("wide", "deep/two", "early")]
    assert nll == sorted(row.test_nll for rows in results for row in rows)
    assert len(rows) == 5
    assert rows[-1]["folder"] == str(folder / "begun")
    assert (rows[-1]["state"], rows[-1]["nll"], rows[-1]["valid_nll"]) == ("not finished", None, None)
    states = {Path(row["folder"]).name: row["state"] for row in rows}
    assert states == {"wide": "finished", "two": "finished", "early": "stopped early", "begun": "not finished"}


def test_the_table_shows_what_differs(call: Call, folder: Path) -> None:
    ended = call("runs", folder, "--sort", "name")
    assert (ended.code, ended.err) == (0, "")
    title, *lines, legend = ended.out.splitlines()
    assert ("(!)" in lines[3], legend) == (True, "(!): a warning; softspin info RUN shows it")
    assert [line.split()[0] for line in lines] == ["begun", "deep/two", "deep/two", "early", "wide"]
    assert title.split("  ")[-1].strip() == "differs by" or "differs by" in title
    wide = lines[-1]
    assert "width = 8, learning_rate = 0.003, patience = none" in wide
    assert "of 90" in lines[3]
    assert "patience = 1" in lines[3]
    assert "seed 1, beta 30" in lines[2]


def test_densities_are_marked_and_not_ranked_with_probabilities(call: Call, tmp_path: Path) -> None:
    """In a small unit, a density is as large as one likes: its NLL would be the lowest."""
    bits = (np.arange(200).reshape(40, 5) % 3 == 0).astype(np.float32)
    for likelihood, unit in (("gaussian", 1000), ("bernoulli", 1)):
        data = from_arrays(bits / unit, binarize=likelihood == "bernoulli")
        softspin.fit(small(likelihood=likelihood), data, tmp_path / likelihood, progress=False, pictures=False)
    rows = call("runs", tmp_path, "--json").json
    assert [(Path(row["folder"]).name, row["unit"]) for row in rows] == [
        ("bernoulli", None), ("gaussian", "nats of a density"),
    ]  # fmt: skip
    assert rows[1]["nll"] < rows[0]["nll"]
    out = call("runs", tmp_path).out.splitlines()
    assert ["(d)" in line for line in out[1:3]] == [False, True]
    assert "(d): nats of a density, which change with the unit of the data" in out


@pytest.mark.parametrize(
    ("likelihood", "density"),
    [
        ("negative-binomial", False),
        ("categorical", False),
        ("discretized-logistic", False),
        ("zero-inflated-lognormal", True),
    ],
)
def test_probabilities_of_other_data_are_not_densities(
    likelihood: str, density: bool, call: Call, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == likelihood)
    data = from_arrays(case.make(60, 5), binarize=False)
    config = small(likelihood=likelihood, **case.settings)
    softspin.fit(config, data, tmp_path / "run", progress=False, pictures=False)
    (row,) = call("runs", tmp_path, "--json").json
    assert ("density" in row["unit"]) == density
    assert ("(d)" in call("runs", tmp_path).out) == density


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_on_a_terminal_names_and_results_are_never_cut_off(
    width: int, call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich takes the width of the terminal from COLUMNS. The settings that differ are wrapped."""
    whole = call("runs", folder).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = re.sub(r"\x1b\[[0-9;]*m", "", call("runs", folder).out)
    assert "…" not in out
    assert max(map(len, out.splitlines()[:-3])) <= width
    for row in whole.splitlines()[1:-1]:
        name, result = row.split()[0], re.search(r"\d+\.\d+ \+- \d+\.\d+", row)
        assert any(line.startswith(f"{name} ") and (not result or result[0] in line) for line in out.splitlines())
    assert ("the same in all: method dvae#-power, data bars" in out) == (width < 200)
    assert ("left out, as the terminal is narrow:" in out) == (width < 200)


def test_damaged_runs_and_empty_folders(
    call: Call, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    ended = call("runs", tmp_path)
    assert ended.code == 0
    assert ended.err.startswith(f"left out: {tmp_path / 'bad' / 'run.json'} cannot be read")
    assert ended.out == f"no runs in {tmp_path}; train one with: softspin train\n"
    ended = call("runs", tmp_path / "nowhere")
    assert ended.code == 1
    assert ended.err == f"error: no folder {tmp_path / 'nowhere'}; to list the runs, give their folder\n"
    monkeypatch.chdir(folder)
    assert call("runs").err == "error: no folder runs; to list the runs of this folder, use: softspin runs .\n"
