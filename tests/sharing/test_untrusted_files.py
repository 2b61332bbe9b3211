"""Untrusted files: loading gives a model, or an error of one line."""

from __future__ import annotations

import dataclasses
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from sharing.shared import Change, described, forge, trained
from unsealed import unseal

import softspin
from softspin.errors import ConfigError, RunError, SharingError
from softspin.records import DataRecord, ModelRecord, Provenance, ResultRow
from softspin.training import checkpoint


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("untrusted")
    (file,) = trained(folder / "run", seeds=(0, 1)).save(folder / "m.safetensors")
    return file.read_bytes()


@pytest.fixture
def file(content: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    return path


def rejected(place: Path) -> str:
    with pytest.raises(SharingError) as raised:
        softspin.load(place)
    text = str(raised.value)
    assert "\n" not in text
    assert str(place) in text
    assert len(text) < 1000
    return text


def test_a_rewritten_file_without_changes_loads(file: Path) -> None:
    forge(file)
    assert softspin.load(file).net.replicas == 2


def test_files_of_other_formats_are_rejected(file: Path, content: bytes) -> None:
    for other in (b"", b"PK\x03\x04" + bytes(100), b"\x80\x04K\x01.", b"{}", b"x" * 7, bytes(8), b"\xff" * 400):
        file.write_bytes(other)
        assert "is damaged, or not a safetensors file" in rejected(file)
    file.write_bytes(struct.pack("<Q", 2**63) + content[8:])
    assert "is damaged, or not a safetensors file" in rejected(file)
    file.write_bytes(safetensors.torch.save({"mean": torch.zeros(3)}))
    assert "is not a model of softspin" in rejected(file)
    file.write_bytes(content + b"x")
    assert "is damaged, or not a safetensors file" in rejected(file)


def test_another_kind_of_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a model")
    assert rejected(tmp_path / "notes.txt").endswith("notes.txt is neither a run directory nor a .safetensors file")


def test_every_truncation_is_detected(file: Path, content: bytes) -> None:
    for length in [*range(0, len(content), 97), len(content) - 1]:
        file.write_bytes(content[:length])
        assert "is damaged, or not a safetensors file" in rejected(file)


def test_random_bytes_in_the_header_are_rejected_or_harmless(file: Path, content: bytes) -> None:
    """A changed byte either has no effect or raises SharingError."""
    (length,) = struct.unpack("<Q", content[:8])
    choose = random.Random(0)
    lines = []
    for _ in range(300):
        changed = bytearray(content)
        changed[choose.randrange(8 + length)] = choose.randrange(256)
        file.write_bytes(changed)
        try:
            softspin.load(file)
        except SharingError as error:
            lines.append(str(error))
    assert len(lines) > 100
    assert not any("\n" in line for line in lines)


def names(record: type, *nested: str) -> list[str]:
    """The stored fields of a record, without those that are records themselves."""
    stored = [one.name for one in dataclasses.fields(record) if one.metadata.get("stored", True)]
    return [name for name in stored if name not in nested]


PARTS = [
    "version",
    *names(ModelRecord, "data", "provenance", "result", "init_from"),  # the last was added later
    *(f"data.{name}" for name in names(DataRecord, "condition", "columns", "class_names")),
    *(f"provenance.{name}" for name in names(Provenance)),
]
ADDED_LATER = ("averaged", "unit", "bits_per_dimension", "condition", "log_z_of_values", "more_samples")
OF_A_ROW = [*names(ResultRow, "provenance", *ADDED_LATER), *(f"provenance.{name}" for name in names(Provenance))]


@pytest.mark.parametrize("name", [*PARTS, *(f"result.{name}" for name in OF_A_ROW)])
def test_each_field_of_the_metadata_is_required_and_type_checked(name: str, file: Path, content: bytes) -> None:
    *levels, last = name.split(".")

    def holder(about: dict[str, Any]) -> dict[str, Any]:
        for level in levels:
            about = about[level][1] if level == "result" else about[level]
        return about

    # A row without a version has version 1, and a variant may have any settings.
    changes: list[Change] = [lambda about: holder(about).pop(last), lambda about: holder(about).update({last: [[]]})]
    if last not in ("variant", "config"):
        changes.append(lambda about: holder(about).update({last: {"a": 1}}))
    for change in changes:
        file.write_bytes(content)
        forge(file, change)
        rejected(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(version=5, softspin="9.1"), "written by softspin 9.1, has version 5; softspin "),
        (lambda a: a["result"][1].update(version=5), "has a 'result[1]' that has version 5; softspin "),
        (lambda a: a["result"][1].update(elbo=None), "has a result row without 'elbo'"),
        (lambda a: a["result"][1]["provenance"].update(torch=None), "a result row without 'provenance.torch'"),
        (lambda a: a["provenance"].update(device=None), "has no 'provenance.device'"),
        (lambda a: a["result"].__setitem__(0, 7), "has a 'result[0]' that is not a JSON object"),
        (lambda a: a["result"][0].update(status="failed", error="x"), "has a failed result row"),
        (lambda a: a["config"].update(chainz=3), "cannot use it: unknown setting 'chainz'; did you mean 'chains'?"),
        (lambda a: a["config"].update(method="eval"), "unknown method 'eval'"),
        (lambda a: a["config"].update(data="../../etc/x.npy"), "has a path of data, '../../etc/x.npy'"),
        (lambda a: a["config"].update(graph="/etc/x.json"), "has the name of a graph"),
        (lambda a: a["config"].update(data="C:\\x.npy"), "has a path of data"),
        (lambda a: a["data"].update(shape=[3, 4]), "has 9 pixels, but images of shape [3, 4]"),
        (lambda a: a["data"].update(name="\x1b[2J"), "a string with control characters, '\\x1b[2J'"),
        (lambda a: a.update({"more\n": 1}), "a string with control characters"),
        (lambda a: a.update(steps=[1]), "has 1 'steps' for 2 replicas; expected one each"),
        (lambda a: a["result"].pop(), "has 1 result rows for 2 replicas; expected one each"),
        (lambda a: a.update(result=5), "has 'result' = 5; it must be a list of rows"),
        (lambda a: a["result"][0].update(seed=7), "has a result of seed 7, beta"),
        (lambda a: a["config"].update(beta=None, betas=[20.0]), "has a result of seed 0, beta"),
    ],
)
def test_invalid_metadata_are_rejected(change: Change, message: str, file: Path) -> None:
    forge(file, change)
    assert message in rejected(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "metadata that cannot be read"),
        ("[" * 100_000, "metadata that cannot be read"),
        ("[1]", "metadata that softspin did not write"),
        ("5", "metadata that softspin did not write"),
        ('{"version": NaN}', "a non-finite number"),
        ('{"version": 1e999}', "a non-finite number"),
        (f'{{"version": {"9" * 5000}}}', "metadata that cannot be read"),
        ('{"format": 2}', "metadata of format 2; only format 1 is supported"),
        (" " * 10_000_001, "metadata of 10,000,001 bytes; at most 10,000,000 are allowed"),
    ],
)
def test_text_that_is_not_metadata_is_rejected(text: str, message: str, file: Path) -> None:
    forge(file, text=text)
    assert message in rejected(file)


