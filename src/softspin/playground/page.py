"""The page: template, style, scripts and data in one self-contained HTML file."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from softspin import __version__
from softspin.formatting import printable_text
from softspin.playground.export import spread
from softspin.playground.payload import MAX_BYTES, payload
from softspin.playground.stored import migrated
from softspin.project import DOCUMENTATION, home
from softspin.trained import Model

TEMPLATE = Path(__file__).with_name("template")
SCRIPTS = (
    "numbers", "nets", "boltzmann", "softbit", "state", "paint", "drawing", "bits", "prior", "couplings", "density",
    "facts", "main",
)  # fmt: skip
"""Scripts in the order of their dependencies."""


def page(
    model: Model,
    images: Tensor,
    *,
    replica: int | None = None,
    count: int = 24,
    unseen: bool = True,
    max_bytes: int = MAX_BYTES,
    condition: Tensor | None = None,
) -> str:
    """Build the page of a model.

    Args:
        model: The model.
        images: Binary images `(N, pixels)` for the visitor to select from.
        replica: The only replica on the page, counted from 0. By default the page has all replicas to choose from,
            lowest validation NLL first, as far as `max_bytes` allows.
        count: Number of images on the page.
        unseen: Whether the images were not used in training.
        max_bytes: Maximum size of the replicas on the page. The first one is always there.
        condition: Conditions of the images, `(N, columns)`, of a conditional model.

    Returns:
        The page as HTML.

    Raises:
        SupportError: There is no such replica, or the page does not support the model.
        ConfigError: The page does not support the networks.
    """
    shown = list(spread(len(images), count))
    given = None if condition is None else condition[shown]
    options: dict[str, Any] = {"max_bytes": max_bytes, "unseen": unseen, "condition": given}
    return render(payload(model, images[shown], replica=replica, **options))


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
