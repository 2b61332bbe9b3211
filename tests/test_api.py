"""A model in use: encoding, decoding, samples of the prior, likelihoods, and errors for wrong input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation.models import small_model, some_images
from torch.utils.data import TensorDataset
from training.runs import small

import softspin
from softspin import data as datasets
from softspin.config import Config
from softspin.errors import ConfigError, DataWarning, OutOfTimeError, RunError, ShapeError, SupportError
from softspin.evaluation import exact_nll
from softspin.trained import Model
from softspin.training.trainer import Trainer


def model() -> Model:
    """Two replicas with random parameters, 8 bits, 3 x 3 pixels."""
    return Model(small_model(), Config(test_samples=50), (3, 3))


def test_encoded_bits_follow_the_posterior() -> None:
    """The mean over 4,000 copies of an image is within five standard errors of q of the first group."""
    made = model()
    x = some_images(1).expand(4000, -1)
    z = made.encode(x, replica=1, seed=3)
    assert z.shape == (4000, 8)
    assert set(z.unique().tolist()) == {0.0, 1.0}
    with torch.no_grad():
        centred = (x[:1].double() - made.net.mean).expand(2, 1, 1, -1)
        q = torch.sigmoid(made.net.encoder[0](centred))[1, 0, 0]
    assert ((z[:, :4].mean(0) - q).abs() < 5 * (q * (1 - q) / 4000).sqrt()).all()
    assert torch.equal(z, made.encode(x, replica=1, seed=3))
    assert not torch.equal(z, made.encode(x, replica=1, seed=4))


def test_decoded_bits_are_pixel_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softspin.trained.batched.ROWS", 2)  # so that five images make three batches
    made = model()
    z = made.encode(some_images(5))
    for replica in range(2):
        with torch.no_grad():
            logits = made.net.decode(z.expand(2, 1, 5, 8))
        torch.testing.assert_close(made.decode(z, replica=replica), torch.sigmoid(logits[replica, 0]).view(5, 3, 3))
    torch.testing.assert_close(made.reconstruct(some_images(5)), made.decode(z))
    torch.testing.assert_close(made.reconstruct(some_images(5).reshape(5, 3, 3)), made.decode(z))


def test_samples_of_the_prior_have_its_marginals() -> None:
    """4,000 annealed samples share ancestors, so five standard errors are those of 2,000 independent ones."""
    made = model()
    marginals = made.net.prior().marginals()[1]
    z = made.sample_bits(4000, replica=1, seed=0)
    assert z.shape == (4000, 8)
    assert ((z.mean(0) - marginals).abs() < 5 * 0.5 / math.sqrt(2000)).all()
    assert made.sample(3, replica=1).shape == (3, 3, 3)


def test_the_likelihood_agrees_with_the_exact_one() -> None:
    made = model()
    x = some_images(20)
    found = made.nll(x, samples=4000)
    torch.testing.assert_close(found.nll, exact_nll(made.net, x).nll, rtol=0, atol=0.05)
    assert made.nll(x).samples == 50


def test_errors_name_the_wrong_input() -> None:
    made = model()
    with pytest.raises(ShapeError, match=r"images have shape \(2, 8\); expected \(N, 3, 3\) or \(N, 9\) with N >= 1"):
        made.encode(torch.zeros(2, 8))
    with pytest.raises(ShapeError, match=r"images have shape \(0, 9\)"):
        made.encode(torch.zeros(0, 9))
    with pytest.raises(ShapeError, match=r"images have shape \(3,\)"):
        made.encode([0, 1, 0])
    with pytest.raises(SupportError, match="0 samples; at least 1 is needed"):
        made.nll(torch.zeros(2, 9), samples=0)
    with pytest.raises(SupportError, match="-1 samples; at least 1 is needed"):
        made.sample(-1)
    with pytest.raises(SupportError, match=r"values of images are from -1 to 1.*convert spins with \(x \+ 1\) / 2"):
        made.nll(torch.ones(2, 9) - 2 * torch.eye(2, 9))
    with pytest.raises(ShapeError, match=r"bits have shape \(2, 9\); expected \(N, 8\)"):
        made.decode(torch.zeros(2, 9))
    with pytest.raises(SupportError, match="bits are from 0 to 7; they must be 0 or 1, or soft bits between them"):
        made.decode(torch.eye(8) * 7)
    with pytest.raises(SupportError, match="no replica 2; this model has 2, counted from 0"):
        made.sample(1, replica=2)


def test_gray_images_are_binarized_as_the_test_images_are() -> None:
    made = model()
    gray = np.random.default_rng(0).random((6, 3, 3))
    bits = datasets.from_arrays(gray, gray, gray).test
    for images in (gray, torch.from_numpy(gray), list(torch.from_numpy(gray)), TensorDataset(torch.from_numpy(gray))):
        with pytest.warns(DataWarning, match="binarized with a fixed seed"):
            assert torch.equal(made.encode(images), made.encode(bits))
    with pytest.warns(DataWarning, match="binarized with a fixed seed"):
        assert torch.equal(made.nll(gray, samples=10).nll, made.nll(bits, samples=10).nll)
    with pytest.warns(DataWarning, match="divided by 255"):
        assert torch.equal(made.reconstruct((bits * 255).numpy()), made.reconstruct(bits))


def test_fit_accepts_images_in_memory(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 2, (20, 3, 3))
    config = small(steps=2, evaluate_every=1, checkpoint_every=1)
    made = softspin.fit(config, TensorDataset(torch.from_numpy(images)), tmp_path)
    assert made.metadata is not None
    assert made.metadata.data.fingerprint == datasets.from_arrays(images).fingerprint
    again = softspin.fit(config, images.tolist(), tmp_path, resume=True)
    assert again.result == made.result


def test_a_warning_about_data_names_the_line_of_the_user() -> None:
    gray = np.full((20, 9), 7, np.uint8)
    for use in (lambda: datasets.from_arrays(gray), lambda: model().encode(gray)):
        with pytest.warns(DataWarning) as said:
            use()
        assert {Path(one.filename) for one in said} == {Path(__file__)}


def test_fit_writes_an_absolute_path_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "own.npy", np.eye(20, 9))
    monkeypatch.chdir(tmp_path)
    made = softspin.fit(small(steps=1), "own.npy", "run")
    assert made.config.data == str(tmp_path / "own.npy")


def test_a_run_of_an_earlier_version_of_the_data_resumes_with_it(tmp_path: Path) -> None:
    """Such a run names `digits8x8`, as all runs did when there was one version."""
    config = small(data="digits8x8", steps=4, evaluate_every=2, checkpoint_every=2)
    first = datasets.load("digits8x8@1")
    whole = softspin.fit(config, first, tmp_path / "whole").result
    half = Trainer(config, first, tmp_path / "half")
    half.deadline = 0.0
    with pytest.raises(OutOfTimeError):
        half.train()
    assert json.loads((tmp_path / "half" / "run.json").read_text())["config"]["data"] == "digits8x8"
    with pytest.warns(DataWarning, match="made with 'digits8x8@1'"):
        resumed = softspin.fit(config, None, tmp_path / "half", resume=True)
    assert whole is not None
    assert resumed.result is not None
    assert resumed.result[0].nll == whole[0].nll
    assert resumed.result[0].data == "digits8x8@1"


def test_a_chosen_batch_larger_than_the_data_is_said(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 2, (20, 3, 3))
    with pytest.warns(
        DataWarning, match="batch_size = 50 is larger than the training set; each step uses all 16 images"
    ):
        softspin.fit(small(steps=1, batch_size=50), images, tmp_path)


@pytest.mark.parametrize("given", ["bars-and-stripes-3x3", datasets.load("bars-and-stripes-3x3")])
def test_fit_writes_the_given_data_to_the_config(given: Any, tmp_path: Path) -> None:
    """So beta is the published one for these data, and the run directory names them."""
    made = softspin.fit(small(steps=1).replace(data="mnist"), given, tmp_path)
    assert made.config.data == "bars-and-stripes-3x3"
    assert softspin.load(tmp_path).config == made.config


def test_loading_a_folder_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    data = {"name": "x", "source": "x", "fingerprint": "x", "shape": [3, 3], "images": [1, 1, 1]}
    data["binarization"] = "static"
    origin = dict.fromkeys(("softspin", "commit", "torch", "device"), "x")
    about: dict[str, Any] = {"version": 3, "config": small().to_dict(), "data": data, "provenance": origin}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"no checkpoint 'best' in .* yet; training has not written one; resume it"):
        softspin.load(tmp_path)
    with pytest.raises(ConfigError, match="device = 'gpu' is not possible"):
        softspin.load(tmp_path, device="gpu")
    for text in ("{", "", "\xff", "[" * 100_000):
        (tmp_path / "run.json").write_text(text, encoding="latin1")
        with pytest.raises(RunError, match=r"run\.json cannot be read"):
            softspin.load(tmp_path)
    (tmp_path / "run.json").write_text(
        json.dumps(about | {"config": {"version": 3, "chainz": 3}, "provenance": origin | {"softspin": "9.1"}})
    )
    with pytest.raises(
        RunError, match=r"was written by softspin 9\.1; this one, .*, cannot use it: unknown setting 'chainz'"
    ):
        softspin.load(tmp_path)
    for wrong, message in (
        (5, "is not a JSON object"),
        ([], "is not a JSON object"),
        (about | {"version": 5}, "has version 5; softspin .* reads versions 1 to 4"),
        ({name: value for name, value in about.items() if name != "config"}, "has no 'config'"),
        (about | {"config": 3}, "has 'config' = 3; it must be a JSON object"),
        (about | {"provenance": None}, "has 'provenance' = None; it must be a JSON object"),
        (about | {"data": "x"}, "has 'data' = 'x'; it must be a JSON object"),
        (about | {"data": data | {"shape": 9}}, "has 'data.shape' = 9; it must be a list, each an integer"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(wrong))
        with pytest.raises(RunError, match=f"run.json {message}.*; it is not what training wrote"):
            softspin.load(tmp_path)
