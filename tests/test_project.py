"""How extras are installed is written in one place, and every extra that is named exists."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from softspin.project import home, install_command, install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
TEXT = (".py", ".md", ".ipynb", ".toml", ".html")
LAST_RELEASES = {"CHANGELOG.md", "docs/development/log.md"}
"""Files that report what was true at their time."""


def committed(*endings: str) -> list[Path]:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in found if name.endswith(endings) and name not in LAST_RELEASES]


def test_no_text_installs_from_a_package_index() -> None:
    """There is no release yet, so such a command fails."""
    wrong = re.compile(r"pip install +['\"]?softspin")
    files = [path for path in committed(*TEXT) if path != Path(__file__)]
    assert len(files) > 100
    assert [path for path in files if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_the_readme_has_the_command() -> None:
    assert install_command("digits", "fast", "plot") in (ROOT / "README.md").read_text(encoding="utf-8")


def test_errors_and_pages_name_extras_that_exist() -> None:
    """The names are read from the source: the last arguments of `missing_extra`, and the commands of the pages."""
    named = set()
    for path in committed(".py"):
        if "src" not in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "missing_extra":
                named |= {one.value for one in node.args[1:] if isinstance(one, ast.Constant)}
    for path in committed(".md"):
        for found in re.findall(r"pip install -e '\.\[(.+?)\]'", path.read_text(encoding="utf-8")):
            named |= set(found.split(","))
    assert {"plot", "fast", "dwave", "hub", "tensorboard"} <= named <= EXTRAS


def test_how_to_install_is_readable_in_a_clone() -> None:
    """The README leads to these pages before there is a site, so they have no text that only a build replaces."""
    page = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    assert "{{" not in page
    assert install_command("digits", "fast", "plot") in page
    table = re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
    wanted = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in ("dev", "docs")}
    assert {name: re.findall(r"`(.+?)`", needs) for name, needs in table} == wanted
    for other in committed(".md"):
        assert not re.search(r"\{\{ (install|extras)\(", other.read_text(encoding="utf-8")), other


def test_a_hint_is_one_line_that_ends_in_the_command() -> None:
    hint = install_hint("plot")
    assert "\n" not in hint
    assert hint.endswith(install_command("plot"))


def test_the_address_is_that_of_the_package() -> None:
    """An address is stated only if `pyproject.toml` has it too."""
    assert home() in {None, *PROJECT.get("urls", {}).values()}


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (None, None),
        ([], None),
        (["Homepage, https://example.org"], "https://example.org"),
        (["Documentation, https://b.org", "Source, https://a.org"], "https://a.org"),
        (["Homepage, javascript:alert(1)", "Changelog, https://c.org"], None),
    ],
)
def test_the_address_is_read_from_the_metadata(
    lines: list[str] | None, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lines is not None:
        (tmp_path / "softspin-1.0.dist-info").mkdir()
        urls = "".join(f"Project-URL: {line}\n" for line in lines)
        (tmp_path / "softspin-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: softspin\nVersion: 1.0\n{urls}"
        )
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert home.__wrapped__() == address
