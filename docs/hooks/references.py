"""Links from pages to the reference and to generated HTML pages, and docstrings as reStructuredText.

In a page, `[text][softspin.name]` links to that name in the reference, and `::: softspin.name` inserts its
documentation. A name that is not in the reference is an error of the build.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Annotated, Any, get_args, get_origin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util import logging
from sphinx.util.inspect import TypeAliasForwardRef

from softspin.config import fields

LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"(?<![!\]\\`])\[([^\[\]]+)\]\[(softspin[\w.]*)\]")
_PLACE = re.compile(r"^::: ([\w.]+)\n((?:^    :.*\n)*)", re.MULTILINE)
_WHOLE_PAGE = re.compile(r"\[([^\[\]]+)\]\(((?:\.\./)*(?:playground|report)\.html)\)")
_LITERAL = re.compile(r"(``.*?``|`[^`]*`_?_?)", re.DOTALL)


def _import(name: str) -> Any:
    module, rest = name, []
    while module:
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            continue
        for one in rest:
            found = getattr(found, one)
        return found
    raise ModuleNotFoundError(name)


def _directive(found: re.Match[str]) -> str:
    """The autodoc directive for a module, class or function."""
    name, options = found[1], found[2].replace("    :", "   :")
    thing = _import(name)
    kind = "module" if inspect.ismodule(thing) else "class" if inspect.isclass(thing) else "function"
    if kind == "class" and issubclass(thing, Exception):
        kind = "exception"
    heading = f"## {name}\n\n" if kind == "module" else ""
    return f"{heading}```{{eval-rst}}\n.. auto{kind}:: {name}\n{options}```\n"


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the short forms in a page by Sphinx roles and directives."""
    text = _PLACE.sub(_directive, source[0] + "\n")
    text = _NAME.sub(lambda found: f"{{py:obj}}`{found[1].strip('`')} <{found[2]}>`", text)
    # These are not Sphinx pages. Sphinx copies them unchanged next to index.html.
    source[0] = _WHOLE_PAGE.sub(r'<a class="reference" href="\2">\1</a>', text)


def missing(app: Sphinx, env: BuildEnvironment, node: nodes.Element, content: nodes.Node) -> None:
    """Warn if a page links to a name that is not in the reference. In docstrings such a name is shown as code."""
    if node["reftype"] == "obj" and node["reftarget"].startswith("softspin"):
        LOGGER.warning("'%s' is not in the reference", node["reftarget"], location=node)


_ORIGINAL: dict[str, list[str]] = {}


def keep_original(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Store the docstring of an attribute, because napoleon would read the text before its first colon as a type."""
    if what in ("attribute", "property", "data"):
        _ORIGINAL[name] = list(lines)


def plain_text(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape characters that are not meant as markup, such as the bar in r(z|x) and authors' initials."""
    if name in _ORIGINAL:
        lines[:] = GoogleDocstring(_ORIGINAL.pop(name), app.config).lines()
    parts = _LITERAL.split("\n".join(lines))
    for index in range(0, len(parts), 2):
        kept = []
        for line in parts[index].split("\n"):
            code = line.lstrip().startswith((">>>", "...", ".."))
            text = re.sub(r"^(\s*[A-Z])\. ", r"\1\\. ", line)  # an author's initial would begin a list
            kept.append(line if code else re.sub(r"(?<!\\)\|", r"\\|", text))
        parts[index] = "\n".join(kept)
    lines[:] = "".join(parts).split("\n")


def type_names() -> dict[str, str]:
    """Map annotated types, such as Count, to the underlying types, such as int."""
    return {name: _type(one) for name, one in vars(fields).items() if get_origin(one) is Annotated}


def _type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _type(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return f"tuple[{', '.join(map(_type, get_args(hint)))}]"
    return "..." if hint is Ellipsis else str(hint.__name__)


def signature(app: Sphinx, what: str, name: str, thing: Any, options: Any, text: str, result: str) -> Any:
    """Leave out the signature of a protocol, which is not called."""
    return ("", "") if what == "class" and getattr(thing, "_is_protocol", False) else None


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out deprecated names, and fields of a named tuple that have no text: they are in its signature."""
    text = getattr(thing, "__doc__", None) or ""
    return True if re.match(r"Alias for field number \d+|Deprecated name", text) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", read, priority=900)
    app.connect("missing-reference", missing)
    app.connect("autodoc-process-docstring", keep_original, priority=100)
    app.connect("autodoc-process-docstring", plain_text, priority=900)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    app.config.autodoc_type_aliases = type_names()
    # Inside tuple[...] Sphinx shows the representation of an alias.
    TypeAliasForwardRef.__repr__ = lambda self: str(self.name)  # type: ignore[method-assign]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
