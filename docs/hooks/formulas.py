"""Fenced `math` blocks in LaTeX become MathML when the site is built: no script, no fonts, no network."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from latex2mathml.converter import convert

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the formulas of a page."""
    return _BLOCK.sub(
        lambda found: f'<div class="formula">{convert(dedent(found[1]).strip(), display="block")}</div>', markdown
    )
