"""Optional packages of single data sets, looked up only when that data set is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from softspin.errors import MissingExtraError


def package_folder(package: str, purpose: str, install: str) -> Path:
    """Find the folder of an installed package without importing it.

    Args:
        package: Name of the package.
        purpose: What needs it, for the message.
        install: Argument for `pip install`.

    Returns:
        The folder.

    Raises:
        MissingExtraError: The package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"{purpose} needs the package {package}: pip install {install}")
    return Path(next(iter(spec.submodule_search_locations)))
