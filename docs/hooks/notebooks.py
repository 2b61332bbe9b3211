"""Notebooks become pages: docs/tutorials/*.ipynb have no stored output, and are run when the site is built.

The printed output and the open figures of a cell are shown below it. An error or a warning ends the build. A notebook
needs no kernel here: its cells are plain Python, run one after another in this process.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the JSON of a notebook by a page."""
    path = Path(app.env.doc2path(name))
    if path.suffix == ".ipynb":
        source[0] = render(path)


def render(path: Path) -> str:
    """A notebook as Markdown, with the output of a run."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    pictures = 0
    page = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, text in cells(path):
            if kind == "markdown":
                page.append(text)
                continue
            page.append(f"```python\n{text}\n```")
            if printed := run(text, path, scope):
                page.append(f"```{{code-block}} text\n:class: output\n\n{printed}\n```")
            for picture in _figures():
                pictures += 1
                data = base64.b64encode(picture).decode()
                page.append(f"![Figure {pictures} of this tutorial](data:image/png;base64,{data})")
    page.append(f"{{download}}`Download this page as a notebook <{path.name}>`")
    return "\n\n".join(page)


def cells(path: Path) -> list[tuple[str, str]]:
    """Kind, "markdown" or "code", and text of each cell."""
    found = json.loads(path.read_text())["cells"]
    return [(one["cell_type"], "".join(one["source"]).strip("\n")) for one in found]


def run(code: str, path: Path, scope: dict[str, Any]) -> str:
    """What a cell prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, os.fspath(path), "exec"), scope)
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


def setup(app: Sphinx) -> dict[str, bool]:
    """Read notebooks as Markdown; first of all hooks, so that the others see the page."""
    app.add_source_suffix(".ipynb", "markdown")
    app.connect("source-read", read, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