@pytest.mark.parametrize(
    "sizes",
    [
        {"width": 2**31 - 1},
        {"bits_per_group": 2**31 - 2},
        {"groups": 2**31 - 2},
        {"layers": 2**31 - 1},
        {"groups": 2**31 - 2, "bits_per_group": 2**31 - 2, "layers": 2**31 - 1, "width": 2**31 - 1},
        {"bits_per_group": 200_000},
        {"seeds": list(range(9_999))},
        {"seeds": list(range(100_000)), "betas": [20 + i / 1000 for i in range(100_000)]},
    ],
)
def test_huge_sizes_are_rejected_before_anything_is_allocated(sizes: dict[str, Any], file: Path) -> None:
    """Models of these sizes would need more memory or time than any computer has."""
    replicas = len(sizes.get("seeds", [0, 1]))

    def change(about: dict[str, Any]) -> None:
        about["config"].update(sizes)
        about.update(result=None, steps=[1] * replicas, valid_nll=[None] * replicas)

    forge(file, change)
    rejected(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"../../../x": torch.zeros(2)}), "tensor '../../../x' does not belong to the model"),
        (lambda t: t.pop("prior_parameters.bias"), "tensor 'prior_parameters.bias' is missing"),
        (lambda t: t.pop("mean"), "tensor 'mean' is missing or has a wrong shape; it needs one number for each pixel"),
        (lambda t: t.update(mean=torch.zeros(0)), "tensor 'mean' is missing or has a wrong shape"),
        (lambda t: t.update(mean=torch.zeros(3, 3)), "tensor 'mean' is missing or has a wrong shape"),
        (lambda t: t.clear(), "3 nets of 2 tensors each need more than 0 tensors"),
        (
            lambda t: t.update({"prior_parameters.weight": torch.zeros(2, 9)}),
            "tensor 'prior_parameters.weight' has shape (2, 9); the config's has (2, 3, 3)",
        ),
        (
            lambda t: t.update({"prior_parameters.bias": torch.zeros(2, 6, dtype=torch.float64)}),
            "tensor 'prior_parameters.bias' is float64; it must be finite float32",
        ),
        (
            lambda t: t["prior_parameters.bias"].fill_(torch.nan),
            "tensor 'prior_parameters.bias' is not finite; it must be finite float32",
        ),
        (lambda t: t["likelihood.base_logit"].fill_(torch.inf), "tensor 'likelihood.base_logit' is not finite"),
        (
            lambda t: t["decoder.norms.0.variance"].fill_(-1),
            "tensor 'decoder.norms.0.variance' has negative values; a variance must not",
        ),
        (lambda t: t["method.beta"].fill_(7), "tensor 'method.beta' is [7.0, 7.0]; the config's is ["),
    ],
)
def test_tensors_that_do_not_fit_are_rejected(change: Change, message: str, file: Path) -> None:
    forge(file, tensors=change)
    assert f"does not fit its own config: {message}" in rejected(file)


