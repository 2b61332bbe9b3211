"""Docstrings as Markdown: Sphinx roles become links where the name has a place in the reference, examples code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> |\s*$).*\n?)*)+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object of the package."""
        if obj.docstring is not None and not obj.is_alias:
            text = _ROLE.sub(lambda found: _link(obj, found[1]), obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


def _link(obj: griffe.Object, name: str) -> str:
    """A name as code, and as a link if it can be found and has a page; autorefs says nothing where it has none."""
    try:
        path = obj.resolve(name)
    except griffe.NameResolutionError:
        path = name
    return f'<autoref identifier="{path}" optional><code>{name.rpartition(".")[2]}</code></autoref>'
