"""The README: its example prints the stated output, and its tables match the committed files."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes the tables."""
    spec = importlib.util.spec_from_file_location("readme_tables", ROOT / "experiments" / "readme_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_tables_are_up_to_date(tables: ModuleType) -> None:
    assert tables.current(README) == README, "run: python experiments/readme_tables.py"
    page = (ROOT / "docs/development/speed.md").read_text(encoding="utf-8")
    assert tables.current_speed(page) == page, "run: python experiments/readme_tables.py"
    assert tables.main(["--check"]) == 0


def test_the_example_of_the_start_page_is_that_of_the_readme() -> None:
    (example,) = re.findall(r"```python\n.*?```\n\n```text\n.*?```", README, re.DOTALL)
    assert example in (ROOT / "docs/index.md").read_text(encoding="utf-8")


def test_a_changed_number_is_detected(tables: ModuleType) -> None:
    changed = re.sub(r"(\| MNIST \| \S+ \| \d+ \| )[\d.]+", r"\g<1>1.00", README, count=1)
    assert changed != README
    assert tables.current(changed) == README
    with pytest.raises(SystemExit, match="lacks the markers <!-- results: begin -->"):
        tables.current(README.replace("<!-- results: end -->", ""))


def test_its_example_prints_the_stated_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers may differ by rounding on another CPU; the words and shapes may not."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(example, scope)
    printed = capsys.readouterr().out
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", expected)
    found, wanted = ([float(one) for one in NUMBER.findall(text)] for text in (printed, expected))
    assert found == pytest.approx(wanted, abs=0.4)


def test_it_says_how_to_train_on_own_data_and_in_an_own_loop() -> None:
    """A newcomer may read nothing else: a folder of PNGs, a uint8 array, a loop."""
    for words in (
        "a folder of PNG",
        "softspin.fit(data=images, folder=",
        "a uint8 array",
        "python examples/own_loop.py",
    ):
        assert words in README, words


def test_it_fits_two_screens_and_its_links_resolve() -> None:
    assert len(README.splitlines()) <= 120
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
    assert len(links) > 15
    missing = [link for link in links if not (ROOT / link).exists()]
    assert missing == []