def test_folders_without_a_valid_model_are_rejected(file: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no model in .*; expected run\.json of a run, or model\.safetensors"):
        softspin.load(tmp_path)
    with pytest.raises(RunError, match="no model in"):
        softspin.load(tmp_path / "nowhere")
    file.rename(tmp_path / "model.safetensors")
    assert softspin.load(tmp_path).net.replicas == 2
    copy = tmp_path / "config.json"
    about = described(tmp_path / "model.safetensors")
    copy.write_text(json.dumps(about))
    assert softspin.load(tmp_path).net.replicas == 2
    for text in (json.dumps(about | {"license": "mine"}), "{", "[" * 100_000, "\xff"):
        copy.write_text(text, encoding="latin1")
        with pytest.raises(SharingError, match=r"config\.json differs from the metadata in model\.safetensors"):
            softspin.load(tmp_path)


def test_an_untrusted_run_allocates_no_more_than_its_tensors(tmp_path: Path) -> None:
    """The digest of its checkpoint is valid, but anyone can compute that."""
    trained(tmp_path)
    (tmp_path / "result.json").unlink()
    for name in ("best", "last"):
        tensors, meta = checkpoint.load(tmp_path, name)
        meta["config"]["width"] = 2**31 - 1
        checkpoint.save(tmp_path, name, tensors, meta)
    run = unseal(tmp_path / "run.json")
    run.write_text(run.read_text().replace('"width": 4', f'"width": {2**31 - 1}'))
    for name in ("best", "last"):
        with pytest.raises(RunError, match="does not fit its config"):
            softspin.load(tmp_path, name)


def test_too_many_replicas_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"101 seeds x 100 betas are too many replicas .* at most 10,000"):
        softspin.Config(seeds=tuple(range(101)), betas=tuple(float(b) for b in range(20, 120)))
