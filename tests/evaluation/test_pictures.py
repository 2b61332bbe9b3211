"""Pictures: files that are there, show what they should, and leave matplotlib as it was."""

from __future__ import annotations

import errno
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from evaluation.models import small_model, some_images

from softspin.errors import MissingExtraError, ShapeError, SupportError
from softspin.evaluation import pictures
from softspin.project import install_hint

pytestmark = pytest.mark.pictures


def pixels(path: Path) -> Any:
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [one.name for one in path.parent.iterdir()] == [path.name], "something was left behind"
    return matplotlib.image.imread(path)[..., :3]


def test_samples(tmp_path: Path) -> None:
    model = small_model()
    z = torch.zeros(2, 7, 8)
    image = pixels(pictures.samples(model, z, (3, 3), tmp_path / "new" / "samples.png", replica=1))
    # The grid's frame is bluish grey, what is decoded has no colour.
    assert np.ptp(image, axis=-1).max() > 0.1
    with pytest.raises(ShapeError, match="images of 9 pixels are not 3 x 4"):
        pictures.samples(model, z, (3, 4), tmp_path / "a.png")
    with pytest.raises(ShapeError, match=r"states of shape \(1, 7, 8\); this model takes \(2, n, 8\)"):
        pictures.samples(model, z[:1], (3, 3), tmp_path / "a.png")
    with pytest.raises(SupportError, match="replica 2; this model has replicas 0 to 1"):
        pictures.samples(model, z, (3, 3), tmp_path / "a.png", replica=2)


def test_a_grid_is_about_a_square_and_never_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, z = small_model(), torch.zeros(2, 9, 8)
    flat = pixels(pictures.samples(model, z, (1, 9), tmp_path / "flat.png"))
    assert 0.3 < flat.shape[0] / flat.shape[1] < 3, "nine strips stand below each other"
    monkeypatch.setattr(pictures, "LARGEST", 30)
    (tmp_path / "flat.png").unlink()
    with pytest.raises(ShapeError, match=r"9 images of 9 x 1 make a picture of more than 30 dots a side; take fewer"):
        pictures.samples(model, z, (9, 1), tmp_path / "tall.png")


def test_a_full_disk_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pictures.couplings(small_model(), tmp_path / "w.png")
    before = path.read_bytes()

    def fails(_: Path, __: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="No space left"):
        pictures.couplings(small_model(seeds=(3,)), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["w.png"]


def test_reconstructions_leave_the_model_in_training(tmp_path: Path) -> None:
    model = small_model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    image = pixels(pictures.reconstructions(model, some_images(12), (3, 3), tmp_path / "r.png"))
    assert image.min() < 0.05, "the originals have black pixels"
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ShapeError, match=r"images of shape \(12, 8\)"):
        pictures.reconstructions(model, some_images(12)[:, :8], (2, 4), tmp_path / "r.png")


