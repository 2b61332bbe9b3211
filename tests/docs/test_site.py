"""The documentation builds without warnings, runs its tutorials, and loads nothing from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b[^>]*?\bhref="([^"]+)"')
OWN = ("playground.html", "report.html")
"""Pages that softspin itself makes; they are tested elsewhere."""
REFERENCE = {
    "structures": ["1-linear", "1-nonlinear", "2-nonlinear", "4-nonlinear"],
    "methods": ["dvae-spike_exp", "dvae++-power", "dvae#-gauss_int", "dvae#-power"],
    "config": ["learning_rate", "batch_size", "importance_samples", "bits_per_group", "compile"],
    "cli": ["softspin train", "--importance-samples", "--json"],
}
"""What pages that are generated must have, among other things."""
LINKED = re.compile(r'<(?:a\b[^>]*?\bhref|img\b[^>]*?\bsrc)="([^"]+)"')


def build(folder: Path) -> Path:
    """Build the site; tutorials, facts and references are part of it, so a mistake in any of them ends it."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder / "html"


def read(site: Path) -> dict[str, str]:
    """The text of every page, by its path."""
    paths = (path for path in site.rglob("*.html") if path.parent != site or path.name not in OWN)
    return {str(path.relative_to(site)): path.read_text() for path in paths if "_static" not in path.parts}


def test_the_site_builds_without_warnings_and_network(tmp_path: Path) -> None:
    """One test, as the build takes most of the time: two processes would make it twice."""
    site = build(tmp_path)
    pages = read(site)
    assert len(pages) > 45
    check_nothing_is_loaded_from_elsewhere(site, pages)
    check_links(site, pages)
    check_nothing_is_left_unrendered(pages)
    assert "<math" in pages["concepts/soft-bits.html"]
    assert "data:image/png" in pages["tutorials/01_first_model.html"]
    assert "active bits:" in words(pages["tutorials/01_first_model.html"])
    for page, names in REFERENCE.items():
        for name in names:
            assert name in words(pages[f"reference/{page}.html"])


def words(page: str) -> str:
    """The text of a page without its tags."""
    return re.sub(r"<[^>]+>", "", page)


def check_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        assert "mathjax" not in text.lower()
        for found in LOADED.findall(text):
            assert not re.match(r"https?:|//", "".join(found)), f"{path} loads {found}"
    for sheet in (site / "_static").rglob("*.css"):
        assert not re.search(r"(url\(|@import )\W?(https?:)?//", sheet.read_text()), sheet.name


def check_links(site: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        for link in LINKED.findall(text):
            if not re.match(r"https?:|mailto:|data:|#", link):
                target = (site / path).parent / unquote(urldefrag(link).url)
                assert target.exists(), f"{path} links to {link}, which does not exist"


def check_nothing_is_left_unrendered(pages: dict[str, str]) -> None:
    for path, text in pages.items():
        assert "{{" not in text, f"{path} has a fact that was not filled in"
        assert not re.search(r":(class|func|meth|mod|attr):[`<]", text), f"{path} shows a role of Sphinx"
        assert "```" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL), f"{path} shows a fence"
        assert not re.search(r"<p>(::: |!!! )", text), f"{path} shows a directive"
        assert ">Type<" not in text, f"{path}: the words before a colon were taken for a type"
