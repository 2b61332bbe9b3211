"""Reading and writing of dataclasses as JSON: the type hints are the schema.

`to_json` writes a record as plain data. `from_json` reads it, and checks every field against its type hint. Files carry
their version; a record migrates older ones.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from softspin import __version__
from softspin.errors import RecordError
from softspin.typed import convert

VERSION = 4
"""Version of the written files. Increase it when a field is renamed or changes its meaning, and add a migration."""
R = TypeVar("R")


class Record:
    """Base class of records that are stored as a file or as a line of a file."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data.

        Returns:
            Every field and the version; `from_json` reads it.
        """
        return {"version": VERSION, **_fields(self)}

    @classmethod
    def from_json(cls, values: object, *, complete: bool = False) -> Self:
        """Read a record from plain data of this version or an older one. Unknown keys are ignored.

        Args:
            values: What `to_json` returned, after a round trip through JSON.
            complete: Whether optional keys are required too, as in untrusted files.

        Returns:
            The record.

        Raises:
            RecordError: A field is missing or has the wrong type. The message is a predicate that follows the name of
                the file.
        """
        return read_fields(cls, cls._migrated(values), complete=complete)

    @classmethod
    def _migrated(cls, values: object) -> dict[str, Any]:
        """The values in the current version."""
        if not isinstance(values, Mapping):
            raise RecordError("is not a JSON object")
        version = values.get("version", 1)
        if type(version) is not int or not 1 <= version <= VERSION:
            raise RecordError(f"has version {_short(version)}; softspin {__version__} reads versions 1 to {VERSION}")
        found = dict(values)
        if version < 2:
            found = cls._from_version_1(found)
        if version < 3:
            found = cls._from_version_2(found)
        return cls._from_version_3(found) if version < 4 else found

    @classmethod
    def _from_version_1(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        raise RecordError("has no 'version' of those that softspin wrote")

    @classmethod
    def _from_version_2(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)

    @classmethod
    def _from_version_3(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)


def _fields(record: Any) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in _schema(type(record))}


def _plain(value: Any) -> Any:
    """Convert to what JSON can represent."""
    if isinstance(value, Record):
        return value.to_json()
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class Field(NamedTuple):
    """Type hint of a field, and whether it may be left out."""

    hint: Any
    optional: bool
    """Whether it may be left out."""
    later: bool
    """Whether it was added later, so that complete files of the same version may lack it."""


_SCHEMAS: dict[type[Any], dict[str, Field]] = {}


def _schema(cls: type[Any]) -> dict[str, Field]:
    """The stored fields of a dataclass, in order, with their type hints."""
    if cls not in _SCHEMAS:
        hints = get_type_hints(cls, include_extras=True)
        stored = [one for one in dataclasses.fields(cls) if one.metadata.get("stored", True)]
        _SCHEMAS[cls] = {
            one.name: Field(hints[one.name], one.default is not dataclasses.MISSING, one.metadata.get("later", False))
            for one in stored
        }
    return _SCHEMAS[cls]


IDENTITY = ("cell", "outdated")
"""Optional fields of a `ResultRow` that identify it; an invalid value is always an error."""


def read_fields(
    cls: type[R], values: object, prefix: str = "", *, complete: bool = False, wrong: list[str] | None = None
) -> R:
    """A dataclass from a mapping. With a list `wrong`, errors in optional fields are collected there."""
    if not isinstance(values, Mapping):
        raise ValueError("a JSON object")
    found = {}
    for name, (hint, optional, later) in _schema(cls).items():
        if name not in values:
            if (complete and not later) or not optional:
                raise RecordError(f"has no '{prefix}{name}'")
            continue
        try:
            found[name] = _value(hint, values[name], f"{prefix}{name}", complete=complete, wrong=wrong)
        except ValueError as error:
            message = f"has '{prefix}{name}' = {_short(values[name])}; it must be {error}"
            if wrong is None or not optional or name in IDENTITY:
                raise RecordError(message) from None
            wrong.append(message)
    return cls(**found)


def _value(hint: Any, value: object, name: str, *, complete: bool, wrong: list[str] | None) -> Any:
    """Convert the value of a field: a record, a mapping, several records, or a type that `typed` converts."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and _is_structured(args[0]):
        return None if value is None else _value(args[0], value, name, complete=complete, wrong=wrong)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_fields(hint, value, f"{name}.", complete=complete, wrong=wrong)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError("a JSON object")
        return dict(value)
    if _is_structured(hint):
        if not isinstance(value, list | tuple):
            raise ValueError("a list of rows")
        return tuple(_rows_value(args[0], one, f"{name}[{i}]", complete) for i, one in enumerate(value))
    return convert(hint, value)


def _rows_value(cls: type[Record], value: object, name: str, complete: bool) -> Record:
    try:
        return cls.from_json(value, complete=complete)
    except RecordError as error:
        raise RecordError(f"has a '{name}' that {error}") from None


@functools.cache
def _is_structured(hint: Any) -> bool:
    """Whether `typed` cannot convert a type: a dataclass, a mapping, or a tuple of records."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return dataclasses.is_dataclass(args[0])
    return origin is Mapping or dataclasses.is_dataclass(hint)


def _short(value: object) -> str:
    """A value on one line of readable length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
