"""Old names that still work for one version, each with a warning that names the new one."""

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

    A FutureWarning, because Python hides a DeprecationWarning from most users.
    """
    warnings.warn(
        f"'{old}' is now called '{new}'; the old name will be removed in softspin {REMOVED_IN}",
        FutureWarning,
        stacklevel=stacklevel,
    )


def current_names(values: Mapping[str, Any], names: Mapping[str, str], stacklevel: int = 4) -> dict[str, Any]:
    """The mapping with its old keys renamed.

    Args:
        values: Values by old or new names.
        names: New names by old ones.
        stacklevel: As of `warnings.warn`, counted from :func:`warn_renamed`.

    Returns:
        A copy of `values` with new names only.

    Raises:
        TypeError: A value is given by its old and its new name.
    """
    found = dict(values)
    for old, new in names.items():
        if old in found:
            if new in found:
                raise TypeError(f"'{old}' and '{new}' are one and the same; give '{new}' alone")
            warn_renamed(old, new, stacklevel)
            found[new] = found.pop(old)
    return found


def renamed_attribute(old: str, new: str) -> Any:
    """A property that returns the attribute `new`; assign it to `old` in the class body."""

    def read(self: object) -> Any:
        warn_renamed(old, new)
        return getattr(self, new)

    return property(read, doc=f"Deprecated name of `{new}`.")


def renamed_arguments(**names: str) -> Callable[[F], F]:
    """A decorator of functions whose keyword arguments were renamed, as `old="new"`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **(current_names(kwargs, names) if kwargs.keys() & names.keys() else kwargs))

        return call  # type: ignore[return-value]

    return decorate


def renamed_members(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds its members by their old names.

    Args:
        module: `__name__` of the module.
        names: New names by old ones. A new name with dots is one of another module.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home, _, new = names[name].rpartition(".")
        warn_renamed(f"{module}.{name}", f"{home or module}.{new}")
        return getattr(importlib.import_module(home or module), new)

    return find
