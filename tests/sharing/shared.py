"""Briefly trained models to share, and manipulated files; both without the code under test."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor
from training.runs import bars, small

import softspin
from softspin.trained import Model

Change = Callable[[dict[str, Any]], object]


def trained(folder: Path, **changes: Any) -> Model:
    """Two steps, on 3 x 3 bars and stripes."""
    values: dict[str, Any] = {"steps": 2, "report_every": 1, "evaluate_every": 1, "checkpoint_every": 1}
    return softspin.fit(small(**(values | changes)), bars(), folder, progress=False, pictures=False)


def header(file: Path) -> dict[str, Any]:
    """Header of a safetensors file, by the definition of the format: eight bytes of length, then JSON."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    found: dict[str, Any] = json.loads(content[8 : 8 + length])
    return found


def described(file: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(header(file)["__metadata__"]["softspin"])
    return about


def forge(file: Path, about: Change | None = None, tensors: Change | None = None, text: str | None = None) -> None:
    """Rewrite a shared file with changed metadata or tensors."""
    says, holds = described(file), dict[str, Tensor](safetensors.torch.load(file.read_bytes()))
    for change, what in ((about, says), (tensors, holds)):
        if change is not None:
            change(what)
    file.write_bytes(safetensors.torch.save(holds, {"softspin": json.dumps(says) if text is None else text}))
