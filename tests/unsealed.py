"""Remove the seals of JSON files, so that tests can edit them."""

from __future__ import annotations

import json
from pathlib import Path


def unseal(path: Path) -> Path:
    """The file without its seals, which was `run.json` or `result.json`."""
    content = json.loads(path.read_text())
    for one in content if isinstance(content, list) else [content]:
        del one["seal"]
    path.write_text(json.dumps(content, indent=1))
    return path
