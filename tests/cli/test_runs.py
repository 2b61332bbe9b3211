"""Commands that inspect or use a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli.command import Call


def test_a_run_writes_plots_and_a_result(tiny: Path) -> None:
    for name in ("samples", "reconstructions", "curves", "couplings"):
        assert (tiny / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert [row["seed"] for row in json.loads((tiny / "result.json").read_text())] == [0, 1]


def test_info(call: Call, tiny: Path) -> None:
    ended = call("info", tiny)
    assert ended.code == 0
    first, result, *_ = ended.out.splitlines()
    assert first == f"{tiny}: finished"
    assert result.startswith("Test NLL ")
    assert "mean of 2 replicas" in result
    titles = [line for line in ended.out.splitlines()[2:] if line and not line.startswith(" ")]
    assert titles == ["Result", "Model", "Data", "Training", "Provenance"]
    assert "  steps        6 of 6" in ended.out
    assert "  differs      from the paper by: structure = 1-nonlinear, bits_per_group = 6" in ended.out
    about = call("info", tiny, "--json").json
    assert about["checkpoint_step"] == 6
    assert len(about["result"]) == len(about["best"]) == 2
    assert about["config_overrides"]["bits_per_group"] == 6


def test_info_of_a_killed_run(call: Call, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "killed"))
    (folder / "result.json").unlink()
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"step": 7, "ki')
    ended = call("info", folder)
    assert ended.code == 0
    assert "not finished" in ended.out
    assert f"softspin train --resume {folder}" in ended.out
    for path in folder.glob("last*"):
        path.unlink()
    assert call("info", folder, "--json").json["checkpoint_step"] == 0
    (folder / "journal.jsonl").write_text("no json\n")
    assert "Damaged" in call("info", folder).out
    (folder / "journal.jsonl").write_text('{"step": 1}\n')
    for text in ("5", "[1]", "[{", "{}"):
        (folder / "result.json").write_text(text)
        ended = call("info", folder)
        assert ended.code == 0
        assert f"  file         {folder / 'result.json'}" in ended.out
        assert "not finished" in ended.out


def test_evaluate(call: Call, tiny: Path, tmp_path: Path) -> None:
    rows = call("evaluate", tiny, "--json", "--samples", "2000").json
    exact = call("evaluate", tiny, "--json", "--exact").json
    for row, truth in zip(rows, exact, strict=True):
        assert row["test_samples"] == 2000
        assert row["nll"] == pytest.approx(truth["nll"], abs=0.05)
        assert row["baseline_nll"] == pytest.approx(truth["baseline_nll"])
    own = tmp_path / "own.npz"
    np.savez(own, train=np.eye(9), valid=np.eye(9), test=np.eye(1, 9))
    (row, _) = call("evaluate", tiny, "--json", "--exact", "--data", own).json
    assert (row["images"], row["standard_error"]) == (1, None)
    assert " +- ? (one image), log Z" in call("evaluate", tiny, "--exact", "--data", own).out
    text = call("evaluate", tiny, "--split", "valid").out
    assert "seed 1, beta 40: valid NLL " in text
    assert "(exact); independent pixels: 6.24" in text
    assert "active bits" in text


def test_evaluate_shows_progress_on_a_terminal(call: Call, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("evaluate", tiny).err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    ended = call("evaluate", tiny, "--json")
    assert "14/14" in ended.err
    assert len(ended.json) == 2


def test_logz(call: Call, tiny: Path) -> None:
    assert call("logz", tiny).out.count("(exact)") == 2
    (first, _) = call("logz", tiny, "--json").json
    assert first["method"] == "exact"
    assert first["log_z_low"] == first["log_z"] == first["log_z_high"]


def test_sample(call: Call, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.npy"
    assert call("sample", tiny, "-n", 5, "--out", out, "--replica", 1, "--json").json["samples"] == 5
    images = np.load(out)
    assert images.shape == (5, 3, 3)
    assert ((images >= 0) & (images <= 1)).all()
    assert call("sample", tiny, "--out", tmp_path / "s.png").code == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_reconstruct(call: Call, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.npy"
    assert call("reconstruct", tiny, "-n", 4, "--out", out).code == 0
    assert np.load(out).shape == (4, 3, 3)
    assert call("reconstruct", tiny, "--out", tmp_path / "r.png", "--json").json["images"] == 14


def test_encode(call: Call, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "bits.npy"
    assert call("encode", tiny, "--out", out, "--split", "train").code == 0
    bits = np.load(out)
    assert bits.shape == (14, 6)
    assert bits.dtype == np.uint8
    own = tmp_path / "own.npy"
    np.save(own, np.eye(20, 9))
    assert call("encode", tiny, "--out", out, "--data", own, "--json").json == {
        "written": str(out), "images": 2, "bits": 6, "split": "test", "replica": 0,
    }  # fmt: skip
    assert call("encode", tiny, "--out", out, "--data", own, "--split", "all").code == 0
    assert np.load(out).shape == (20, 6)


def test_data(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SOFTSPIN_DATA", raising=False)
    rows = {row["name"]: row for row in call("data", "list", "--json").json}
    assert rows["bars-and-stripes-3x3"]["images"] == "14/14/14"
    assert rows["mnist"] == {
        "name": "mnist",
        "available": False,
        "reason": "not downloaded; run: softspin data fetch mnist",
    }
    assert "omniglot" in call("data", "list").out
    assert call("data", "verify", "bars-and-stripes-2x2").out.startswith("bars-and-stripes-2x2: all 6 bars")
    assert call("data", "fetch", "bars-and-stripes-2x2", "--json").json["available"] is True
    missing = call("data", "verify", "mnist", "--folder", tmp_path)
    assert missing.code == 1
    assert missing.err.startswith(f"error: mnist is not in {tmp_path}")
