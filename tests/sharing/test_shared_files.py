"""Shared models: exact round trips with metadata, and no overwriting by default."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from evaluation.models import data_spec, smoothed_method
from sharing.shared import described, header, trained
from training.runs import bars

import softspin
from softspin.config import Config
from softspin.errors import ConfigError, SharingError, SupportError
from softspin.model import build
from softspin.paper import METHODS
from softspin.sharing import files
from softspin.stored_model import restore
from softspin.structures import STRUCTURES
from softspin.trained import Model
from softspin.training import checkpoint


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of two replicas; do not change it."""
    return trained(tmp_path_factory.mktemp("sharing") / "run", seeds=(3, 5))


@pytest.mark.parametrize("method", METHODS)
def test_a_round_trip_is_exact(method: str, tmp_path: Path) -> None:
    made = trained(tmp_path / "run", method=method, seeds=(0, 4))
    best, _ = checkpoint.load(tmp_path / "run", "best")
    made.save(tmp_path / "one.safetensors")
    made.save(tmp_path / "folder")
    x = bars().test
    for place in ("one.safetensors", "folder", "folder/model.safetensors"):
        again = softspin.load(tmp_path / place, device="cpu")
        state = again.net.state_dict()
        assert state.keys() == best.keys()
        assert all(torch.equal(state[name], value) for name, value in best.items())
        assert all(p.requires_grad for p in again.net.parameters())
        assert not again.net.training
        assert (again.config, again.shape, again.result) == (made.config, (3, 3), made.result)
        assert torch.equal(again.sample(5, replica=1, seed=2), made.sample(5, replica=1, seed=2))
        assert torch.equal(again.nll(x, samples=16).nll, made.nll(x, samples=16).nll)
        assert torch.equal(again.encode(x), made.encode(x))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("method", METHODS)
