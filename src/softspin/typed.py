"""Convert text and plain data to the types of fields, with errors that describe the expected value.

A hint is one of bool, int, float, str, `Literal[...]`, `T | None`, `tuple[T, ...]`, `tuple[S, T]`, one value or several
of them, `T | tuple[T, ...]`, or one of these with a rule, `Annotated[T, Rule(...)]`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from softspin.deprecation import renamed_attribute

MAX_RANGE_LENGTH = 10_000


@dataclass(frozen=True)
class Rule:
    """A condition on a value."""

    description: str
    """Description of a valid value, for error messages."""
    holds: Callable[[Any], bool]
    """Whether a value is valid."""

    words = renamed_attribute("words", "description")


def convert(hint: Any, value: object) -> Any:
    """Convert a value to the type of a hint.

    Args:
        hint: The type.
        value: Plain data, as from JSON.

    Returns:
        The value as this type.

    Raises:
        ValueError: The value does not fit. The message describes the expected value.

    Example:
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
            raise ValueError(rule.description) from None
        if not rule.holds(converted):
            raise ValueError(rule.description)
        return converted
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        if isinstance(value, (list, tuple)) and value and (several := _several(args)) is not None:
            converted = convert(several, value)
            return converted[0] if len(converted) == 1 else converted
        return convert(args[0], value)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = (args[0],) * len(value) if args[-1] is ... else args
        if len(items) == len(value):
            return tuple(convert(item, one) for item, one in zip(items, value, strict=True))
    if (scalar := _scalar(hint, value)) is not None:
        return scalar
    raise ValueError(describe(hint))


def _several(args: tuple[Any, ...]) -> Any:
    """The list among the alternatives of a union; None if there is none."""
    return next((one for one in args[1:] if get_origin(one) is tuple), None)


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
    """Describe a valid value of a type.

    Args:
        hint: The type.

    Returns:
        The description.

    Example:
        >>> describe(tuple[float, ...] | None)
        'a list, each a finite number, or none'
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(args[1].description)
    if origin is Literal:
        return "one of " + ", ".join(args)
    if origin is tuple:
        return f"a list, each {describe(args[0])}" if args[-1] is ... else f"a pair, each {describe(args[0])}"
    if origin in (Union, types.UnionType):
        many = "" if _several(args) is None else ", or a list of them"
        return describe(args[0]) + (", or none" if type(None) in args else "") + many
    return {int: "an integer", float: "a finite number", bool: "true or false", str: "text"}[hint]


def parse(hint: Any, text: str) -> Any:
    """Parse text into plain data for :func:`convert`.

    Lists are separated by commas, pairs by colons, and ranges of integers by a dash.

    Args:
        hint: The type.
        text: The text.

    Returns:
        Plain data. Text that does not fit is returned unchanged, and `convert` raises the error.

    Raises:
        ValueError: A range is decreasing or too long.

    Example:
        >>> parse(tuple[int, ...], "0-2,7"), parse(float | None, "none")
        ([0, 1, 2, 7], None)
        >>> parse(tuple[tuple[float, float], ...], "0.5:1")
        [[0.5, 1]]
    """
    text = text.strip()
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return parse(args[0], text)
    if origin in (Union, types.UnionType):
        several = _several(args) if "," in text else None
        return None if text.lower() == "none" and type(None) in args else parse(several or args[0], text)
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
        if not 0 <= int(last) - int(first) < MAX_RANGE_LENGTH:
            raise ValueError(f"an increasing range of at most {MAX_RANGE_LENGTH} integers, such as 0-4")
        return list(range(int(first), int(last) + 1))
    return [parse(hint, part)]


def _number(text: str) -> int | float | str:
    """Parse a number such as `1_000_000`, `1e6` or `0.05`. Other text is returned for `convert` to reject."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
