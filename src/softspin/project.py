"""Where softspin is found, and how its extras are installed. Everything that a public release changes is here."""

from __future__ import annotations

import functools
from importlib import metadata

ADDRESSES = ("homepage", "source", "repository", "documentation")
"""Labels of addresses in the metadata of a package, the preferred one first."""
DOCUMENTATION = "Its documentation is in the folder docs of its source code; softspin --help lists the commands."
"""Where to read on, for texts that leave the project while it has no address."""


@functools.cache
def home() -> str | None:
    """Web address of the project, as the metadata of the installed package have it (`urls` in pyproject.toml).

    Returns:
        The address; None if the package is not installed or has none. Pages and cards then name softspin without a
        link.
    """
    try:
        lines = metadata.metadata("softspin").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    pairs = (line.partition(",")[::2] for line in lines)
    urls = {label.strip().lower(): address.strip() for label, address in pairs}
    known = (urls.get(label, "") for label in ADDRESSES)
    return next((address for address in known if address.startswith(("https://", "http://"))), None)


def install_command(*extras: str) -> str:
    """The command that installs extras. Before the first release on a package index, it works in a clone only.

    Args:
        extras: Names of the extras; without any, the package alone is installed.

    Returns:
        The command.

    Example:
        >>> print(install_command("fast", "plot"))
        pip install -e '.[fast,plot]'
        >>> print(install_command())
        pip install -e .
    """
    return f"pip install -e '.[{','.join(extras)}]'" if extras else "pip install -e ."


def install_hint(*extras: str) -> str:
    """How to install extras, for the end of an error message.

    Args:
        extras: Names of the extras.

    Returns:
        The place and the command.

    Example:
        >>> print(install_hint("plot"))
        in a clone of softspin, run: pip install -e '.[plot]'
    """
    return f"in a clone of softspin, run: {install_command(*extras)}"
