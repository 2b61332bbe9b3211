"""Tutorials are notebooks without output that start with what they teach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["cells"])


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_no_output_is_committed(path: Path) -> None:
    for cell in cells(path):
        assert not cell.get("outputs"), "clear the outputs before you commit"
        assert cell.get("execution_count") is None, "clear the execution counts before you commit"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_it_opens_with_what_you_will_learn(path: Path) -> None:
    first = cells(path)[0]
    assert first["cell_type"] == "markdown"
    assert "".join(first["source"]).startswith("# ")
    assert "You will learn" in "".join(first["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_it_is_in_the_list_of_tutorials(path: Path) -> None:
    assert f"]({path.name})" in (TUTORIALS / "index.md").read_text()
