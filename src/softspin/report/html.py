"""HTML elements as strings. Text is escaped, so nothing in a row can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = ("img", "meta", "br")


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


Child = str | Iterable["Child"]
"""Text, markup, or several of these."""


def tag(name: str, /, *children: Child, **attributes: str | bool | int | None) -> Html:
    """An HTML element.

    In names of attributes a last underscore is removed, and others become dashes. None and False are omitted.

    >>> tag("p", "1 < 2, ", tag("b", "really"), class_="note", data_cell="a&b")
    '<p class="note" data-cell="a&amp;b">1 &lt; 2, <b>really</b></p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            word = key.removesuffix("_").replace("_", "-")
            words.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Html(start) if name in VOID else Html(f"{start}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Concatenate children; text is escaped, markup is not."""
    if isinstance(children, Html):
        return children
    if isinstance(children, str):
        return Html(html.escape(children, quote=False))
    return Html("".join(join(child) for child in children))


def table(caption: str, head: Iterable[Child], body: Iterable[Child], kind: str | None = None) -> Html:
    """A table in its own scroll container, which also scrolls by keyboard."""
    content = tag("table", tag("caption", caption), tag("thead", head), body, class_=kind)
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=caption)


def plain_table(caption: str, columns: Iterable[str], rows: Iterable[Iterable[Child]], kind: str = "plain") -> Html:
    """A table with one line of headings; the first cell of each row names it."""
    head = tag("tr", [tag("th", name, scope="col") for name in columns])
    lines = []
    for row in rows:
        first, *rest = row
        lines.append(tag("tr", tag("th", first, scope="row"), [tag("td", cell) for cell in rest]))
    return table(caption, head, tag("tbody", lines), kind)


def flags(texts: Iterable[str]) -> list[Child]:
    """Flags next to a number, separated by spaces."""
    return [[tag("span", text, class_="mark"), " "] for text in texts]


def code(text: str) -> Html:
    """A command, or a name; a browser may break its lines between words, but not after the hyphens of an option."""
    words = (tag("span", word, class_="option") if word.startswith("--") else join(word) for word in text.split(" "))
    return tag("code", Html(" ".join(words)))


def commands(lines: Iterable[str]) -> Html:
    """Commands to copy, one a line."""
    return tag("pre", tag("code", "\n".join(lines)), tabindex="0")
