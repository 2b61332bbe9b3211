"""Formulas in LaTeX become MathML when the site is built: no script, no fonts, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_FUNCTION = re.compile(r"<mi>(log|exp|min|max)</mi>(?!</|<mo stretchy=\"false\">&#x00028;)")


def mathml(latex: str, display: str) -> str:
    """MathML of a formula, with the thin space behind a function's name that TeX sets there."""
    return _FUNCTION.sub(r'<mi>\1</mi><mspace width="0.17em"/>', convert(latex.strip(), display=display))


def _inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make "mathml" a value of `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
