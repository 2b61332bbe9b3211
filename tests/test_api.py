"""A model in use: encoding, decoding, samples of the prior, likelihoods, and errors for wrong input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation.models import small_model, some_images
from training.runs import small

import softspin
from softspin import data as datasets
from softspin.config import Config
from softspin.errors import ConfigError, RunError, ShapeError, SupportError
from softspin.evaluation import exact_nll
from softspin.trained import Model


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
    monkeypatch.setattr("softspin.trained.ROWS", 2)  # so that five images make three batches
    made = model()
    z = made.encode(some_images(5))
    for replica in range(2):
        with torch.no_grad():
            logits = made.net.decode(z.expand(2, 1, 5, 8))
        torch.testing.assert_close(made.decode(z, replica=replica), torch.sigmoid(logits[replica, 0]))
    torch.testing.assert_close(made.reconstruct(some_images(5)), made.decode(z))
    torch.testing.assert_close(made.reconstruct(some_images(5).reshape(5, 3, 3)), made.decode(z))


def test_samples_of_the_prior_have_its_marginals() -> None:
    """4,000 annealed samples share ancestors, so five standard errors are those of 2,000 independent ones."""
    made = model()
    marginals = made.net.prior().marginals()[1]
    z = made.sample_bits(4000, replica=1, seed=0)
    assert z.shape == (4000, 8)
    assert ((z.mean(0) - marginals).abs() < 5 * 0.5 / math.sqrt(2000)).all()
    assert made.sample(3, replica=1).shape == (3, 9)


def test_the_likelihood_agrees_with_the_exact_one() -> None:
    made = model()
    x = some_images(20)
    found = made.nll(x, samples=4000)
    torch.testing.assert_close(found.nll, exact_nll(made.net, x).nll, rtol=0, atol=0.05)
    assert made.nll(x).samples == 50


def test_errors_name_the_wrong_input() -> None:
    made = model()
    with pytest.raises(ShapeError, match=r"images have shape \(2, 8\); expected \(N, 9\) with N >= 1"):
        made.encode(torch.zeros(2, 8))
    with pytest.raises(ShapeError, match=r"images have shape \(0, 9\)"):
        made.encode(torch.zeros(0, 9))
    with pytest.raises(ShapeError, match=r"images have shape \(3,\)"):
        made.encode([0, 1, 0])  # type: ignore[arg-type]
    with pytest.raises(SupportError, match="0 samples; at least 1 is needed"):
        made.nll(torch.zeros(2, 9), samples=0)
    with pytest.raises(SupportError, match="-1 samples; at least 1 is needed"):
        made.sample(-1)
    with pytest.raises(
        SupportError, match="images contain values other than 0 and 1; the likelihood is for binary pixels"
    ):
        made.nll(torch.full((2, 9), 0.5))
    with pytest.raises(ShapeError, match=r"bits have shape \(2, 9\); expected \(N, 8\)"):
        made.decode(torch.zeros(2, 9))
    with pytest.raises(SupportError, match="no replica 2; this model has 2, counted from 0"):
        made.sample(1, replica=2)


@pytest.mark.parametrize("given", ["bars-and-stripes-3x3", datasets.load("bars-and-stripes-3x3")])
def test_fit_writes_the_given_data_to_the_config(given: Any, tmp_path: Path) -> None:
    """So beta is the published one for these data, and the run directory names them."""
    made = softspin.fit(small(steps=1).replace(data="mnist"), given, tmp_path)
    assert made.config.data == "bars-and-stripes-3x3"
    assert softspin.load(tmp_path).config == made.config


def test_loading_a_folder_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    data = {"name": "x", "source": "x", "fingerprint": "x", "shape": [3, 3], "images": [1, 1, 1]}
    data["binarization"] = "static"
    about: dict[str, Any] = {"version": 3, "config": {}, "data": data, "provenance": {}}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"no checkpoint 'best' in .* yet; training has not written one; resume it"):
        softspin.load(tmp_path)
    with pytest.raises(ConfigError, match="device = 'gpu' is not possible"):
        softspin.load(tmp_path, device="gpu")
    for text in ("{", "", "\xff", "[" * 100_000):
        (tmp_path / "run.json").write_text(text, encoding="latin1")
        with pytest.raises(RunError, match=r"run\.json cannot be read"):
            softspin.load(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(about | {"config": {"chainz": 3}, "provenance": {"softspin": "9.1"}}))
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
