"""The documentation is built without a warning, runs its tutorials, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b[^>]*?\bhref="([^"]+)"')
OWN = ("404.html", "playground.html", "report.html")
"""Pages that the theme or softspin itself makes."""
LINKED = re.compile(r'<(?:a\b[^>]*?\bhref|img\b[^>]*?\bsrc)="([^"]+)"')


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Tutorials, facts and references are part of the build, so a mistake in any of them ends it."""
    # Not --quiet: it silences warnings before --strict can count them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr
    pages = {
        path: path.read_text() for path in tmp_path.rglob("*.html") if path.parent != tmp_path or path.name not in OWN
    }
    assert len(pages) > 35
    for path, text in pages.items():
        for found in LOADED.findall(text):
            assert not re.match(r"https?:|//", "".join(found)), f"{path.name} loads {found}"
        for link in LINKED.findall(text):
            if not re.match(r"https?:|mailto:|data:|#", link):
                target = path.parent / unquote(urldefrag(link).url)
                assert target.exists(), f"{path.relative_to(tmp_path)} links to {link}, which is not there"
        assert "{{" not in text, f"{path.name} has a fact that was not filled in"
        assert not re.search(r":(class|func|meth|mod):`", text), f"{path.name} shows a role of Sphinx"
    assert "<math" in pages[tmp_path / "concepts" / "soft-bits.html"]
    assert "tutorials/01_first_model-0.png" in {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.png")}
