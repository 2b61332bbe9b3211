"""The committed plans of tools/lanes.py: programs, tables and options exist, and no lane waits in vain."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import softspin
from softspin.cli.app import app
from softspin.experiments.cells import find_table, read_cells

ROOT = Path(softspin.__file__).parents[2]
PLANS = sorted((ROOT / "benchmarks").glob("lanes*.toml"))
OPERATORS = re.compile(r"[;&|()]+")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="lanes are for Linux")


def plan(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def programs(command: str) -> Iterator[list[str]]:
    """Words after `python` in each part of a shell command.

    >>> [*programs("for i in 1 2; do python -m a --b 'c d'; done; timeout 3 python e.py && touch f")]
    [['-m', 'a', '--b', 'c d'], ['e.py']]
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[list[str]] = [[]]
    for word in lexer:
        if OPERATORS.fullmatch(word):
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        if "python" in part:
            yield part[part.index("python") + 1 :]


def all_programs() -> list[tuple[str, ...]]:
    commands = [command for path in PLANS for lane in plan(path)["lane"] for command in lane["commands"]]
    return sorted({tuple(words) for command in commands for words in programs(command)})


GRIDS = [words[2:] for words in all_programs() if words[:3] == ("-m", "softspin", "grid")]
OTHERS = [words for words in all_programs() if words[:3] != ("-m", "softspin", "grid")]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_keys_names_and_shell(path: Path) -> None:
    found = plan(path)
    assert {"lane"} <= set(found) <= {"mps", "keep", "lane"}
    assert isinstance(found.get("mps", False), bool)
    assert found["keep"]
    assert all(isinstance(pattern, str) for pattern in found["keep"])
    names = [lane["name"] for lane in found["lane"]]
    assert len(set(names)) == len(names)
    for lane in found["lane"]:
        assert set(lane) == {"name", "commands"}
        assert lane["commands"]
        for command in lane["commands"]:
            assert set(re.findall(r"(?<!\$)\{(.*?)\}", command)) <= {"alone", "state"}, command
            checked = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True, check=False)
            assert (checked.returncode, checked.stderr) == (0, ""), command


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_what_a_lane_waits_for_is_the_last_command_of_another(path: Path) -> None:
    lanes = plan(path)["lane"]
    awaited = {name for lane in lanes for name in re.findall(r"test -e (\{state\}/[\w.-]+)", str(lane["commands"]))}
    assert awaited == {last.split()[1] for lane in lanes if (last := lane["commands"][-1]).startswith("touch ")}


def test_the_plans_have_programs_of_each_kind() -> None:
    assert len(PLANS) >= 2
    assert len(GRIDS) >= 5
    assert {Path(words[0]).name for words in OTHERS} >= {"gpu_estimators.py", "step_times.py", "gpu_tiles.py"}


@pytest.mark.parametrize("words", GRIDS, ids=lambda words: f"{words[1]}-{GRIDS.index(words)}")
def test_a_grid_can_be_planned_and_its_patterns_match(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = read_cells(find_table(words[1]))
    patterns = [words[at + 1] for at, word in enumerate(words) if word == "--only"]
    assert patterns
    for pattern in patterns:
        assert any(cell.matches(pattern) for cell in cells), pattern
    found = CliRunner().invoke(app, [*words, "--dry-run", "--device", "cuda"])
    assert found.exit_code == 0, found.output


@cache
def help_of(words: tuple[str, ...]) -> str:
    found = subprocess.run(
        [sys.executable, *words, "--help"], capture_output=True, text=True, check=False, cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: f"{Path(words[0]).stem}-{OTHERS.index(words)}")
def test_programs_exist_and_have_the_options(words: tuple[str, ...]) -> None:
    if words[0] != "-m":
        assert (ROOT / words[0]).is_file()
    text = help_of(tuple(takewhile(lambda word: not word.startswith("--"), words)))
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert [option for option in sorted(options) if not re.search(rf"(?<![\w-]){option}(?![\w-])", text)] == []