def test_couplings_are_red_above_zero_and_blue_below(tmp_path: Path) -> None:
    model = small_model(groups=1, bits=2)
    for sign, strong in ((1.0, 0), (-1.0, 2)):
        with torch.no_grad():
            model.prior_parameters.weight.fill_(sign)
        image = pixels(pictures.couplings(model, tmp_path / "w.png"))
        middle = image[image.shape[0] // 2, image.shape[1] // 3]
        assert middle.argmax() == strong
        assert np.ptp(middle) > 0.2
    with torch.no_grad():
        model.prior_parameters.weight.zero_()
    image = pixels(pictures.couplings(model, tmp_path / "w.png"))
    assert image[image.shape[0] // 2, image.shape[1] // 3].min() > 0.95
    with torch.no_grad():
        model.prior_parameters.weight.fill_(torch.nan)
    with pytest.raises(SupportError, match="couplings hold NaN"):
        pictures.couplings(model, tmp_path / "w.png")


ROWS: list[dict[str, Any]] = [
    {"step": 1, "bound": [-5.0, -6.0], "rate": 0.1, "device": "cpu", "done": False, "never": None},
    {"step": 2, "bound": [None, None], "rate": 0.1},
    {"step": 3, "bound": [-3.0, -4.0], "rate": 0.1, "nll": [7.5, None]},
]


def test_curves_have_a_line_per_replica_and_gaps_for_missing_values(tmp_path: Path) -> None:
    series = pictures._series(ROWS)
    assert list(series) == ["bound", "rate", "nll"]
    assert [y for _, y in series["bound"][1]] == pytest.approx([-6, math.nan, -4], nan_ok=True)
    assert series["nll"][0] == [(3, 7.5)]
    image = pixels(pictures.curves(ROWS, tmp_path / "c.png"))
    for colour in ("#0072B2", "#D55E00"):
        wanted = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        assert (np.abs(image - wanted).max(-1) < 0.02).any(), colour
    with pytest.raises(SupportError, match="no curve of elbo in these rows; they hold bound, rate, nll"):
        pictures.curves(ROWS, tmp_path / "c.png", names=["bound", "elbo"])
    with pytest.raises(SupportError, match="no curve of anything in these rows; they hold no numbers at all"):
        pictures.curves([], tmp_path / "c.png")


def test_tick_labels_of_curves_are_plain_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be added or multiplied: matplotlib would write +1e0 or 1e6 at the end of an axis."""
    kept: list[Any] = []
    monkeypatch.setattr(pictures, "_save", lambda figure, _: kept.append(figure))
    near_one = [{"step": 200_000 * n, "sampler": 0.99999 - 1e-6 * n, "log_z": 1234.5 + 1e-3 * n} for n in range(1, 6)]
    pictures.curves(near_one, tmp_path / "c.png")
    kept[0].canvas.draw()
    for axis in kept[0].subfigs[0].axes:
        assert [one.get_offset_text().get_text() for one in (axis.xaxis, axis.yaxis)] == ["", ""]


def test_curves_separate_training_from_validation_and_name_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(pictures, "_save", lambda figure, _: kept.append(figure))
    rows = [
        {"step": step, "kind": kind, name: [float(step + replica) for replica in range(9)]}
        for step in (1, 2, 3)
        for kind, name in (("train", "bound"), ("valid", "nll"))
    ]
    pictures.curves(rows, tmp_path / "c.png")
    (figure,) = kept
    training, validation = figure.subfigs
    assert [part.get_suptitle().split()[0] for part in figure.subfigs] == ["Training", "Validation"]
    for part, title in ((training, "lower bound on log p(x)"), (validation, "negative log-likelihood")):
        (axis,) = part.axes
        assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == (title, "training steps", "nats")
        assert list(axis.get_lines()[-1].get_ydata()) == [5, 6, 7], "the median of nine replicas"
    few = [{**row, "bound": [1.0, 2.0]} for row in rows if "bound" in row]
    pictures.curves(few, tmp_path / "c.png", labels=["seed 0", "seed 1"])
    assert [text.get_text() for text in kept[1].legends[0].get_texts()] == ["seed 0", "seed 1"]


@pytest.mark.parametrize(
    ("sampler", "title"),
    [
        ("pa", "effective sample size / population"),
        ("pcd", "fraction of flipped bits"),
        ("pt", "mean exchange probability"),
        (None, "sampler: effective or flipped fraction"),
    ],
)
def test_the_curve_of_the_sampler_is_named_by_the_sampler(
    sampler: str | None, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(pictures, "_save", lambda figure, _: kept.append(figure))
    pictures.curves([{"step": 1, "sampler": [0.5]}], tmp_path / "c.png", sampler=sampler)
    assert [axis.get_title() for axis in kept[0].axes] == [title]


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("plot"))):
        pictures.couplings(small_model(), tmp_path / "w.png")


def test_global_matplotlib_settings_are_unchanged(tmp_path: Path) -> None:
    code = f"""
import sys, softspin.evaluation.pictures as pictures
assert 'matplotlib' not in sys.modules
pictures.curves([{{'step': 1, 'bound': 2.0}}], {str(tmp_path / "c.png")!r})
import matplotlib
print('matplotlib.pyplot' in sys.modules, dict.__getitem__(matplotlib.rcParams, 'backend') == 'agg')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
