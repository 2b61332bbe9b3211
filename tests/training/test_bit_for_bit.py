"""Training gives the same bits as at commit 7cc1184, with the exceptions that `fingerprints.py` names."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fixtures.stored import VERSIONS
from reproducible import no_digests_here, run_pinned
from training import fingerprints

pytest.importorskip("numba", reason="the stored digests are those of the compiled samplers")


def changes(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Description of the difference between two fingerprints of one run; None if they are equal."""
    if old == new:
        return None
    before, after = Counter(old["tensors"].split()), Counter(new["tensors"].split())
    count = f"{(before - after).total()} of {before.total()} tensors are gone, {(after - before).total()} are new"
    return f"{count}; test NLL {old['nll']} -> {new['nll']}"


def test_training_and_resuming_give_the_stored_bits(tmp_path: Path) -> None:
    """All runs in one process: loading the package takes longer than most of them."""
    if reason := no_digests_here():
        pytest.skip(reason)
    stored = json.loads(fingerprints.STORED.read_text())["runs"]
    folders: list[Path] = []
    ends: dict[str, Any] = {}
    for files in VERSIONS:
        folders += [shutil.copytree(files.folder / name, tmp_path / name) for name in files.interrupted]
        ends |= json.loads((files.folder / "interrupted_end.json").read_text())
    assert len(ends) == len(folders) == 5
    pinned = run_pinned(fingerprints.STORED.with_suffix(".py"), *folders)
    assert pinned["resumed"] == ends, "an interrupted run of an earlier version"
    found = pinned["runs"]
    assert found.keys() == stored.keys() == fingerprints.cases().keys()
    assert len(found) == 32
    differ = {name: text for name in stored if (text := changes(stored[name], found[name])) is not None}
    assert not differ, f"{len(differ)} of {len(stored)} runs differ:\n" + "\n".join(
        f"  {name}: {text}" for name, text in differ.items()
    )
    assert len({one["digest"] for one in found.values()}) == len(found), "two of the runs are the same: one is idle"
