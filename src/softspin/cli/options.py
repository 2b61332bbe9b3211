"""Options that several commands share, and those that are made from the settings of a config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin.config import RENAMED_SETTINGS, option_settings
from softspin.deprecation import warn_renamed

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="Folder of a run, or a shared model: a folder or a .safetensors file.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.", min=0, max=2**31 - 1)]
Replica = Annotated[int, typer.Option(help="Which model of the run, from 0.", min=0)]
Which = Annotated[str, typer.Option(help="Checkpoint: best (by validation NLL) or last.")]
Split = Annotated[str, typer.Option(help="Part of the data: train, valid, test, or all, in the order of a file.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="Other data than the run's, or the same elsewhere: a name, a .npz file (its parts keep their order) or a "
        ".npy file (shuffled and split).",
        show_default=False,
    ),
]
Temperatures = Annotated[
    int | None, typer.Option(help="Temperatures of the annealing for log Z.", min=1, show_default="the run's")
]
Chains = Annotated[int | None, typer.Option(help="Chains of that annealing.", min=2, show_default="the run's")]

NOT_FINISHED = 75
"""The exit code for "try again later", EX_TEMPFAIL of sysexits.h."""

Flags = Mapping[str, str | None]
"""Settings that were given as options, as text."""
NO_FLAGS: Flags = {}


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each setting that is one, with the config's own help; it gets them as `flags`."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "flags"]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(help=info.help, show_default=info.option or False, rich_help_panel="Settings"),
            ],
        )
        for name, info in option_settings().items()
    ]
    old_names = {old: new for old, new in RENAMED_SETTINGS.items() if new in option_settings()}
    options += [
        inspect.Parameter(
            old,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(hidden=True)],
        )
        for old in old_names
    ]

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        flags = {one.name: given.pop(one.name) for one in options}
        for old, new in old_names.items():
            if (text := flags.pop(old)) is not None:
                warn_renamed(f"--{old}", f"--{new.replace('_', '-')}")
                flags[new] = text
        command(**given, flags=flags)

    made = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    with_flags.__signature__ = inspect.Signature([*made, *options])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in [*made, *options]}
    return with_flags
