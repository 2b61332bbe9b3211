"""Packages that only one data set needs: looked for when that set is asked for, never at import."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from softspin.errors import MissingExtraError


def package_folder(package: str, purpose: str, install: str) -> Path:
    """The folder of an installed package, found without importing it.

    Raises MissingExtraError, which says how to install it, when it is not there.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"{purpose} needs the package {package}: pip install {install}")
    return Path(next(iter(spec.submodule_search_locations)))
