"""Every likelihood trains, and is evaluated, sampled and exported by the commands.

Runs of every likelihood that are resumed bit for bit are in `tests/training/test_combinations.py`.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.command import Call, caller
from gpu import needs_gpu
from likelihoods.cases import BERNOULLI, CASES, GAUSSIAN, NEGATIVE_BINOMIAL, ONE_HOT, Case
from training.runs import small

import softspin
from softspin.errors import DataWarning, SoftspinError
from softspin.evaluation import pictures
from softspin.model import build

others = [case for case in (*CASES, ONE_HOT) if case is not BERNOULLI]  # whose runs have tests of their own
every = pytest.mark.parametrize("case", others, ids=lambda case: case.id)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@every
def test_train_evaluate_sample_and_export(
    case: Case, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    np.save(tmp_path / "own.npy", case.make(40, 3))
    config = small(likelihood=case.name, **case.settings, steps=20, seeds=(0, 3), importance_samples=2)
    whole = softspin.fit(config, tmp_path / "own.npy", tmp_path / "whole", progress=False, pictures=False)
    assert whole.result is not None
    found = call("evaluate", tmp_path / "whole", "--json").json
    assert [row["nll"] for row in found] == pytest.approx([row.nll for row in whole.result], rel=1e-5)
    text = call("evaluate", tmp_path / "whole", "--data", tmp_path / "own.npy", "--split", "all").out
    assert whole.net.likelihood.unit in text
    assert "independent features" in text
    bits = [row.nll / (3 * np.log(2)) for row in whole.result if row.nll is not None]
    is_bytes = case.name == "discretized-logistic"
    assert [row.bits_per_dimension for row in whole.result] == (pytest.approx(bits) if is_bytes else [None, None])
    assert ("bits per dimension" in text) == is_bytes
    assert call("sample", tmp_path / "whole", "-n", "5", "--out", tmp_path / "drawn.npy").code == 0
    drawn = np.load(tmp_path / "drawn.npy")
    assert drawn.shape == (5, *whole.shape)
    whole.net.likelihood.check_data(torch.from_numpy(drawn).flatten(1))
    assert call("reconstruct", tmp_path / "whole", "--out", tmp_path / "again.npy").code == 0

    assert call("export", tmp_path / "whole", "--out", tmp_path / "shared").code == 0
    shared = softspin.load(tmp_path / "shared")
    x = case.make(9, 3)
    assert torch.equal(shared.encode(x, replica=1), whole.encode(x, replica=1))
    assert torch.equal(shared.nll(x, samples=5).nll, whole.nll(x, samples=5).nll)
    assert torch.equal(shared.reconstruct(x, replica=1), whole.reconstruct(x, replica=1))
    card = (tmp_path / "shared" / "README.md").read_text()
    assert f"{whole.result[0].nll:.2f}" in card
    assert f"| likelihood | {case.name} |" in card
    assert whole.net.likelihood.unit in card
    assert ("density depends on the unit" in card) == ("density" in whole.net.likelihood.unit)
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["data"]["binarization"] == "none"


@every
def test_training_from_a_file_on_disk_equals_training_from_memory(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, with constants of the likelihood that are computed in chunks."""
    monkeypatch.setattr("softspin.data.mapped.CHUNK_BYTES", 200)
    np.save(tmp_path / "own.npy", case.make(40, 3))
    config = small(likelihood=case.name, **case.settings, steps=12)
    arrays = np.load(tmp_path / "own.npy"), np.load(tmp_path / "own.npy", mmap_mode="r")
    memory, disk = (
        softspin.fit(config, x, tmp_path / str(number), progress=False, pictures=False)
        for number, x in enumerate(arrays)
    )
    assert memory.result is not None
    assert disk.result is not None
    assert (disk.result[0].nll, disk.result[0].fingerprint) == (memory.result[0].nll, memory.result[0].fingerprint)
    for name, value in memory.net.state_dict().items():
        assert torch.equal(value, disk.net.state_dict()[name]), name


@every
def test_pictures_and_missing_values(case: Case, tmp_path: Path) -> None:
    """Pictures of data that are no images never fail, and missing values are drawn within the support."""
    pytest.importorskip("matplotlib")
    data = case.data(rows=30, features=5)
    net = build(case.config(), data.spec).eval()
    bits = torch.zeros(1, 4, net.units)
    assert pictures.samples(net, bits, data.shape, tmp_path / "samples.png").exists()
    assert pictures.reconstructions(net, data.test, data.shape, tmp_path / "again.png").exists()
    model = softspin.Model(net, case.config(), data.shape)
    missing = torch.arange(data.pixels) < 4
    if case is ONE_HOT:
        with pytest.raises(SoftspinError, match="needs blocks of 4 with a single 1"):
            model.inpaint(data.test, missing, steps=2)
        return
    filled = model.inpaint(data.test, missing, steps=2, seed=0)
    net.likelihood.check_data(filled)
    assert torch.equal(filled[:, 4:], data.test[:, 4:].float())


