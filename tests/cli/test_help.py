"""Help texts: sentences that start with a capital and end with a period, those of settings with a verb."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import typer.main
from rich.text import Text

from softspin.cli.app import app
from softspin.config import setting_info
from softspin.config.settings import Settings

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_texts_are_sentences(name: str) -> None:
    command = COMMANDS[name]
    visible = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    for text in [command.help or "", *(one.help or "" for one in visible)]:
        assert re.match(r"[A-Za-z].*\.$", " ".join(text.split())), f"{name}: {text!r}"
        assert Text.from_markup(text).plain == text, f"{name}: rich reads brackets as markup: {text!r}"


def test_the_help_of_each_setting_starts_with_a_verb() -> None:
    verbs = {
        "Add", "Average", "Choose", "Compile", "Compute", "Couple", "Decay", "Draw", "Drop", "Flip", "Increase",
        "Initialize", "Mix", "Multiply",
        "Run", "Save", "Set", "Stop", "Train", "Use", "Validate", "Write",
    }  # fmt: skip
    for field in dataclasses.fields(Settings):
        info = setting_info(field.name)
        assert info is not None
        assert info.help.split()[0] in verbs, f"{field.name}: {info.help}"
        assert info.help.endswith("."), f"{field.name}: {info.help}"
