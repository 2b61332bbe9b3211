"""`softspin figure`: computing arrays and drawing pictures."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from cli.command import Call

from softspin import provenance
from softspin.experiments.figures import arrays, one_bit

TINY = ["data=bars-and-stripes-3x3", "bits_per_group=1", "layers=0", "batch_size=2", "chains=4", "sweeps=1"]
MINE = ["--arrays", "mine"]
SETS = [word for setting in TINY for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def known_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc123")


def test_arrays_are_computed_stored_and_drawn_twice(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(one_bit, "closeness", functools.partial(one_bit.closeness, draws=1000))
    ended = call("figure", "appendix", "fig2a", "--compute", "--steps", 1, *MINE, "--device", "cpu", *SETS)
    assert ended.code == 0, ended.err
    pictures = [f"docs/figures/{name}.{ending}" for name in ("fig2a", "appendix") for ending in ("png", "svg")]
    assert [word.strip(",") for word in ended.out.split() if word.startswith("docs")] == pictures
    values, meta = arrays.load(Path("mine"), "fig2a")
    assert values["step"] == 1
    assert meta["command"].startswith("softspin figure appendix fig2a --compute --steps 1")
    before = Path(pictures[0]).read_bytes()
    (output,) = call("figure", "fig2a", *MINE, "--json").json
    assert Path(pictures[0]).read_bytes() == before
    assert output["figure"] == "fig2a"
    assert output["meta"] == meta
    assert "1 steps instead of 100,000" in output["caption"]


def test_out_of_time_exits_with_75(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("figure", "fig2a", "--compute", "--steps", 3, "--minutes", 0, *MINE, "--device", "cpu", *SETS)
    assert ended.code == 75
    assert "stopped after 1 of 3 steps" in arrays.load(Path("mine"), "fig2a").meta["marks"]
    assert Path("docs/figures/fig2a.png").exists()


def test_shorter_arrays_do_not_replace_those_of_the_package(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("figure", "fig2a", "--compute", "--steps", 1, "--device", "cpu", *SETS)
    assert ended.code == 1
    assert "fig2a.npz is of 100,000 steps, more than 1; write shorter ones to another folder: --arrays" in ended.err
    assert not Path("experiments").exists()


def test_mistakes(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    for words, code, message in (
        (["fig2d"], 1, "unknown figure 'fig2d'; did you mean 'fig2"),
        (["all", "--arrays", "none"], 1, "no arrays none/fig1.npz; compute them with: softspin figure fig1 --compute"),
        (["fig2b", "--compute", "--set", "betas=1,2"], 1, "'betas' is fixed by the figure"),
        (["fig2b", "--compute", "--set", "chainz=2"], 1, "unknown setting 'chainz'; did you mean 'chains'?"),
        (["fig1", "--compute", "--arrays", file / "x"], 1, f"{file / 'x' / 'fig1.npz'} cannot be written"),
        (["fig2b", "--steps", 5], 2, "needs --compute"),
        ([], 2, "NAME"),
    ):
        ended = call("figure", *words)
        assert ended.code == code, ended
        assert message in " ".join(ended.err.replace("│", " ").split()), ended.err