def test_the_command_line_rejects_bad_data_in_one_line(tmp_path: Path, call: Call) -> None:
    np.save(tmp_path / "own.npy", np.arange(60).reshape(20, 3) - 5)
    run = call("train", tmp_path / "run", "--data", tmp_path / "own.npy", "--likelihood", "negative-binomial")
    assert run.code != 0
    assert len(run.err.strip().splitlines()) == 1
    assert "needs counts, whole numbers from 0" in run.err
    assert not (tmp_path / "run").exists()
    run = call("train", tmp_path / "run", "--data", "digits", "--likelihood", "gaussian")
    assert "the data set 'digits' is binarized" in run.err
    run = call("train", tmp_path / "run", "--data", tmp_path / "own.npy", "--set", "likelihood=gauss")
    assert "did you mean 'gaussian'?" in run.err


def test_bad_data_for_a_trained_model_end_in_one_line_and_nothing_is_lost(tmp_path: Path, call: Call) -> None:
    quiet: dict[str, Any] = {"progress": False, "pictures": False}
    colors = np.random.default_rng(0).integers(0, 256, (30, 4, 4, 3)).astype(np.uint8)
    config = small(likelihood="discretized-logistic", net="conv", channels=2, steps=4)
    softspin.fit(config, colors, tmp_path / "colors", **quiet)
    shown = " ".join(call("info", tmp_path / "colors").out.split())
    assert "networks conv likelihood discretized-logistic" in shown
    counts = small(likelihood="negative-binomial", steps=4)
    softspin.fit(counts, NEGATIVE_BINOMIAL.make(30, 3), tmp_path / "counts", **quiet)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"}
    bad: list[tuple[str, Any, str]] = [
        ("colors", colors[..., :1], "pixels, the model's 48"),
        ("colors", colors.transpose(0, 3, 1, 2), r"shape (30, 3, 4, 4); expected (N, 4, 4, 3)"),
        ("colors", colors.astype(float) + 0.5, "needs whole numbers from 0 to 255"),
        ("counts", np.full((4, 3), -1), "needs counts, whole numbers from 0"),
        ("counts", np.full((4, 3), np.nan), "contains NaN, first at index [0, 0]"),
    ]
    for run, x, text in bad:
        model = softspin.load(tmp_path / run)
        for query in (model.score_samples, model.encode, model.reconstruct):
            with pytest.raises(SoftspinError) as error:
                query(x)
            assert "\n" not in str(error.value)
        np.save(tmp_path / "bad.npy", x)
        ended = call("evaluate", tmp_path / run, "--data", tmp_path / "bad.npy", "--split", "all")
        assert (ended.code, len(ended.err.strip().splitlines())) == (1, 1)
        assert text in ended.err
    with pytest.raises(SoftspinError, match=r"images of test have shape \(4, 4, 1\), those of train \(4, 4, 3\)"):
        softspin.fit(config, {"train": colors, "test": colors[..., :1]}, tmp_path / "never", **quiet)
    assert not (tmp_path / "never").exists()
    with pytest.raises(SoftspinError, match="is not the one that the run in"):
        softspin.fit(config, colors[..., :2], tmp_path / "colors", resume=True, **quiet)
    assert {path: path.read_bytes() for path in before} == before


def test_a_page_is_for_binary_pixels_and_data_in_memory_are_not_stored(tmp_path: Path, call: Call) -> None:
    quiet: dict[str, Any] = {"progress": False, "pictures": False}
    config, x = small(likelihood="gaussian", steps=2), GAUSSIAN.make(30, 3)
    softspin.fit(config.replace(data="digits"), x, tmp_path / "run", **quiet)
    np.save(tmp_path / "own.npy", x)
    page = call("playground", tmp_path / "run", "--data", tmp_path / "own.npy", "--out", tmp_path / "page.html")
    assert "likelihood = gaussian cannot be exported to a web page" in page.err
    assert len(page.err.strip().splitlines()) == 1
    assert "were given in memory" in call("evaluate", tmp_path / "run").err


@needs_gpu
@every
def test_training_on_a_gpu(case: Case, tmp_path: Path) -> None:
    """Captured steps; the NLL of the model on a CPU is the same. tests/training/test_parts_on_gpu.py compiles them."""
    options: dict[str, Any] = {"steps": 20, "seeds": (0, 3), "importance_samples": 2}
    config = small(likelihood=case.name, **case.settings, **options, device="cuda", compile="off")
    data = case.data(rows=40)
    model = softspin.fit(config, data, tmp_path / "run", progress=False, pictures=False)
    found = softspin.load(tmp_path / "run", device="cpu").nll(data.test, samples=2000).nll
    torch.testing.assert_close(model.nll(data.test, samples=2000).nll.cpu(), found, rtol=1e-4, atol=1e-4)
    model.net.likelihood.check_data(model.sample(5, draw=True).flatten(1))


