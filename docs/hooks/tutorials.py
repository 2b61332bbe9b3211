"""Notebooks that are scripts: each docs/tutorials/*.py is run when the site is built, and becomes a page.

`# %% [markdown]` begins text, `# %%` begins code. What the code of a cell prints stands below it, and the figures that
it leaves open. A script that fails, or warns, ends the build.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for each tutorial, and its pictures."""
    for source in sorted(Path(config.docs_dir, "tutorials").glob("*.py")):
        page, pictures = render(source)
        name = f"tutorials/{source.stem}"
        files.append(File.generated(config, f"{name}.md", content=page))
        for number, picture in enumerate(pictures):
            files.append(File.generated(config, f"{name}-{number}.png", content=picture))
    return files


def render(source: Path) -> tuple[str, list[bytes]]:
    """A script as Markdown with the output of a run, and the pictures it made."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    pictures: list[bytes] = []
    page = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, text in cells(source.read_text()):
            if kind == "markdown":
                page.append(re.sub(r"^# ?", "", text, flags=re.MULTILINE))
                continue
            page.append(f"```python\n{text}\n```")
            if printed := _run(text, source, scope):
                page.append(f'```text title="prints"\n{printed}\n```')
            for picture in _figures():
                page.append(f"![Picture {len(pictures) + 1} of this page]({source.stem}-{len(pictures)}.png)")
                pictures.append(picture)
    page.append(f"[This page as a script]({source.name})")
    return "\n\n".join(page), pictures


def cells(script: str) -> list[tuple[str, str]]:
    """Kind, "markdown" or "code", and text of each cell."""
    _, *parts = _CELL.split(script)
    kinds = ["markdown" if "markdown" in head else "code" for head in parts[::2]]
    return [(kind, text.strip("\n")) for kind, text in zip(kinds, parts[1::2], strict=True)]


def _run(code: str, source: Path, scope: dict[str, Any]) -> str:
    """What a cell prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, os.fspath(source), "exec"), scope)
    return out.getvalue().rstrip()


def _figures() -> list[bytes]:
    """The figures that are open, as PNG; they are closed."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, dpi=110, bbox_inches="tight")
        found.append(file.getvalue())
    pyplot.close("all")
    return found
