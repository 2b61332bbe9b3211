"""Options shared by several commands, and options generated from the settings of a config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from softspin.config import RENAMED_SETTINGS, SYNONYMS, SettingInfo, setting_infos
from softspin.deprecation import warn_renamed

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any setting; repeatable.", show_default=False),
]
ConfigFile = Annotated[Path | None, typer.Option(help="Read settings from a TOML file.", show_default=False)]
_PROFILES = "quick (minutes on a CPU), paper (the published recipe) or softspin-1 (provisional)."
Profile = Annotated[
    str | None,
    typer.Option(
        help=f"Choose the defaults: {_PROFILES}",
        show_default="paper on mnist and omniglot, else quick",
    ),
]
GridProfile = Annotated[
    str,
    typer.Option(
        "--profile",
        help=f"Choose what cells leave open: {_PROFILES} The table's own data, structure, K, method, sampler, beta and "
        "settings win over the profile, and --steps and --set over both.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Stop after this many minutes with a checkpoint and exit code 75.", min=0, show_default="no limit"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and its estimated time, and train nothing.")]
Measure = Annotated[
    bool,
    typer.Option(
        "--measure", help="With --dry-run: first measure this machine for a few seconds, and remember the result."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Retry what failed before.")]
MaxReplicas = Annotated[
    int,
    typer.Option(
        help="Train at most this many models at once in one run; all seeds of a combination are in one run.", min=1
    ),
]

WHERE = "Where to train"
"""Help group of the options of launchers."""

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="Run directory, or a shared model (a directory or a .safetensors file).", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Device = Annotated[str, typer.Option(help="Run on auto (a GPU if there is one), cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="Set the random seed.", min=0, max=2**31 - 1)]
Replica = Annotated[
    str | None,
    typer.Option(
        help="Choose a replica of the run: a number from 0, or best (by validation NLL).",
        show_default="the best of a grid of beta, else 0",
    ),
]
Replicas = Annotated[
    str, typer.Option("--replica", help="Use all replicas, the best (by validation NLL), or one by number from 0.")
]
Which = Annotated[str, typer.Option(help="Choose the checkpoint: best (by validation NLL) or last.")]
Split = Annotated[str, typer.Option(help="Choose the split: train, valid, test, or all (in the order of the file).")]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="SHAPE",
        help="Draw images of this shape, such as 28x28, or 16x16x3 for colors.",
        show_default="that of the data; flat images as squares",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Use other data than the run's, or the same data in another place: a name, a .npy, .npz, .pt or .csv "
        "file, or a folder of images. Without splits of its own, it is shuffled and split; --split all uses all of it.",
        show_default=False,
    ),
]
Condition = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|VALUE,...",
        help="Read the conditions of the data from this file, or from its labels (labels), or set one for all data "
        "points: a class, or numbers separated by commas.",
        show_default="those of the data",
    ),
]
Given = Annotated[
    str | None,
    typer.Option(
        "--condition",
        metavar="VALUE,...",
        help="Set the condition of a conditional model: a class or its name, or numbers separated by commas.",
        show_default="none",
    ),
]
Temperatures = Annotated[
    int | None, typer.Option(help="Set the number of AIS temperatures for log Z.", min=1, show_default="the run's")
]
Chains = Annotated[
    int | None, typer.Option(help="Set the number of AIS chains for log Z.", min=2, show_default="the run's")
]

LocalOrRay = Annotated[
    str,
    typer.Option("--launcher", help="Train on this machine (local) or on a Ray cluster (ray).", rich_help_panel=WHERE),
]
LauncherName = Annotated[
    str,
    typer.Option(
        "--launcher",
        help="Train on this machine (local), on a Ray cluster (ray), or by a SLURM job (slurm).",
        rich_help_panel=WHERE,
    ),
]
Workers = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Train this many runs at a time, in processes of their own; auto finds the number by measured throughput.",
        rich_help_panel=WHERE,
    ),
]
GpusPerRun = Annotated[
    float | None,
    typer.Option(
        help="Give each run this share of a GPU, such as 0.5.", show_default="no limit", rich_help_panel=WHERE
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Use the Ray cluster at this address.",
        show_default="$RAY_ADDRESS, or one on this machine",
        rich_help_panel=WHERE,
    ),
]

Submit = Annotated[
    bool, typer.Option("--submit", help="Submit the SLURM job, not only write it.", rich_help_panel=WHERE)
]
Sbatch = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION",
        help="Add an option of sbatch to the SLURM job, such as --partition=gpu; repeatable.",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]
Collect = Annotated[
    bool,
    typer.Option(
        "--collect",
        help="Append the rows of runs that SLURM jobs have finished, and train nothing.",
        rich_help_panel=WHERE,
    ),
]

NOT_FINISHED = 75
"""Exit code for "try again later", EX_TEMPFAIL of sysexits.h."""
EXIT_CODES = {"done": 0, "failed": 1, "unfinished": NOT_FINISHED}
"""Exit code of a grid or sweep by its outcome."""

FOREIGN = ("lr", "latent_dim", "hidden", "k", "dataset")
"""Names of settings in other programs that are often tried. More would spoil suggestions for misspellings."""
RECIPE = "recipe"
"""Another name for a profile; `train` has an old option of this name."""

Flags = Mapping[str, str | None]
"""Settings given as options, as text."""
NO_FLAGS: Flags = {}


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each setting, with its help text and section; the command gets those given as `flags`.

    The help shows the common settings. Old names are hidden options that warn; names of other programs are hidden and
    name ours.
    """
    shown = {name: _option(info) for name, info in setting_infos().items()}
    foreign = {*FOREIGN, RECIPE} - inspect.signature(command).parameters.keys()
    hidden = {old: typer.Option(hidden=True) for old in (*RENAMED_SETTINGS, *sorted(foreign))}
    return with_options(command, shown | hidden, _current_flags)


def with_options(
    command: Callable[..., None], options: Mapping[str, Any], read: Callable[[dict[str, str | None]], Flags]
) -> Callable[..., None]:
    """Add options to a command.

    Args:
        command: Command with a parameter `flags`.
        options: Options of typer by name; their values are text.
        read: Converts the values by name, None where none is given, to `flags`.

    Returns:
        The command with the options in place of `flags`.
    """
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "flags"]
    made = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    made += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])
        for name, option in options.items()
    ]

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        flags = read({name: given.pop(name) for name in options})
        command(**given, flags=flags)

    with_flags.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in made}
    return with_flags


def _current_flags(flags: dict[str, str | None]) -> Flags:
    """The options by the current names of settings."""
    for name in (*FOREIGN, RECIPE):
        if flags.pop(name, None) is not None:
            ours = "profile" if name == RECIPE else SYNONYMS[name]
            raise typer.BadParameter(f"here it is called {flag(ours)}", param_hint=flag(name))
    for old, new in RENAMED_SETTINGS.items():
        if (text := flags.pop(old)) is not None:
            if flags[new] is not None:
                raise typer.BadParameter(f"it is the old name of {flag(new)}; give only that", param_hint=flag(old))
            warn_renamed(flag(old), flag(new))
            flags[new] = text
    return flags


def _option(info: SettingInfo) -> Any:
    return typer.Option(
        help=info.help,
        metavar="VALUE",
        show_default=info.option or False,
        rich_help_panel=info.section.capitalize(),
        hidden=info.option is None,
    )


def flag(name: str) -> str:
    """The option of a setting.

    >>> flag("importance_samples")
    '--importance-samples'
    """
    return f"--{name.replace('_', '-')}"
