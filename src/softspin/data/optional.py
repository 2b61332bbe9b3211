"""Optional packages of single data sets, looked up only when that data set is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from softspin.errors import missing_extra


def package_folder(package: str, purpose: str, extra: str) -> Path:
    """Find the folder of an installed package without importing it.

    Args:
        package: Name of the package.
        purpose: What needs it, for the message.
        extra: The extra that contains the package.

    Returns:
        The folder.

    Raises:
        MissingExtraError: The package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra(f"{purpose} needs the package {package}", extra)
    return Path(next(iter(spec.submodule_search_locations)))
