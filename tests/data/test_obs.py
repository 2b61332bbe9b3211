"""A column of `obs` of an AnnData object as the condition, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softspin
from softspin.api import load_data
from softspin.errors import SoftspinError

anndata: Any = pytest.importorskip("anndata")
pd: Any = pytest.importorskip("pandas")

BATCH = np.array(["a", "b", "c"])[np.arange(60) % 3]
X = (np.random.default_rng(0).random((60, 5)) < 0.4).astype(np.float32)
OBS = pd.DataFrame({"batch": pd.Categorical(BATCH), "depth": np.linspace(1, 3, 60)}, index=[f"c{i}" for i in range(60)])
CONFIG = softspin.Config(
    structure="1-nonlinear", bits_per_group=4, width=4, steps=6, batch_size=10, chains=12, sweeps=1, device="cpu",
    test_samples=20, test_chains=10, test_temperatures=10, validation_samples=2, condition_values=4,
)  # fmt: skip
QUIET: dict[str, Any] = {"progress": False, "pictures": False}


def cells(rows: slice = slice(None)) -> Any:
    return anndata.AnnData(X[rows], obs=OBS[rows])


@pytest.mark.parametrize("name", ["batch", "depth"])
def test_a_column_of_obs_is_the_condition(name: str, tmp_path: Path) -> None:
    model = softspin.fit(CONFIG, cells(), tmp_path / "run", condition=name, **QUIET)
    same = softspin.fit(CONFIG, X, tmp_path / "same", condition=OBS[name], **QUIET)
    assert model.class_names == same.class_names == (("a", "b", "c") if name == "batch" else None)
    assert model.config.condition == softspin.load(tmp_path / "run").config.condition == name
    for query in ("encode", "score_samples", "reconstruct"):
        expected = getattr(same, query)(X[:7], condition=OBS[name][:7])
        assert torch.equal(getattr(model, query)(cells(slice(7)), condition=name), expected)
    assert model.nll(cells(), condition=name).nll == same.nll(X, condition=OBS[name]).nll
    missing = np.zeros((60, 5), dtype=bool)
    missing[:, 1] = True
    filled = model.inpaint(cells(), missing, condition=name, steps=2, seed=0)
    assert torch.equal(filled, same.inpaint(X, missing, condition=OBS[name], steps=2, seed=0))
    model.save(tmp_path / "one.safetensors")


def test_resume_finds_the_column_again(tmp_path: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["step"] >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        softspin.fit(CONFIG, cells(), tmp_path / "run", condition="batch", callbacks=stop, **QUIET)
    model = softspin.fit(data=cells(), folder=tmp_path / "run", resume=True, **QUIET)
    whole = softspin.fit(CONFIG, cells(), tmp_path / "whole", condition="batch", **QUIET)
    assert torch.equal(model.sample(3, condition="b", seed=0), whole.sample(3, condition="b", seed=0))


def test_a_column_of_each_part(tmp_path: Path) -> None:
    parts = {"train": cells(slice(40)), "valid": cells(slice(40, 50)), "test": cells(slice(50, 60))}
    data = load_data(CONFIG, parts, condition="batch")
    assert data.class_names == ("a", "b", "c")
    assert data.condition is not None
    assert data.condition.test[:, 0].tolist() == (np.arange(50, 60) % 3).tolist()


def test_a_file_is_still_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("own.npy", BATCH)
    assert load_data(CONFIG, cells(), condition="own.npy").class_names == ("a", "b", "c")


def test_a_name_that_is_neither_a_column_nor_a_file(tmp_path: Path) -> None:
    with pytest.raises(SoftspinError) as told:
        softspin.fit(CONFIG, cells(), tmp_path / "run", condition="bacth", **QUIET)
    assert str(told.value) == "the condition 'bacth' is neither a column of obs nor a file; columns: batch, depth"
