"""The pictures of the documentation are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"-?\d+\.\d+")
APART = 1.0
"""Points by which coordinates may differ: another processor may round a draw's neighbour to the other side."""


def compare(text: str, other: str) -> None:
    """Raise unless two pictures have the same words, and all numbers nearly so; embedded bitmaps are not looked at."""
    text, other = (re.sub(r"data:image/png;base64,[^\"]*", "", one) for one in (text, other))
    assert NUMBER.sub("", text) == NUMBER.sub("", other)
    pairs = zip(NUMBER.findall(text), NUMBER.findall(other), strict=True)
    worst = max(abs(float(a) - float(b)) for a, b in pairs)
    assert worst <= APART


@pytest.mark.slow
def test_every_picture_is_up_to_date(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(DOCS / "pictures"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path)
    drawn, stored = ({path.name for path in folder.glob("*.svg")} for folder in (tmp_path, DOCS / "pictures"))
    assert drawn == stored
    for name in sorted(drawn):
        compare((tmp_path / name).read_text(), (DOCS / "pictures" / name).read_text())


def test_a_changed_picture_is_detected() -> None:
    text = (DOCS / "pictures/ais.svg").read_text()
    compare(text, text)
    with pytest.raises(AssertionError):
        compare(text, text.replace("forward AIS", "backward AIS"))
    with pytest.raises(AssertionError):
        compare(text, re.sub(r"^L \d", "L 9", text, count=1, flags=re.MULTILINE))


def test_every_picture_is_used() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for path in (DOCS / "pictures").glob("*.svg"):
        assert f"pictures/{path.name}" in pages, path.name
