"""The command line's options and a run's settings as Markdown, read from the code that checks them."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer.main

from softspin.cli.app import app
from softspin.config import PROFILES, Config, setting_info
from softspin.config.fields import SettingInfo
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS
from softspin.structures import Shape
from softspin.typed import Rule, describe


def command_tables() -> str:
    """Every command: what it does, its arguments and options."""
    return "\n".join(_command("softspin", typer.main.get_command(app), level=2))


def _command(path: str, command: Any, level: int) -> list[str]:
    """One command, or the commands of a group."""
    if subcommands := getattr(command, "commands", None):
        shown = {name: one for name, one in subcommands.items() if not one.hidden}
        return [line for name, one in shown.items() for line in _command(f"{path} {name}", one, level)]
    usage = " ".join([path, *(_metavar(one) for one in command.params if one.param_type_name == "argument")])
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    table = ["| option | default | what it does |", "|---|---|---|", *rows]
    return ["#" * level + f" {path}", "", f"`{usage}`", "", *command.help.splitlines(), "", *_stacked(table), ""]


def _stacked(table: list[str]) -> list[str]:
    """A table that becomes a list on a phone."""
    return ['<div class="stacked settings">', "", *table, "", "</div>"]


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _row(one: Any) -> str:
    names = _metavar(one) if one.param_type_name == "argument" else ", ".join(one.opts)
    shown = getattr(one, "show_default", False)
    none = one.default is None or one.default is False or one.default == () or one.param_type_name == "argument"
    default = shown if isinstance(shown, str) else "" if none else str(one.default)
    return f"| `{names}` | {_cell(default)} | {_cell(getattr(one, 'help', None) or '')} |"


HEAD = ["| setting | default | meaning | allowed values |", "|---|---|---|---|"]


def settings_table() -> str:
    """All settings, one table per section: default, meaning and allowed values."""
    hints = get_type_hints(Config, include_extras=True)
    sections: dict[str, list[str]] = {}
    for field in dataclasses.fields(Config):
        info = setting_info(field.name)
        if info is not None:
            meaning = f"{info.help} *(may change on resume)*" if info.neutral else info.help
            lines = sections.setdefault(info.section, [])
            lines.append(_setting(field.name, _default(field.name, field.default, info), meaning, hints[field.name]))
    sections["settings of single parts"] = _part_settings()
    return "\n".join(
        line
        for name, rows in sections.items()
        for line in ["", f"## {name.capitalize()}", "", *_stacked([*HEAD, *rows])]
    )


def profile_table(profile: str = "quick") -> str:
    """The settings of a profile, next to those of the recipe."""
    recipe = Config()
    rows = [
        f"| `{name}` | {_value((value,) if isinstance(value, tuple) else value)} | {_value(getattr(recipe, name))} |"
        for name, value in PROFILES[profile].items()
    ]
    return "\n".join([f"| setting | `{profile}` | `paper` |", "|---|---|---|", *rows])


def _part_settings() -> list[str]:
    """Settings that single parts add."""
    return [
        _setting(key, _value(one.default), f"With {registry.kind} = {name}: {one.help}", one.hint)
        for registry in (METHODS, NETS, LIKELIHOODS, PRIORS, SAMPLERS)
        for name in registry
        for key, one in registry.get(name).settings.items()
    ]


def _setting(name: str, default: str, meaning: str, hint: Any) -> str:
    return f"| `{name}` | {default} | {_cell(meaning)} | {_cell(_limits(name, hint))} |"


def _limits(name: str, hint: Any) -> str:
    """The allowed values of a setting; for a part, the registered names."""
    registry = next((one for one in (METHODS, NETS, LIKELIHOODS, PRIORS, SAMPLERS) if one.kind == name), None)
    if registry is not None:
        return "[a method](methods.md)" if registry is METHODS else ", ".join(f"`{one}`" for one in registry)
    if name == "structure":
        return "[a structure](structures.md)"
    # The largest integer is a limit of the file format and of no use to a reader.
    return re.sub(r"an integer from (\d+) to 2147483647", r"integer, \1 or more", _allowed(hint))


def _allowed(hint: Any) -> str:
    """The allowed values of a type, as error messages describe them."""
    if get_origin(hint) is Annotated:
        return str(next(one.description for one in get_args(hint) if isinstance(one, Rule)))
    parts = [one for one in get_args(hint) if one is not type(None)]
    if get_origin(hint) is not None and type(None) in get_args(hint):
        return " or ".join(map(_allowed, parts))
    return describe(hint)


def _default(name: str, value: Any, info: SettingInfo) -> str:
    """The default value, or a description if it depends on other settings."""
    if value is None and name in Shape._fields:
        return "from `structure`"
    if value is None:
        found = re.search(r"default (.+?)\.?$", info.help)
        return info.option or (found[1] if found else "")
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        value = ", ".join(":".join(map(_short, one)) if isinstance(one, tuple) else str(one) for one in value)
    return "" if value in (None, "") else f"`{value}`"


def _short(number: float) -> str:
    """Three digits of a share or factor; all digits of a count."""
    return f"{number:.3g}" if isinstance(number, float) else str(number)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
