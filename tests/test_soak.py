"""`benchmarks/soak.py`: a resumed run that differs is a loss, and so is a process that fails in the wrong way."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from training.runs import small, trainer

import softspin
from softspin.training import checkpoint

ROOT = Path(softspin.__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # restored afterwards
    monkeypatch.setitem(sys.modules, "matplotlib", sys.modules.get("matplotlib"))
    return load(BENCHMARKS / "soak.py")


def test_a_difference_is_a_loss(soak: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer(small(), folder).train()
    right = soak.content(folder)
    soak.compare(folder, right)
    trainer(small(), tmp_path / "again").train()
    soak.compare(tmp_path / "again", right)

    def differs(name: str) -> None:
        with pytest.raises(soak.LossError, match=f"{name} of .* differs from that of an uninterrupted run"):
            soak.compare(tmp_path / "changed", right)
        shutil.rmtree(tmp_path / "changed")

    for name in ("last", "best"):
        changed = Path(shutil.copytree(folder, tmp_path / "changed"))
        tensors, meta = checkpoint.load(changed, name)
        key = next(key for key, value in tensors.items() if value.is_floating_point())
        tensors[key].view(-1)[0] = torch.nextafter(
            tensors[key].view(-1)[0], torch.tensor(1e9, dtype=tensors[key].dtype)
        )
        checkpoint.save(changed, name, tensors, meta)
        differs(name)
    for name, old, new in (("journal", '"bound": [-', '"bound": [-1'), ("result.json", '"nll": ', '"nll": 1')):
        changed = Path(shutil.copytree(folder, tmp_path / "changed"))
        path = changed / ("journal.jsonl" if name == "journal" else name)
        path.write_text(path.read_text().replace(old, new, 1))
        differs(name)


@pytest.mark.parametrize(
    ("code", "text", "allowed", "lost"),
    [
        (0, "test NLL 1\n", (), False),
        (75, "terminated\n", (75,), False),
        (1, "error: no space\n", (1,), False),
        (1, "error: no space\n", (), True),
        (1, "no space\n", (1,), True),
        (1, "error: a\nerror: b\n", (1,), True),
        (0, "Traceback (most recent call last)\n", (), True),
    ],
)
def test_how_a_process_may_end(soak: ModuleType, code: int, text: str, allowed: tuple[int, ...], lost: bool) -> None:
    faults = sys.modules["soak_faults"]
    child = object.__new__(faults.Child)
    child._output, inside = os.pipe()
    os.write(inside, text.encode())
    os.close(inside)
    child.words, child.code = ["train"], code
    if lost:
        with pytest.raises(soak.LossError, match=f"train ended with {code}"):
            child.check(*allowed)
    else:
        child.check(*allowed)


def test_the_table_of_the_documentation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook = load(ROOT / "docs/hooks/faults.py")
    row: dict[str, Any] = json.loads(hook.RESULT.read_text())
    assert row["lost"] == 0
    table = hook.fault_table().splitlines()
    assert len(table) == 2 + len(row["faults"])
    assert sum(one["struck"] for one in row["faults"]) > 100
    assert f"{row['runs']:,} runs in {row['processes']:,} processes" in hook.fault_facts()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits and signals of Linux")
def test_a_short_soak(tmp_path: Path) -> None:
    words = [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "0.2", "--out", str(tmp_path / "found.json")]
    subprocess.run(words, check=True, capture_output=True, timeout=600)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["lost"] == 0
    assert found["runs"] >= 1
