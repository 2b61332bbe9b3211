"""The examples run, and stay short."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


def test_the_own_loop_learns_and_has_fewer_than_60_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """120 steps are better than 2. Its NLL at full length is in docs/development/log.md."""
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) < 60
    main = runpy.run_path(str(path))["main"]
    first, later = main(steps=2), main(steps=120)
    assert later < first - 1
    assert f"test NLL {later:.2f} +- " in capsys.readouterr().out
