"""The README: its example prints the stated output, and its tables match the committed files."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from softspin.config import Config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    """The script that writes the tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        yield importlib.import_module("readme_tables")


def test_its_tables_are_up_to_date(tables: ModuleType) -> None:
    assert tables.current(README) == README, "run: python experiments/readme_tables.py"
    page = (ROOT / "docs/development/speed.md").read_text(encoding="utf-8")
    assert tables.current_speed(page) == page, "run: python experiments/readme_tables.py"
    assert tables.main(["--check"]) == 0


def test_the_floor_of_a_step_equals_a_count_by_hand(tables: ModuleType) -> None:
    """Two groups of 2 bits, one hidden layer of 3, 7 pixels, 5 images, K = 4, 10 chains, 6 sweeps, 2 iterations."""
    import step_floor  # type: ignore[import-not-found]

    config = Config(
        structure="2-nonlinear", method="dvae#-power", layers=1, width=3, bits_per_group=2, batch_size=5,
        importance_samples=4, chains=10, sweeps=6, mean_field_steps=2,
    )  # fmt: skip
    encoders = 2 * (2 * 2 * 5 * 7 * 3) + 3 * 3 * (5 * 3 * 2 + 20 * (2 * 3 + 3 * 2))
    decoder = 3 * 3 * 20 * (4 * 3 + 3 * 7)
    prior = 3 * 20 * (2 * 2 * 2 * 2) + 10 * 6 * 2 * (2 * 2)
    stored = 5 * 3 + 20 * 3 + 20 * 3 + 20 * 4
    parameters = (21 + 6) + (21 + 6 + 6) + (12 + 21) + (4 + 4)
    products, moved = encoders + decoder + prior, 4 * (2 * stored + 6 * parameters)
    assert step_floor.step_work(config, 7) == (products, moved)
    floor = functools.partial(step_floor.step_floor, config, 7)
    assert floor(step_floor.Ceilings(1e3, 1e9)) == pytest.approx(2 * products / 1e3)
    assert floor(step_floor.Ceilings(1e9, 1e3)) == pytest.approx(moved / 1e3)
    # With TF32 each product is one of half precision. Without overlapping smoothings there is no mean field.
    encoders, decoder = 2 * (2 * 5 * 7 * 3) + 3 * (5 * 3 * 2 + 20 * 12), 3 * 20 * 33
    with_tf32 = config.replace(tf32=True, method="dvae-spike_exp", mean_field_steps=5)
    assert step_floor.step_work(with_tf32, 7).products == encoders + decoder + 480


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
