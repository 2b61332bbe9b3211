"""Where softspin is found, and how its extras are installed. Everything that a public release changes is here."""

from __future__ import annotations

HOME: str | None = None
"""Web address of the project. While it is None, pages and cards name softspin without a link."""


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
