"""The command line as a function that returns output and exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from softspin.cli.app import run

TINY = [
    "--data", "bars-and-stripes-3x3", "--structure", "1-nonlinear", "--steps", "6", "--set", "bits_per_group=6",
    "--set", "width=8", "--set", "chains=20", "--set", "sweeps=2", "--set", "evaluate_every=3",
    "--set", "checkpoint_every=3", "--set", "validation_samples=5", "--set", "test_samples=20", "--device", "cpu",
]  # fmt: skip
"""A run of a second."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ended]


def caller(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    def call(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["softspin", *map(str, words)])
        code = 0
        try:
            run()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return call
