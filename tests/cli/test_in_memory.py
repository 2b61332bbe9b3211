"""Commands on runs whose data were given in memory: one line says what to give, and that works."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.command import Call, caller
from training.runs import small

import softspin
from softspin import data as datasets
from softspin.data import catalog

COUNTS = np.random.default_rng(0).poisson(3.0, (30, 4)).astype(np.float32)
BITS = (COUNTS > 3).astype(np.uint8)
TISSUES = np.array(["liver", "lung"] * 15)
QUIET: dict[str, Any] = {"progress": False, "pictures": False}
DATA = "by --data FILE: a .npy file in the same order if they were one array, "
DATA += "else a .npz file with train, valid and test"
WITH = "; give their condition ({}) by --condition FILE, a .npy or .csv file with one row for each data point"
COMMANDS = (["evaluate"], ["train", "--resume"], ["reconstruct"], ["encode"], ["playground"])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    return caller(capsys, monkeypatch)


def anndata() -> Any:
    module, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    return module.AnnData(COUNTS, obs=pandas.DataFrame({"tissue": TISSUES}, index=[f"cell {n}" for n in range(30)]))


RUNS: dict[str, tuple[str, Any, str]] = {
    "column": ("negative-binomial", "tissue", "tissue, a class of 2: liver, lung"),
    "table": ("negative-binomial", None, ""),
    "arrays": ("bernoulli", None, ""),
    "numbers": ("bernoulli", np.arange(30) % 3, "a class of 3"),
}
"""Likelihood, condition, and what a message calls it; the first two are AnnData objects."""


@pytest.mark.parametrize("name", RUNS)
def test_the_data_are_given_as_the_error_says(call: Call, tmp_path: Path, name: str) -> None:
    """The result is that of the run, and a run without its result is resumed."""
    likelihood, condition, text = RUNS[name]
    values = COUNTS if likelihood == "negative-binomial" else BITS
    data = anndata() if name in ("column", "table") else values
    config = small(data="digits", likelihood=likelihood, steps=2, test_samples=5)
    model = softspin.fit(config, data, "run", condition=condition, **QUIET)
    assert model.result is not None
    end = WITH.format(text) if text else ""
    for command in COMMANDS:
        ended = call(*command, "run")
        start = "error: the data of run were given in memory ('arrays', 24 + 3 + 3 data points of 4 values); give them "
        assert (ended.code, ended.out, ended.err) == (1, "", f"{start}{DATA}{end}\n")
    for command in (["info"], ["sample", *(["--condition", TISSUES[0] if name == "column" else "0"] if text else [])]):
        assert call(command[0], "run", *command[1:]).code == 0

    options = ["--data", "values.npy"]
    np.save("values.npy", values)
    if text:
        for needs in (["evaluate"], ["train", "--resume"]):
            ended = call(*needs, "run", *options)
            assert (ended.code, "condition" in ended.err, "--condition FILE" in ended.err) == (1, True, True)
        assert call("sample", "run").err == (
            "error: this model is of p(x | c); give condition=... or --condition: a class, one of "
            f"{'liver, lung' if name == 'column' else '0, 1, 2'}\n"
        )
        assert call("evaluate", "run", "--condition", "c.csv").code == 1
        rows = TISSUES if name == "column" else condition
        Path("c.csv").write_text("c\n" + "".join(f"{one}\n" for one in rows))
        np.save("c.npy", rows)
        ended = call("evaluate", "run", "--condition", "c.npy")
        assert ended.err.endswith(f"{DATA}\n"), "the condition is given"
        options += ["--condition", "c.npy" if name == "numbers" else "c.csv"]
    (row,) = call("evaluate", "run", *options, "--json").json
    assert (row["nll"], row["images"]) == (model.result[0].nll, 3)
    Path("run/result.json").unlink()
    ended = call("train", "run", "--resume", *options, "--json")
    assert ended.code == 0, ended.err
    assert softspin.load("run").result[0].nll == row["nll"]  # type: ignore[index]


def test_parts_in_one_file_and_a_shared_model(call: Call, tmp_path: Path) -> None:
    parts = {"train": BITS[:20], "valid": BITS[20:25], "test": BITS[25:]}
    given = {part: TISSUES[: len(rows)] for part, rows in parts.items()}
    model = softspin.fit(small(data="digits", steps=2, test_samples=5), parts, "run", condition=given, **QUIET)
    assert model.result is not None
    model.save("shared")
    ended = call("evaluate", "shared")
    assert ended.err.startswith("error: the data of shared were given in memory ('arrays', 20 + 5 + 5 data points")
    arrays: dict[str, Any] = {**parts, **{f"condition_{part}": rows for part, rows in given.items()}}
    np.savez("all.npz", **arrays)
    for place in ("run", "shared"):
        (row,) = call("evaluate", place, "--data", "all.npz", "--json").json
        assert row["nll"] == pytest.approx(model.result[0].nll, rel=1e-6)
    shutil.rmtree("shared")
    Path("run/result.json").unlink()
    assert call("train", "run", "--resume", "--data", "all.npz").code == 0


def test_data_that_have_a_name_of_their_own(call: Call) -> None:
    """A data set made in memory has another name than the setting; that of a file or a name is found."""
    own = datasets.from_arrays(BITS, name="cells", source="a laboratory")
    softspin.fit(small(data="digits", steps=1), own, "own", **QUIET)
    assert "the data of own were given in memory ('cells', 24 + 3 + 3 data points" in call("evaluate", "own").err
    np.save("cells.npy", BITS)
    for name, data in (("file", "cells.npy"), ("named", "digits8x8@1")):
        softspin.fit(small(steps=1, test_samples=2), data, name, **QUIET)
        assert call("evaluate", name).code == 0


@pytest.mark.parametrize("condition", [None, TISSUES])
def test_registered_data_are_found_by_name(call: Call, monkeypatch: pytest.MonkeyPatch, condition: Any) -> None:
    """Also those made from arrays, and with a condition of their own."""
    own = datasets.from_arrays(BITS, name="cells")
    own = own if condition is None else datasets.with_condition(own, condition)
    monkeypatch.setitem(catalog._FUNCTIONS, "cells", lambda: own)
    softspin.fit(small(data="cells", steps=1, test_samples=2), folder="run", **QUIET)
    assert call("evaluate", "run").code == 0
    Path("run/result.json").unlink()
    assert "--data FILE" not in call("info", "run").out
    assert "--condition FILE" not in call("info", "run").out
    assert call("train", "run", "--resume").code == 0
