from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest
from cli.command import TINY, Call, caller

from softspin.cli.app import run


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two replicas, read only."""
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    before, sys.argv = sys.argv, ["softspin", "train", str(folder), "--seeds", "0-1", *TINY]
    try:
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as end:
            run()
    finally:
        sys.argv = before
    assert end.value.code == 0
    return folder