def test_every_shape_is_restored(method: str, structure: str) -> None:
    config = Config(method=method, structure=structure, bits_per_group=4, width=5, seeds=(0, 1))
    made = build(config, data_spec(torch.linspace(0.1, 0.9, 6)))
    again = restore(config, made.state_dict())
    for (name, one), (other_name, other) in zip(made.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == other_name
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()


def test_the_file_holds_the_metadata_of_the_run(two: Model, tmp_path: Path) -> None:
    assert two.folder is not None
    assert [path.name for path in two.save(tmp_path / "m", license="mit")] == [
        "README.md",
        "config.json",
        files.TENSORS,
    ]
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["README.md", "config.json", "model.safetensors"]
    about = described(tmp_path / "m" / files.TENSORS)
    assert json.loads((tmp_path / "m" / "config.json").read_text()) == about
    run = json.loads((two.folder / "run.json").read_text())
    rows = json.loads((two.folder / "result.json").read_text())
    for one in (run, *rows):
        del one["seal"]  # the shared file has its own
    assert {name: about[name] for name in run} == run
    assert about["result"] == rows
    assert about["steps"] == [row["best_step"] for row in rows]
    assert about["valid_nll"] == [row["valid_nll"] for row in rows]
    assert (about["version"], about["license"], about["which"], about["chosen"]) == (4, "mit", "best", None)
    assert header(tmp_path / "m" / files.TENSORS)["__metadata__"]["format"] == "pt", "other readers require this"


def test_a_model_that_is_saved_again_keeps_license_and_provenance(two: Model, tmp_path: Path) -> None:
    two.only(1).save(tmp_path / "a.safetensors", license="mit")
    softspin.load(tmp_path / "a.safetensors").only("best").save(tmp_path / "b")
    assert described(tmp_path / "b" / files.TENSORS) == described(tmp_path / "a.safetensors")


def test_one_replica_of_several(two: Model, tmp_path: Path) -> None:
    assert two.result is not None
    two.only(1).save(tmp_path / "one.safetensors")
    one = softspin.load(tmp_path / "one.safetensors", device="cpu")
    assert (one.config.seeds, one.net.replicas, one.result) == ((5,), 1, (two.result[1],))
    assert torch.equal(one.sample(4, seed=0), two.sample(4, replica=1, seed=0))
    assert one.metadata is not None
    assert one.metadata.chosen == "replica 1 of 0 to 1, selected by its number"
    valid = [row.valid_nll or math.inf for row in two.result]
    best = two.only("best")
    assert best.config.seeds == (two.config.seeds[valid.index(min(valid))],)
    assert best.metadata is not None
    assert (best.metadata.chosen or "").endswith("the one with the lowest validation NLL")
    with pytest.raises(SupportError, match="replica 2; this model has 2, counted from 0"):
        two.only(2)


def test_one_beta_of_a_grid(tmp_path: Path) -> None:
    made = trained(tmp_path / "run", betas=(20.0, 35.0), seeds=(0, 1))
    made.only(1).save(tmp_path / "one")
    one = softspin.load(tmp_path / "one", device="cpu")
    assert (one.config.replicas, smoothed_method(one.net).beta.tolist()) == (((0, 35.0),), [35.0])


def test_the_last_parameters_have_no_result(two: Model, tmp_path: Path) -> None:
    assert two.folder is not None
    last = softspin.load(two.folder, "last", device="cpu")
    last.save(tmp_path / "last.safetensors")
    again = softspin.load(tmp_path / "last.safetensors", device="cpu")
    assert again.result is None
    assert again.metadata is not None
    assert again.metadata.steps == (2, 2)
    softspin.load(tmp_path / "last.safetensors", "last")
    with pytest.raises(SharingError, match="the best replica is unknown"):
        again.only("best")
    two.save(tmp_path / "best.safetensors")
    with pytest.raises(ConfigError, match="is a shared model with the 'best' parameters, not 'last'"):
        softspin.load(tmp_path / "best.safetensors", "last")


def test_the_path_of_custom_data_is_not_shared(two: Model, tmp_path: Path) -> None:
    made = trained(tmp_path / "run")
    assert made.metadata is not None
    made.metadata = replace(made.metadata, config={**made.metadata.config, "data": "/home/me/secret/own.npy"})
    made.save(tmp_path / "m")
    assert softspin.load(tmp_path / "m").config.data == "own.npy"
    for path in (tmp_path / "m").iterdir():
        assert b"secret" not in path.read_bytes()


def test_nothing_is_overwritten_by_default(two: Model, tmp_path: Path) -> None:
    assert two.folder is not None
    file, folder = tmp_path / "a.safetensors", tmp_path / "mine"
    file.write_text("mine")
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for place in (file, folder):
        with pytest.raises(
            SharingError,
            match=r"already exists; give another name, or replace it: --overwrite, overwrite=True",
        ):
            two.save(place)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert file.read_text() == "mine"
    two.save(folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    two.only(0).save(folder, overwrite=True)
    assert softspin.load(folder).net.replicas == 1
    two.save(file, overwrite=True)
    assert softspin.load(file).net.replicas == 2
    with pytest.raises(SharingError, match="is a run directory; give another folder"):
        two.save(two.folder, overwrite=True)
    (tmp_path / "b.safetensors").mkdir()
    with pytest.raises(SharingError, match="is a folder"):
        two.save(tmp_path / "b.safetensors", overwrite=True)
    (tmp_path / "plain").write_text("")
    with pytest.raises(SharingError, match=r"is a file; give a folder, or a file that ends in"):
        two.save(tmp_path / "plain", overwrite=True)


@pytest.mark.parametrize("name", ["new", "new/one.safetensors"])
def test_a_full_disk_leaves_no_partial_files(
    two: Model, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.save(tmp_path / "before")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(SharingError, match="cannot be written: No space left on device"):
            two.save(tmp_path / name)
        with pytest.raises(SharingError, match="cannot be written: No space left on device"):
            two.save(tmp_path / "before", overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "new" / files.TENSORS).exists()


@pytest.mark.parametrize("moves", range(4))
def test_after_a_kill_between_two_files_the_model_is_the_old_or_the_new_one(
    two: Model, moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.only(0).save(tmp_path / "m")
    move, left = Path.replace, iter(range(moves))

    def stopped(half: Path, place: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return move(half, place)

    monkeypatch.setattr(Path, "replace", stopped)
    if moves < 3:
        with pytest.raises(KeyboardInterrupt):
            two.only(1).save(tmp_path / "m", overwrite=True)
    else:
        two.only(1).save(tmp_path / "m", overwrite=True)
    (seed,) = softspin.load(tmp_path / "m").config.seeds
    assert seed == (3 if moves == 0 else 5)
    card = tmp_path / "m" / "README.md"
    assert not card.exists() or f"(seeds {seed})" in card.read_text()
    assert card.exists() is (moves == 3)


def test_models_that_cannot_be_shared(two: Model, tmp_path: Path) -> None:
    with pytest.raises(SharingError, match="this model has no metadata about its data and training"):
        Model(two.net, two.config, two.shape).save(tmp_path / "m")
    double = trained(tmp_path / "other")
    double.net.double()
    with pytest.raises(
        SharingError, match=r"this model does not fit its config: tensor 'decoder\.linears\.0\.bias' is float64"
    ):
        double.save(tmp_path / "m")
    with pytest.raises(SharingError, match="string with control characters"):
        two.save(tmp_path / "m", license="two\nlines")
    assert not (tmp_path / "m").exists()


def test_loading_unpickles_nothing(two: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two.save(tmp_path / "m")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, never)
    softspin.load(tmp_path / "m")
    softspin.load(tmp_path / "m" / files.TENSORS)


def test_other_readers_can_open_it(two: Model, tmp_path: Path) -> None:
    two.save(tmp_path / "m.safetensors")
    assert safetensors.torch.load_file(tmp_path / "m.safetensors").keys() == two.net.state_dict().keys()


def test_no_flipped_bit_goes_unnoticed(two: Model, tmp_path: Path) -> None:
    """Each flip is an error, or leaves the model as it was (a bit of the padding, or of the name of the digest)."""
    file = tmp_path / "m.safetensors"
    two.save(file)
    content = file.read_bytes()
    state = two.net.state_dict()
    errors = 0
    for bit in torch.randint(8 * len(content), (200,), generator=torch.Generator().manual_seed(0)).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        try:
            again = softspin.load(file, device="cpu")
        except SharingError:
            errors += 1
            continue
        assert again.result == two.result
        assert all(torch.equal(value, state[name]) for name, value in again.net.state_dict().items())
    assert errors > 190


def test_the_same_model_gives_the_same_bytes(two: Model, tmp_path: Path) -> None:
    for number in range(5):
        two.save(tmp_path / f"{number}.safetensors")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
