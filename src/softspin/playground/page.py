"""The page: template, style, scripts and data in one self-contained HTML file."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from softspin import __version__
from softspin.formatting import printable_text
from softspin.playground.stored import migrated
from softspin.project import DOCUMENTATION, home

TEMPLATE = Path(__file__).with_name("template")
SCRIPTS = (
    "numbers", "nets", "boltzmann", "softbit", "state", "paint", "drawing", "bits", "prior", "couplings", "density",
    "facts", "main",
)  # fmt: skip
"""Scripts in the order of their dependencies."""


def render(data: dict[str, Any]) -> str:
    """Build a page from its data.

    Args:
        data: The data, of the present version or an older one.

    Returns:
        The page as HTML.

    Raises:
        DataError: The data are not those of a page.
    """
    data = migrated(data)
    parts = {
        "title": html.escape(printable_text(f"softspin: {', '.join(data['replicas'][0]['headline'][:3])}")),
        "style": _read("style.css"),
        "project": _link("softspin"),
        "made": f"Made with {_link(f'softspin {__version__}')}. {DOCUMENTATION if home() is None else ''}".rstrip(),
        "script": "\n".join(_read(f"{name}.js") for name in SCRIPTS),
        "model": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),  # so no text can end the script element
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def _link(name: str) -> str:
    """A link to the project, or its name alone if it has no address."""
    address = home()
    return f"<b>{name}</b>" if address is None else f'<a href="{html.escape(address)}" rel="noopener">{name}</a>'


def _read(name: str) -> str:
    return (TEMPLATE / name).read_text(encoding="utf-8")
