"""`softspin playground`: the page of a run, with its metadata."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cli.command import Call

import softspin
from softspin.cli.playground import _share_rows


def carried(path: Path) -> Any:
    """The data in a page."""
    found = re.search(r'<script type="application/json" id="model">(.*?)</script>', path.read_text())
    assert found is not None
    return json.loads(found[1])


def test_a_page_of_a_run(call: Call, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    ended = call("playground", tiny, "--out", out, "--replica", 1, "--images", 3)
    assert ended.code == 0, ended
    assert str(out) in ended.out
    data = carried(out)
    about, rows = (json.loads((tiny / name).read_text()) for name in ("run.json", "result.json"))
    (one,) = data["replicas"]
    facts, head_words, row = dict(one["facts"]), one["headline"], rows[1]
    head = ["dvae#-power", "1x6 bits, 2x8", "bars-and-stripes-3x3", "6 bits"]
    assert head_words[:4] == head
    assert head_words[4] == f"test NLL {row['nll']:.2f} ± {row['standard_error']:.2f} nats"
    assert f"{row['log_z']:.2f}" in head_words[5]
    assert head_words[6] == f"commit {about['provenance']['commit']}"
    assert facts["Data"].endswith(about["data"]["source"])
    assert facts["Replica"] == "seed 1, beta 40; number 1 of 0 to 1"
    assert f"{row['elbo']:.2f}" in facts["Details"]
    assert f"{row['baseline_nll']:.2f}" in facts["Independent pixels"]
    assert (data["height"], data["width"], data["count"]) == (3, 3, 3)
    assert data["unseen"] is False, "the 14 test images of this data set are those of training"


def test_images_of_other_data_are_not_labelled_as_test_images(call: Call, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", np.eye(20, 9))
    assert call("playground", tiny, "--data", tmp_path / "other.npy", "--out", tmp_path / "page.html").code == 0
    assert carried(tmp_path / "page.html")["unseen"] is False
    rows = torch.eye(20, 9, dtype=torch.uint8)
    assert [_share_rows(rows[:5], rows[5:9]), _share_rows(rows[:6], rows[5:9])] == [False, True]


def test_a_page_of_an_unfinished_run(call: Call, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "run"))
    (folder / "result.json").unlink()
    output = call("playground", folder, "--json").json
    assert output == {
        "written": str(folder / "playground.html"),
        "bytes": (folder / "playground.html").stat().st_size,
        "replicas": [1, 0],
    }
    data = carried(folder / "playground.html")
    for one in data["replicas"]:
        assert dict(one["facts"])["Test NLL"] == "not evaluated: training is not finished"
        assert not any("NLL" in words for words in one["headline"])
    assert data["count"] == 14  # bars and stripes have no more


def test_a_page_of_several_replicas_has_the_best_first(call: Call, tiny: Path, tmp_path: Path) -> None:
    ended = call("playground", tiny, "--out", tmp_path / "page.html")
    losses = [row["valid_nll"] for row in json.loads((tiny / "result.json").read_text())]
    order = sorted((0, 1), key=losses.__getitem__)
    assert f"replicas to choose from: {order[0]}, {order[1]} (lowest validation NLL first)" in ended.out
    data = carried(tmp_path / "page.html")
    assert [one["number"] for one in data["replicas"]] == order
    assert [one["name"].rpartition(" ")[2] for one in data["replicas"]] == [f"{losses[k]:.2f}" for k in order]


def test_replicas_that_do_not_fit_are_counted(call: Call, tiny: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("softspin.cli.playground.MEGABYTE", 1)
    ended = call("playground", tiny, "--out", tmp_path / "page.html", "--max-mb", 1)
    assert "1 of 2 replicas are left out; see --max-mb" in ended.out
    assert len(carried(tmp_path / "page.html")["replicas"]) == 1


def test_a_page_is_rewritten(call: Call, tiny: Path, tmp_path: Path) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    assert call("playground", tiny, "--out", page, "--images", 2).code == 0
    written = page.read_text()
    page.write_text(written.replace("<h1>", "<h1>Old: "))
    assert (
        call("playground", page, "--json", "--out", other).json["replicas"]
        == call("playground", page, "--json").json["replicas"]
    )
    assert page.read_text() == other.read_text() == written


def test_a_page_of_a_shared_model(call: Call, tiny: Path, tmp_path: Path) -> None:
    softspin.load(tiny).save(tmp_path / "model.safetensors")
    assert call("playground", tmp_path / "model.safetensors", "--images", 1).code == 0
    assert call("playground", tiny, "--images", 1, "--out", tmp_path / "run.html").code == 0
    assert (tmp_path / "playground.html").read_text() == (tmp_path / "run.html").read_text()


def test_mistakes(call: Call, tiny: Path, tmp_path: Path) -> None:
    pdf, nowhere, page = tmp_path / "page.pdf", tmp_path / "no" / "page.html", tmp_path / "page.html"
    for words, message in (
        ([tmp_path], f"no run in {tmp_path}"),
        ([tiny, "--out", pdf], f"--out {pdf} ends in '.pdf'; it must be .html"),
        ([tiny, "--out", nowhere], f"--out {nowhere}: the directory {nowhere.parent}"),
        ([tiny, "--out", page, "--replica", 2], "no replica 2; this model has 2, counted from 0"),
        ([tmp_path / "no.html", "--out", page], f"the page {tmp_path / 'no.html'} cannot be read: No such file"),
        ([tmp_path / "no.html", "--images", 3], "--images, --replica and --data need the run of the model; a page has"),
    ):
        ended = call("playground", *words)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith(f"error: {message}"), ended.err
        assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
