"""Deprecated names, which work for one more version and warn with the new name."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

REMOVED_IN = "0.2"

F = TypeVar("F", bound=Callable[..., Any])


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` is now called `new`.

    It is a FutureWarning, because Python hides a DeprecationWarning from most users.

    Args:
        old: The deprecated name.
        new: The new name.
        stacklevel: As in `warnings.warn`, counted from this function.
    """
    warnings.warn(
        f"'{old}' is now called '{new}'; the old name will be removed in softspin {REMOVED_IN}",
        FutureWarning,
        stacklevel=stacklevel,
    )


def current_names(
    values: Mapping[str, Any],
    names: Mapping[str, str],
    stacklevel: int = 4,
    error: type[Exception] = TypeError,
) -> dict[str, Any]:
    """Rename the deprecated keys of a mapping.

    Args:
        values: Values by old or new names.
        names: New names by old names.
        stacklevel: As in `warnings.warn`, counted from :func:`warn_renamed`.
        error: Raised if both the old and the new name of a value are given.

    Returns:
        A copy of `values` with new names only.
    """
    found = dict(values)
    for old, new in names.items():
        if old in found:
            if new in found:
                raise error(f"'{old}' is the old name of '{new}'; give only '{new}'")
            warn_renamed(old, new, stacklevel)
            found[new] = found.pop(old)
    return found


def renamed_attribute(old: str, new: str) -> Any:
    """Create a property that warns and returns the attribute `new`. Assign it to `old` in the class body."""

    def read(self: object) -> Any:
        warn_renamed(old, new)
        return getattr(self, new)

    return property(read, doc=f"Deprecated name of `{new}`.")


def renamed_arguments(**names: str) -> Callable[[F], F]:
    """Decorate a function whose keyword arguments were renamed, given as `old="new"`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **(current_names(kwargs, names) if kwargs.keys() & names.keys() else kwargs))

        return call  # type: ignore[return-value]

    return decorate


def renamed_members(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Create a module's `__getattr__` that finds its members by their old names.

    Args:
        module: `__name__` of the module.
        names: New names by old names. A new name with dots is in another module.

    Returns:
        The function to assign to `__getattr__`.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home, _, new = names[name].rpartition(".")
        warn_renamed(f"{module}.{name}", f"{home or module}.{new}")
        return getattr(importlib.import_module(home or module), new)

    return find
