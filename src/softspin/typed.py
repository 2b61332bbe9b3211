"""Values for typed fields: from text and from plain data, with errors that say what would be right.

A hint is one of bool, int, float, str, `Literal[...]`, `T | None`, `tuple[T, ...]`, `tuple[S, T]`, or one of these
with a rule, `Annotated[T, Rule(...)]`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin

MOST_IN_A_RANGE = 10_000


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def convert(hint: Any, value: object) -> Any:
    """The value as its type; ValueError with the words for what would be right.

    >>> convert(float, 3), convert(int, 1e6), convert(tuple[int, ...], [1, 2]), convert(int | None, None)
    (3.0, 1000000, (1, 2), None)
    >>> convert(int, True)
    Traceback (most recent call last):
    ValueError: an integer
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, rule = args
        try:
            converted = convert(base, value)
        except ValueError:
            raise ValueError(rule.words) from None
        if not rule.holds(converted):
            raise ValueError(rule.words)
        return converted
    if origin in (Union, types.UnionType):
        return None if value is None else convert(args[0], value)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = (args[0],) * len(value) if args[-1] is ... else args
        if len(items) == len(value):
            return tuple(convert(item, one) for item, one in zip(items, value, strict=True))
    if (scalar := _scalar(hint, value)) is not None:
        return scalar
    raise ValueError(describe(hint))


def _scalar(hint: Any, value: object) -> bool | int | float | str | None:
    if get_origin(hint) is Literal:
        return str(value) if value in get_args(hint) else None
    if hint in (bool, str):
        return value if isinstance(value, hint) else None
    if hint not in (int, float) or not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest float
        return None
    if hint is float:
        return number if math.isfinite(number) else None
    return int(value) if number.is_integer() else None  # type: ignore[call-overload]


def describe(hint: Any) -> str:
    """In words, what a value of this type is.

    >>> describe(tuple[float, ...] | None)
    'a list, each a finite number, or none'
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(args[1].words)
    if origin is Literal:
        return "one of " + ", ".join(args)
    if origin is tuple:
        return f"a list, each {describe(args[0])}" if args[-1] is ... else f"a pair, each {describe(args[0])}"
    if origin in (Union, types.UnionType):
        return f"{describe(args[0])}, or none"
    return {int: "an integer", float: "a finite number", bool: "true or false", str: "text"}[hint]


def parse(hint: Any, text: str) -> Any:
    """Text as plain data for :func:`convert`: lists with commas, pairs with colons, ranges of integers with a dash.

    >>> parse(tuple[int, ...], "0-2,7"), parse(float | None, "none"), parse(tuple[tuple[float, float], ...], "0.5:1")
    ([0, 1, 2, 7], None, [[0.5, 1]])
    """
    text = text.strip()
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return parse(args[0], text)
    if origin in (Union, types.UnionType):
        return None if text.lower() == "none" else parse(args[0], text)
    if origin is tuple and args[-1] is ...:
        return [value for part in text.split(",") if part.strip() for value in _items(args[0], part)]
    if origin is tuple:
        return [parse(args[0], part) for part in text.split(":")]
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    return _number(text) if hint in (int, float) else text


def _items(hint: Any, part: str) -> list[Any]:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    first, dash, last = part.partition("-")
    if base is int and dash and first.strip().isdecimal() and last.strip().isdecimal():
        if not 0 <= int(last) - int(first) < MOST_IN_A_RANGE:
            raise ValueError(f"a range that rises, of at most {MOST_IN_A_RANGE}, as in 0-4")
        return list(range(int(first), int(last) + 1))
    return [parse(hint, part)]


def _number(text: str) -> int | float | str:
    """A number if it is one: `1_000_000`, `1e6` and `0.05` all are. Anything else is left for convert to refuse."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
