"""Checkpoints: round trips, kills at any moment, and rejection of damaged files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import safetensors.torch
import torch
from torch import Tensor

from softspin.errors import CheckpointError, DamagedError
from softspin.training import checkpoint

TENSORS = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "half": torch.ones(5, dtype=torch.bfloat16),
    "double": torch.full((2, 0, 3), 1.5, dtype=torch.float64),
    "step": torch.tensor(7),
    "bits": torch.tensor([True, False]),
    "random": torch.get_rng_state(),
}
META = {"step": 7, "config": {"beta": 0.1, "seeds": [0, 1]}, "best": None}


def tensors_file(folder: Path, name: str = "last") -> Path:
    (path,) = folder.glob(f"{name}-*.safetensors")
    return path


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k], b[k]) for k in a
    )


def fail(error: BaseException) -> Callable[..., NoReturn]:
    def raiser(*_: object, **__: object) -> NoReturn:
        raise error

    return raiser


def test_checkpoints_survive_a_round_trip(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "new" / "folder", "last", TENSORS, META)
    tensors, meta = checkpoint.load(tmp_path / "new" / "folder", "last")
    assert same(tensors, TENSORS)
    assert meta == META == checkpoint.load_meta(tmp_path / "new" / "folder", "last")


def test_tensors_that_share_memory_or_have_a_gradient_are_saved_separately(tmp_path: Path) -> None:
    base = torch.arange(6.0, requires_grad=True)
    checkpoint.save(tmp_path, "last", {"all": base, "some": base[2:4]}, {})
    tensors, _ = checkpoint.load(tmp_path, "last")
    assert tensors["some"].tolist() == [2.0, 3.0]
    assert not tensors["all"].requires_grad


def test_names_are_independent_and_old_files_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "last-notes.safetensors").write_text("the user's own")
    for step in range(3):
        for name in ("last", "last_good", "best"):
            checkpoint.save(tmp_path, name, {"x": torch.tensor(step)}, {"step": step, "name": name})
    for name in ("last", "last_good", "best"):
        tensors, meta = checkpoint.load(tmp_path, name)
        assert (tensors["x"].item(), meta) == (2, {"step": 2, "name": name})
    assert len(list(tmp_path.iterdir())) == 2 * 3 + 1


def test_leftovers_of_a_killed_save_are_deleted_by_the_next(tmp_path: Path) -> None:
    for left in ("last-0123456789abcdef.safetensors", "last-0123456789abcdef.json"):
        (tmp_path / left).write_text("half")
    checkpoint.save(tmp_path, "last", TENSORS, META)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([tensors_file(tmp_path).name, "last.json"])


def test_keys_that_json_turns_into_text_do_not_break_the_seal(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", {}, {"by step": {10: "b", 9: "a"}})
    assert checkpoint.load(tmp_path, "last") == ({}, {"by step": {"10": "b", "9": "a"}})


# Imports torch once, then forks a child for each input line; a child saves until it is killed.
SAVERS = """
import os, sys, torch
from softspin.training import checkpoint
folder = sys.argv[1]
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        step = checkpoint.load_meta(folder, "last")["step"] if checkpoint.exists(folder, "last") else 0
        while True:
            step += 1
            checkpoint.save(folder, "last", {"x": torch.full((50_000,), step)}, {"step": step})
    print(child, flush=True)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def saved_step(folder: Path) -> int:
    """Step of the current checkpoint; 0 if there is none."""
    return int(checkpoint.load_meta(folder, "last")["step"]) if checkpoint.exists(folder, "last") else 0


