"""The documentation is built without a warning, runs its tutorials, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b[^>]*?\bhref="([^"]+)"')
OWN = ("playground.html", "report.html")
"""Pages that softspin itself makes; they are tested elsewhere."""
LINKED = re.compile(r'<(?:a\b[^>]*?\bhref|img\b[^>]*?\bsrc)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tutorials, facts and references are part of the build, so a mistake in any of them ends it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--jobs", "1"]
    command += ["--doctree-dir", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of every page, by its path."""
    paths = (path for path in site.rglob("*.html") if path.parent != site or path.name not in OWN)
    return {str(path.relative_to(site)): path.read_text() for path in paths if "_static" not in path.parts}


def test_pages_load_nothing_from_elsewhere(pages: dict[str, str]) -> None:
    assert len(pages) > 45
    for path, text in pages.items():
        for found in LOADED.findall(text):
            assert not re.match(r"https?:|//", "".join(found)), f"{path} loads {found}"


def test_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    for path in (site / "_static").rglob("*.css"):
        assert not re.search(r"(url\(|@import )\W?(https?:)?//", path.read_text()), path.name


def test_links_lead_to_files_that_exist(site: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        for link in LINKED.findall(text):
            if not re.match(r"https?:|mailto:|data:|#", link):
                target = (site / path).parent / unquote(urldefrag(link).url)
                assert target.exists(), f"{path} links to {link}, which does not exist"


def test_nothing_is_left_unrendered(pages: dict[str, str]) -> None:
    for path, text in pages.items():
        assert "{{" not in text, f"{path} has a fact that was not filled in"
        assert not re.search(r":(class|func|meth|mod|attr):`", text), f"{path} shows a role of Sphinx"
        assert "```" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL), f"{path} shows a fence"
        assert not re.search(r"<p>(::: |!!! )", text), f"{path} shows a directive"


def test_formulas_are_mathml(pages: dict[str, str]) -> None:
    assert "<math" in pages["concepts/soft-bits.html"]
    assert not any("mathjax" in text.lower() for text in pages.values())


def test_tutorials_show_their_output(pages: dict[str, str]) -> None:
    assert "data:image/png" in pages["tutorials/01_first_model.html"]
    assert "active bits:" in re.sub(r"<[^>]+>", "", pages["tutorials/01_first_model.html"])


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("structures", ["1-linear", "1-nonlinear", "2-nonlinear", "4-nonlinear"]),
        ("methods", ["dvae-spike_exp", "dvae++-power", "dvae#-gauss_int", "dvae#-power"]),
        ("config", ["learning_rate", "batch_size", "importance_samples", "bits_per_group", "compile"]),
        ("cli", ["softspin train", "--importance-samples", "--json"]),
    ],
)
def test_the_reference_has_what_the_code_has(pages: dict[str, str], page: str, names: list[str]) -> None:
    text = re.sub(r"<[^>]+>", "", pages[f"reference/{page}.html"])
    for name in names:
        assert name in text


def test_the_reference_says_what_arguments_mean(pages: dict[str, str]) -> None:
    """No object of the reference shows napoleon's guess that the words before a colon are a type."""
    assert not any("<dt class=\"field-odd\">Type" in text for text in pages.values())
