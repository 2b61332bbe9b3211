"""A table with named columns, such as genes: values are never read in another order than that of the training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import caller

import softspin
from softspin.data import as_dataset, from_arrays, load
from softspin.data.columns import column_names
from softspin.errors import DataError, ShapeError

pd: Any = pytest.importorskip("pandas")

NAMES = ("tall", "old", "ill", "rich")
TABLE = (np.random.default_rng(0).random((60, 4)) < [0.1, 0.3, 0.6, 0.9]).astype(np.uint8)
FRAME = pd.DataFrame(TABLE, columns=NAMES)
REVERSED = FRAME[list(reversed(NAMES))]
OTHER_ORDER = r"column 0 of the data is 'rich', but 'tall' in the training data; put the columns in the same order"
SMALL: dict[str, Any] = {"steps": 4, "batch_size": 10, "chains": 10, "device": "cpu"}


def encoder(data: Any, folder: Path) -> softspin.Model:
    config = softspin.Config(width=4, bits_per_group=2, sweeps=1, test_samples=20, validation_samples=2, **SMALL)
    return softspin.fit(config, data, folder, progress=False)


def machine(data: Any, folder: Path) -> softspin.BoltzmannModel:
    return softspin.fit_boltzmann(data, hidden=2, folder=folder, evaluate_every=4, progress=False, **SMALL)


def test_names_of_frames_and_csv_files(tmp_path: Path) -> None:
    assert column_names(FRAME) == NAMES
    assert column_names(TABLE) is column_names(pd.DataFrame(TABLE)) is column_names(torch.from_numpy(TABLE)) is None
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    assert load(tmp_path / "a.csv").columns == from_arrays(FRAME).columns == NAMES
    FRAME.assign(label=1, condition_age=TABLE[:, 0]).to_csv(tmp_path / "b.csv", index=False)
    assert load(tmp_path / "b.csv").columns == NAMES
    np.savetxt(tmp_path / "c.csv", TABLE, header="a title")
    np.savetxt(tmp_path / "d.csv", TABLE, header="one")
    assert load(tmp_path / "c.csv").columns is load(tmp_path / "d.csv").columns is None


def test_splits_have_the_same_columns() -> None:
    assert as_dataset({"train": FRAME, "test": FRAME[:9], "valid": TABLE[:9]}).columns == NAMES
    with pytest.raises(DataError, match=r"column 0 of test .* is 'rich', but 'tall' in train; put the columns in the"):
        as_dataset({"train": FRAME, "test": REVERSED})
    renamed = FRAME.rename(columns={"ill": "sick"})
    with pytest.raises(DataError, match=r"column 2 of test .* is 'sick', but 'ill' in train; give the same columns"):
        as_dataset({"train": FRAME, "test": renamed})
    with pytest.raises(ShapeError, match="3 names of columns for 4 columns"):
        dataclasses.replace(from_arrays(TABLE), columns=NAMES[:3])


@pytest.mark.parametrize("train", [encoder, machine])
def test_a_model_rejects_columns_in_another_order(train: Any, tmp_path: Path) -> None:
    model = train(FRAME, tmp_path / "run")
    path = tmp_path / "model.safetensors"
    model.save(path)
    opener = softspin.load if train is encoder else softspin.load_boltzmann
    for one in (model, opener(path), opener(tmp_path / "run")):
        assert one.columns == NAMES
        torch.testing.assert_close(one.score_samples(FRAME), one.score_samples(TABLE))
        with pytest.raises(DataError, match=OTHER_ORDER):
            one.score_samples(REVERSED)
    unnamed = train(TABLE, tmp_path / "unnamed")
    assert unnamed.columns is None
    assert unnamed.score_samples(REVERSED).shape == (60,), "a model without names accepts any"


def test_missing_values_do_not_hide_the_order(tmp_path: Path) -> None:
    model = encoder(FRAME, tmp_path / "run")
    missing = np.zeros((60, 4), dtype=bool)
    missing[:, 1] = True
    assert model.inpaint(FRAME, missing).shape == (60, 4)
    with pytest.raises(DataError, match=OTHER_ORDER):
        model.inpaint(REVERSED, missing)


@pytest.mark.parametrize("command", [["evaluate"], ["rbm", "evaluate"]])
def test_the_command_line_says_it_in_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine if command[0] == "rbm" else encoder)(FRAME, tmp_path / "run")
    REVERSED.to_csv(tmp_path / "new.csv", index=False)
    words = [*command, str(tmp_path / "run"), "--data", str(tmp_path / "new.csv"), "--split", "all"]
    code, _, err = caller(capsys, monkeypatch)(*words)
    assert code == 1
    assert "'rich', but 'tall' in the training data; put the columns in the same order" in err
    assert err.count("\n") == 1
