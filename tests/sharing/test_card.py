"""The card says what the rows say, in the command line's words, and front matter that the Hub's own parser reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sharing.shared import trained
from training.runs import bars, small

import softspin
from softspin.cli.app import run
from softspin.errors import SharingError
from softspin.formatting import result_sentence
from softspin.project import install_command
from softspin.sharing.card import card
from softspin.trained import Model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return trained(tmp_path_factory.mktemp("card") / "run", seeds=(3, 5))


def read(model: Model, folder: Path, **options: Any) -> str:
    model.save(folder, **options)
    return (folder / "README.md").read_text(encoding="utf-8")


def cell(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return line.split(" | ")[1].removesuffix(" |")


def test_it_repeats_the_rows_as_the_command_line_prints_them(
    made: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read(made, tmp_path / "m")
    monkeypatch.setattr("sys.argv", ["softspin", "evaluate", str(made.folder), "--device", "cpu"])
    with pytest.raises(SystemExit):
        run()
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert len(printed) == 8, "two replicas: a result, the ELBO, bits and sample sizes, the weights"
    for line in printed:
        assert f"- {line}\n" in text


def test_an_annealed_log_z_has_its_interval_and_its_ends(made: Model) -> None:
    assert made.metadata is not None
    first, second = (
        replace(
            row,
            nll=84.2,
            standard_error=0.05,
            nll_low=84.1,
            log_z=30.0,
            log_z_low=29.9,
            baseline_nll=206.1,
            warning=None,
        )
        for row in made.metadata.result or ()
    )
    rows = replace(first, nll_high=84.35, log_z_high=30.15), replace(second, nll_high=None, log_z_high=None)
    text = card(replace(made.metadata, result=rows))
    assert "test NLL 84.20 +- 0.05, log Z in [29.90, 30.15]; independent pixels: 206.10\n" in text
    assert "test NLL 84.20 +- 0.05, log Z >= 29.90 (upper end unknown); independent pixels: 206.10\n" in text
    assert text.count("- NLL over the interval of log Z: 84.10 to 84.35\n") == 1


def test_a_table_has_data_points_and_no_tag_of_images(made: Model) -> None:
    assert made.metadata is not None
    assert "type: unconditional-image-generation\n" in card(made.metadata)
    text = card(replace(made.metadata, data=replace(made.metadata.data, shape=(9,))))
    assert "type: unconditional-image-generation\n" not in text
    assert cell(text, "data points") == "14 + 14 + 14 (train + valid + test)"
    assert "one standard error over test data points" in text


def test_it_names_data_recipe_and_origin(made: Model, tmp_path: Path) -> None:
    assert made.folder is not None
    text = read(made, tmp_path / "m")
    about = json.loads((made.folder / "run.json").read_text())
    assert cell(text, "name") == "bars-and-stripes-3x3"
    assert cell(text, "fingerprint (SHA-256)") == bars().fingerprint
    assert cell(text, "images") == "14 + 14 + 14 (train + valid + test)"
    assert cell(text, "binarized") == "once, before training"
    assert cell(text, "method") == "dvae#-power"
    assert cell(text, "importance samples (K)") == "1"
    assert cell(text, "training steps") == "2"
    assert cell(text, "replicas") == "2 (seeds 3, 5)"
    assert "groups = 2, bits_per_group = 3, layers = 1, width = 4" in cell(text, "settings that differ from the paper")
    for name in ("trained by", "evaluated by"):
        assert f"commit {about['provenance']['commit'] or 'unknown'}" in cell(text, name)
        assert cell(text, name).endswith(f", on {about['provenance']['device']}")
    assert "DVAE#: Discrete Variational Autoencoders with Relaxed Boltzmann Priors" in text
    assert "One of several models" not in text
    chosen = read(made.only("best"), tmp_path / "best")
    assert "One of several models: replica " in chosen
    assert "the one with the lowest validation NLL." in chosen


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ("a restricted Boltzmann machine", "RBM, 3 x 3 units")),
        ({"graph": "0:1,1:2,2:3,3:4,4:5"}, ("a Boltzmann machine on a graph", "6 units, 5 couplings")),
        ({"prior": "factorial"}, ("one of independent bits", "6 independent units")),
    ],
)
def test_it_says_what_the_prior_is(made: Model, settings: dict[str, Any], words: tuple[str, str]) -> None:
    assert made.metadata is not None
    text = card(replace(made.metadata, config=small(seeds=(3, 5), **settings).to_dict()))
    assert f"whose prior is {words[0]}, trained" in text
    assert cell(text, "prior") == words[1]


def test_it_begins_with_plain_names_and_the_result(made: Model) -> None:
    assert made.metadata is not None
    names, first = card(made.metadata).partition("\n---\n")[2].strip().split("\n\n")[1:3]
    assert names == "DVAE# with power-function smoothing; 2 groups of latent bits."
    assert first.startswith(f"**{result_sentence(made.result)}** A discrete variational autoencoder")


def test_the_example_in_it_runs(made: Model, tmp_path: Path) -> None:
    text = read(made, tmp_path / "m")
    code = text.partition("```python\n")[2].partition("```")[0]
    scope: dict[str, Any] = {}
    exec(code.replace('"PATH"', repr(str(tmp_path / "m"))), scope)
    assert scope["images"].shape == (16, 3, 3)
    assert f"To install softspin, in a clone of it, run `{install_command()}`.\n" in text


def test_the_card_of_an_unevaluated_model(made: Model, tmp_path: Path) -> None:
    assert made.folder is not None
    last = read(softspin.load(made.folder, "last"), tmp_path / "last")
    assert "## Result\n\nNot evaluated on test images.\n" in last
    assert "model-index" not in last
    assert "\n\n**Not evaluated on test images.** A discrete variational autoencoder" in last
    assert "NLL" not in last
    assert made.metadata is not None
    unfinished = card(replace(made.metadata, result=None))
    (nll, _), (step, _) = made.metadata.valid_nll, made.metadata.steps
    assert f"- seed 3, beta 30: validation NLL {nll:.2f} at step {step}, the lowest of the run\n" in unfinished


def test_the_hub_reads_its_front_matter(made: Model, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    assert made.result is not None
    parsed = hub.ModelCard(read(made, tmp_path / "m", license="cc-by-4.0"))
    assert parsed.data.library_name == "softspin"
    assert parsed.data.license == "cc-by-4.0"
    assert "boltzmann-machine" in parsed.data.tags
    found = [(one.dataset_name, one.metric_type, one.metric_value) for one in parsed.data.eval_results]
    assert found == [("bars-and-stripes-3x3", "nll", row.nll) for row in made.result]
    assert hub.ModelCard(read(made, tmp_path / "free")).data.license is None


def test_untrusted_texts_are_escaped(made: Model, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    assert made.metadata is not None
    name = 'a|b <script> [x](y) `z` "q": {no}'
    data = replace(made.metadata.data, name=name)
    text = card(replace(made.metadata, data=data, license='x: "y" # z'))
    assert "<script>" not in text.partition("\n---\n")[2]
    assert cell(text, "name") == r'a\|b \<script\> \[x\](y) \`z\` "q": {no}'
    parsed = hub.ModelCard(text)
    assert parsed.data.license == 'x: "y" # z'
    assert {one.dataset_name for one in parsed.data.eval_results} == {name}
    with pytest.raises(SharingError, match="control characters"):
        Model(made.net, made.config, made.shape, None, replace(made.metadata, license="a\nb: c")).save(tmp_path / "m")
