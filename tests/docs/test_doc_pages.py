"""Examples in the documentation and the README: Python code runs, commands and options exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from softspin.cli.app import app
from softspin.config.values import setting_infos
from softspin.paper import METHODS
from softspin.parts import LIKELIHOODS
from softspin.structures import STRUCTURES

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name not in ("log.md", "results.md"))
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
"""A block of Python, and what it prints where the page shows that."""
FENCED = re.compile(r"^```(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""Any block, with its language: a pattern for blocks without one would begin at the end of another block."""


def shell_lines(path: Path) -> list[str]:
    """The commands in the fenced blocks of a page, or of the text of a notebook; of torchrun, those that it starts."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "markdown")
    shell = [block for language, block in FENCED.findall(text) if not language]
    lines = [line for block in shell for line in block.replace("\\\n", "").splitlines()]
    return [line[line.index("softspin ") :] for line in lines if re.match(r"softspin |torchrun .* -m softspin ", line)]


COMMANDS = [
    pytest.param(line, id=f"{path.stem}: {line.partition(' #')[0].strip()}")
    for path in [ROOT / "README.md", *PAGES, *(ROOT / "docs/tutorials").glob("*.ipynb")]
    for line in shell_lines(path)
]


@pytest.mark.filterwarnings("ignore:the gray levels of train are bytes")  # as users of such data see it
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda p: str(p.stem))
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of one page, one after another; each prints what the page shows below it."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    for block, output in PYTHON.findall(page.read_text()):
        capsys.readouterr()
        exec(compile(block, page.name, "exec"), scope)
        assert not output or capsys.readouterr().out == output


def test_the_structures_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\d-\w+)`[^|]*\|(.*)\|$", (ROOT / "docs/concepts/methods.md").read_text(), re.MULTILINE)
    stated = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    assert set(stated) == set(STRUCTURES)
    for name, size in STRUCTURES.items():
        half = size.units // 2
        counts = [size.groups, size.bits_per_group, size.units, f"{half} x {half}", size.layers]
        assert stated[name] == [*map(str, counts), str(size.width) if size.layers else ""]


def test_the_methods_of_the_page_are_those_of_the_paper() -> None:
    text = (ROOT / "docs/concepts/methods.md").read_text()
    assert tuple(re.findall(r"^\| `(dvae\S+)`", text, re.MULTILINE)) == METHODS


def test_the_help_and_the_page_name_every_likelihood() -> None:
    table = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs/howto/likelihoods.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted([*LIKELIHOODS, "likelihood"])  # the first is the heading
    described = setting_infos()["likelihood"].help
    assert [name for name in LIKELIHOODS if not re.search(rf"(?<![\w-]){name}(?![\w-])", described)] == []


def check(line: str) -> None:
    """Raise unless the command line has this command, with these options and as many arguments."""
    _, *words = shlex.split(line, comments=True)
    command: Any = typer.main.get_command(app)
    context = command.make_context("softspin", [], resilient_parsing=True)
    while hasattr(command, "commands"):
        name, words = words[0], words[1:]
        command = command.commands[name]
        context = type(context)(command, parent=context, info_name=name)
    _, left, _ = command.make_parser(context).parse_args(args=words)
    assert not left, f"too many arguments: {left}"


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_those_of_the_command_line(line: str) -> None:
    check(line)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("softspin trian", "trian"),
        ("softspin train --sample 3", "No such option"),
        ("softspin info a b", "too many arguments"),
        ("softspin logz --temperatures", "requires an argument"),
    ],
)
def test_a_wrong_command_is_detected(wrong: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        check(wrong)


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 30