def test_a_save_killed_at_any_moment_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    rng, step = random.Random(0), 0
    command, env = [sys.executable, "-c", SAVERS, str(tmp_path)], {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as savers:
        assert savers.stdin is not None
        assert savers.stdout is not None
        for _ in range(20):
            savers.stdin.write(b"another\n")
            savers.stdin.flush()
            child = int(savers.stdout.readline())
            while saved_step(tmp_path) <= step:  # at least one save, however slow the computer is
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            assert int(savers.stdout.readline()) == signal.SIGKILL
            tensors, meta = checkpoint.load(tmp_path, "last")
            assert torch.equal(tensors["x"], torch.full((50_000,), meta["step"]))
            assert meta["step"] >= step
            step = meta["step"]
    assert step >= 20


def test_a_truncated_file_is_rejected_wherever_it_ends(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    for path, words in ((tensors_file(tmp_path), "is truncated: "), (tmp_path / "last.json", "last.json is not JSON")):
        whole = path.read_bytes()
        for end in {0, 1, 7, 8, 9, len(whole) - 1, *range(10, len(whole), 97)}:
            path.write_bytes(whole[:end])
            with pytest.raises(CheckpointError, match=words):
                checkpoint.load(tmp_path, "last")
        path.write_bytes(whole)
    path = tensors_file(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match="is too long"):
        checkpoint.load(tmp_path, "last")


def test_a_flipped_bit_is_rejected_wherever_it_is(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    for path in (tensors_file(tmp_path), tmp_path / "last.json"):
        whole = path.read_bytes()
        for place in {0, 8, len(whole) - 1, *range(0, len(whole), 13)}:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CheckpointError, match=r"'last' in .* (is damaged|was written by softspin)"):
                checkpoint.load(tmp_path, "last")
        path.write_bytes(whole)
    assert checkpoint.load(tmp_path, "last")[1] == META


def rewrite(folder: Path, **changes: Any) -> None:
    """Change a manifest and update its digest."""
    manifest = json.loads((folder / "last.json").read_text())
    del manifest["seal"]
    manifest |= changes
    manifest["seal"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "last.json").write_text(json.dumps(manifest))


def test_the_error_for_another_format_names_the_version(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    rewrite(tmp_path)
    assert checkpoint.load(tmp_path, "last")[1] == META
    rewrite(tmp_path, format=2, softspin="9.1")
    with pytest.raises(
        CheckpointError, match=r"was written by softspin 9\.1 with format 2; this one, .*, reads format 1"
    ):
        checkpoint.load(tmp_path, "last")


def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a", "last", TENSORS, META)
    for elsewhere in (f"../a/{tensors_file(tmp_path / 'a').name}", "/etc/passwd", "", None, 3):
        rewrite(tmp_path / "a", tensors=elsewhere)
        with pytest.raises(CheckpointError, match="names no tensor file of this checkpoint"):
            checkpoint.load(tmp_path / "a", "last")


def test_invalid_content_with_a_valid_digest_is_rejected(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    content = b"no tensors at all"
    tensors_file(tmp_path).write_bytes(content)
    rewrite(tmp_path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(CheckpointError, match="holds no tensors"):
        checkpoint.load(tmp_path, "last")
    rewrite(tmp_path, size="many")
    with pytest.raises(CheckpointError, match="lacks a size or meta"):
        checkpoint.load(tmp_path, "last")
    for text in ("[]", "{}", "[" * 100_000, "\xff"):
        (tmp_path / "last.json").write_text(text, encoding="latin1")
        with pytest.raises(CheckpointError, match=r"last\.json is not"):
            checkpoint.load(tmp_path, "last")


def test_the_error_for_a_missing_checkpoint_lists_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint 'last' in .*; there is none in this folder"):
        checkpoint.load(tmp_path / "nowhere", "last")
    checkpoint.save(tmp_path, "best", TENSORS, META)
    (tmp_path / "notes-0.safetensors").write_text("the user's own")
    with pytest.raises(CheckpointError, match=r"no checkpoint 'last' in .*; there are: best$"):
        checkpoint.load(tmp_path, "last")
    tensors_file(tmp_path, "best").unlink()
    with pytest.raises(DamagedError, match=r"best-.*\.safetensors cannot be read: No such file"):
        checkpoint.load(tmp_path, "best")
    with pytest.raises(CheckpointError, match=r"invalid checkpoint name '\.\./x'"):
        checkpoint.save(tmp_path, "../x", TENSORS, META)


def test_an_unreadable_file_is_not_reported_as_damaged(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    for file in (tensors_file(tmp_path, "last"), tmp_path / "last.json"):
        file.unlink()
        file.mkdir()
        with pytest.raises(CheckpointError, match=rf"{file.name} cannot be read: Is a directory$") as found:
            checkpoint.load(tmp_path, "last")
        assert not isinstance(found.value, DamagedError)


def test_a_reader_retries_if_a_run_replaces_the_pair_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, "last", {"x": torch.tensor(1)}, {"step": 1})
    read = Path.read_bytes

    def slow(path: Path) -> bytes:
        if path.suffix == ".safetensors" and checkpoint.load_meta(tmp_path, "last")["step"] == 1:
            checkpoint.save(tmp_path, "last", {"x": torch.tensor(2)}, {"step": 2})
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", slow)
    tensors, meta = checkpoint.load(tmp_path, "last")
    assert (tensors["x"].item(), meta) == (2, {"step": 2})


@pytest.mark.parametrize("call", ["os.replace", "os.fsync", "pathlib.Path.open"])
def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(call, fail(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(
            CheckpointError, match=r"could not be written to .*: No space left on device; there was no previous one"
        ):
            checkpoint.save(tmp_path, "last", TENSORS, META)
    assert not list(tmp_path.iterdir())
    checkpoint.save(tmp_path, "last", TENSORS, META)
    files = sorted(tmp_path.iterdir())
    with monkeypatch.context() as broken:
        broken.setattr(call, fail(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(CheckpointError, match="No space left on device; the previous one is intact"):
            checkpoint.save(tmp_path, "last", {"other": torch.zeros(3)}, {})
    assert sorted(tmp_path.iterdir()) == files
    assert checkpoint.load(tmp_path, "last")[1] == META


def test_a_folder_that_cannot_be_written_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(CheckpointError, match=r"could not be written to .*taken"):
            checkpoint.save(folder, "last", TENSORS, META)


@pytest.mark.parametrize("done", [False, True])
def test_ctrl_c_around_the_replacement_leaves_a_readable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    checkpoint.save(tmp_path, "last", {}, {"step": 1})
    replace = os.replace

    def interrupted(a: Path, b: Path) -> None:
        if done:
            replace(a, b)
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, "last", {}, {"step": 2})
    assert checkpoint.load(tmp_path, "last")[1] == {"step": 2 if done else 1}


def test_meta_that_is_not_json_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path, "last", {}, {"best": float("inf")})
    assert not list(tmp_path.iterdir())


def test_the_tensors_are_plain_safetensors(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "last", TENSORS, META)
    assert same(safetensors.torch.load_file(tensors_file(tmp_path)), TENSORS)
