"""Reading TOML files that people write; every mistake is a ConfigError in one line."""

from __future__ import annotations

import os
import tomllib
from typing import Any

from softspin.errors import ConfigError

MAX_BYTES = 10_000_000
"""Maximum size of a file; the published tables have less than a hundredth of it."""


def read_toml(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: The file.
        kind: What it is, for messages, such as "config file".

    Returns:
        Its values.

    Raises:
        ConfigError: The file is missing, cannot be read, is too large, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{kind} {path} is larger than {MAX_BYTES:,} bytes; is it TOML?")
        return tomllib.loads(content.decode())
    except FileNotFoundError:
        raise ConfigError(f"no {kind} {path}") from None
    except OSError as error:
        raise ConfigError(f"{kind} {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{kind} {path} is not TOML of settings: its values are nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:  # not TOML or UTF-8, an integer too long to read, or a null character in the path
        raise ConfigError(f"{kind} {path} is not TOML: {' '.join(str(error).split())[:200]}") from None