def test_the_first_lines_of_a_run_name_net_and_likelihood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small(likelihood="gaussian", net="resnet", steps=1)
    softspin.fit(config, GAUSSIAN.make(30, 3), tmp_path / "run", pictures=False)
    assert ", net = resnet, likelihood = gaussian; seed 0" in capsys.readouterr().err


def test_a_bad_value_is_named_by_its_row_in_the_data_that_were_given(tmp_path: Path) -> None:
    """The splits are drawn at random, and large tables are checked in pieces; the message has the user's row."""
    counts = NEGATIVE_BINOMIAL.make(50, 3).astype(int)
    for row in (0, 17, 49):
        bad = counts.copy()
        bad[row, 2] = -4
        with pytest.raises(SoftspinError, match=rf"the data have -4 \(row {row}, feature 2\)") as error:
            softspin.fit(small(likelihood="negative-binomial"), bad, tmp_path / "never")
        again = pickle.loads(pickle.dumps(error.value))
        assert (type(again), str(again)) == (type(error.value), str(error.value))
    parts = {"train": counts, "test": np.where(np.arange(50)[:, None] == 7, -1, counts)}
    with pytest.raises(SoftspinError, match=r"the data have -1 \(row 7 of test, feature 0\)"):
        softspin.fit(small(likelihood="negative-binomial"), parts, tmp_path / "never")
    letters = np.zeros((40, 3), int)
    letters[3, 1] = 9
    with pytest.raises(SoftspinError, match=r"the data have 9 \(row 3, feature 1\)"):
        softspin.fit(small(likelihood="categorical", categories=4), letters, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_the_row_is_right_in_every_piece_of_a_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softspin.data.mapped.CHUNK_BYTES", 4 * 3 * 10)
    counts = NEGATIVE_BINOMIAL.make(50, 3).astype(int)
    counts[33, 1] = -2
    data = softspin.data.from_arrays(counts, binarize=False)
    likelihood = build(small(likelihood="negative-binomial"), data.spec).likelihood
    with pytest.raises(SoftspinError, match=r"\(row 33, feature 1\)"):
        softspin.api.check_values(likelihood, data)


def test_data_of_other_kinds_name_the_likelihoods_and_settings_of_other_parts_their_part(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(SoftspinError, match=r"must be in \[0, 1\]; or set the likelihood of your data: gaussian"):
        softspin.fit(small(), x, tmp_path / "never")
    with pytest.raises(SoftspinError, match=r"'categories' is a setting of likelihood = categorical; choose that"):
        small(categories=4)
    with pytest.raises(SoftspinError, match=r"'channels' is a setting of net = conv or conv1d; choose that net"):
        small(channels=4)


def test_one_hot_blocks_that_are_read_as_integers_are_noticed() -> None:
    blocks = np.eye(4, dtype=int)[np.random.default_rng(0).integers(4, size=(30, 5))]
    data = softspin.data.from_arrays(blocks, binarize=False)
    with pytest.warns(DataWarning, match="look like one-hot blocks of 4; set one_hot = true"):
        build(small(likelihood="categorical", categories=4), data.spec)
    build(small(likelihood="categorical", categories=4, one_hot=True), data.spec)


def test_the_card_of_a_density_says_so_and_promises_no_page(tmp_path: Path) -> None:
    model = softspin.fit(
        small(likelihood="gaussian"), GAUSSIAN.make(30, 3), tmp_path / "run", progress=False, pictures=False
    )
    model.save(tmp_path / "shared")
    card = (tmp_path / "shared" / "README.md").read_text()
    assert " nats of a density)." in card.split("independent features (")[1]
    assert "model.sample(16)  # draws from p(x | z); draw=False returns means" in card
    assert "playground" not in card
    assert "run `pip install -e .`." in card


def test_curves_have_the_unit_of_the_likelihood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "_save", lambda figure, path: drawn.append(figure))
    rows = [{"kind": "valid", "step": step, "nll": 3.0, "log_z": 2.0} for step in (1, 2)]
    pictures.curves(rows, tmp_path / "curves.png", unit="nats of a density")
    units = {axis.get_title(): axis.get_ylabel() for part in drawn[0].subfigs for axis in part.axes}
    assert units["negative log-likelihood"] == "nats of a density"
    assert units["log Z of the prior"] == "nats"
