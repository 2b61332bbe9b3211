"""Build hook: record the git commit in the wheel and the sdist, as `softspin/_build.json`.

`softspin.provenance.commit` reads the file where the package does not run from a git clone. A wheel that is built from
an sdist keeps the record of the sdist. Without either, no file is written and the commit is unknown.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STAMP = "_build.json"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Add the record to what is built."""

    PLUGIN_NAME = "custom"
    folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the record to a temporary folder, so that the source tree stays as it is."""
        if version == "editable":
            return  # runs from the clone, which knows its commit
        root = Path(self.root)
        path = root / "src" / "softspin" / STAMP
        if (found := read_git(root)) is not None:
            self.folder = tempfile.TemporaryDirectory()
            path = Path(self.folder.name, STAMP)
            path.write_text(json.dumps(found), encoding="utf-8")
        elif not path.is_file():
            self.app.display_warning("the commit is unknown: this is neither a git clone nor an sdist built from one")
            return
        inside = "src/softspin" if self.target_name == "sdist" else "softspin"
        build_data["force_include"][str(path)] = f"{inside}/{STAMP}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if self.folder is not None:
            self.folder.cleanup()


def read_git(root: Path) -> dict[str, str | bool] | None:
    """The commit of a clone and whether the package differs from it; None if `root` is not the top of a clone."""
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        # Untracked files count: they are packed too.
        return {"commit": commit, "dirty": bool(_git(root, "status", "--porcelain", "--", "src/softspin"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
