"""The command line's options and a run's settings as Markdown, read from the code that checks them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer.main

from softspin.cli.app import app
from softspin.config import Config, setting_info
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS
from softspin.typed import Rule, describe


def command_tables() -> str:
    """Every command: what it does, its arguments and options."""
    return "\n".join(_command("softspin", typer.main.get_command(app), level=2))


def _command(path: str, command: Any, level: int) -> list[str]:
    """One command, or the commands of a group."""
    if subcommands := getattr(command, "commands", None):
        return [line for name, one in subcommands.items() for line in _command(f"{path} {name}", one, level)]
    usage = " ".join([path, *(_metavar(one) for one in command.params if one.param_type_name == "argument")])
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    table = ["| option | default | what it does |", "|---|---|---|", *rows]
    return ["#" * level + f" {path}", "", f"`{usage}`", "", *command.help.splitlines(), "", *table, ""]


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _row(one: Any) -> str:
    names = _metavar(one) if one.param_type_name == "argument" else ", ".join(one.opts)
    shown = getattr(one, "show_default", False)
    none = one.default is None or one.default is False or one.default == () or one.param_type_name == "argument"
    default = shown if isinstance(shown, str) else "" if none else str(one.default)
    return f"| `{names}` | {_cell(default)} | {_cell(getattr(one, 'help', None) or '')} |"


def settings_table() -> str:
    """Every key of a config by section: default, what it must be, what it means, whether it changes the result."""
    hints = get_type_hints(Config, include_extras=True)
    lines = ["| key | default | must be | meaning | changes the result |", "|---|---|---|---|---|"]
    section = ""
    for field in dataclasses.fields(Config):
        info = setting_info(field.name)
        if info is None:
            continue
        if info.section != section:
            section = info.section
            lines.append(f"| **{section}** | | | | |")
        right, changes = _cell(_right(hints[field.name])), "no" if info.neutral else "yes"
        lines.append(f"| `{field.name}` | {_default(field.default)} | {right} | {_cell(info.help)} | {changes} |")
    return "\n".join([*lines, *_part_settings()])


def _part_settings() -> list[str]:
    """Settings that single parts add."""
    lines = []
    for registry in (METHODS, NETS, LIKELIHOODS, PRIORS, SAMPLERS):
        for name in registry:
            for key, one in registry.get(name).settings.items():
                text = f"With {registry.kind} = {name}: {one.help}"
                lines.append(f"| `{key}` | {_default(one.default)} | {_cell(_right(one.hint))} | {_cell(text)} | yes |")
    return ["| **of single parts** | | | | |", *lines] if lines else []


def _right(hint: Any) -> str:
    """What a value must be, in the words of the error for one that is not."""
    if get_origin(hint) is Annotated:
        return str(next(one.words for one in get_args(hint) if isinstance(one, Rule)))
    parts = [one for one in get_args(hint) if one is not type(None)]
    return (
        " or ".join(map(_right, parts))
        if get_origin(hint) is not None and type(None) in get_args(hint)
        else describe(hint)
    )


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        value = ", ".join(":".join(f"{x:.3g}" for x in one) if isinstance(one, tuple) else str(one) for one in value)
    return "" if value in (None, "") else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
