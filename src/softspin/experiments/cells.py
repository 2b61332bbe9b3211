"""Cells of a table: the settings that reproduce one number, read from TOML."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from softspin import paper
from softspin.config import PROFILE_SETTINGS, VERSION, Config, identifying_settings, migrate, setting_info
from softspin.config.toml import read_toml
from softspin.data.condition_inputs import resolved_condition
from softspin.errors import ConfigError, SoftspinError, unknown_name
from softspin.methods import method

OWN_TABLES = Path("experiments")
"""Folder in which tables are looked up by name first."""
PAPER_TABLES = Path(__file__).parent / "tables"
"""The tables of the paper, which come with the package."""


@dataclass(frozen=True)
class Cell:
    """One number of a table: settings without seeds, and the published value.

    >>> cell = Cell("mnist", "2-nonlinear", 1, "dvae#-power", "pa", 30.0, 83.37, 0.02)
    >>> cell.id
    'mnist/2-nonlinear/k1/dvae#-power/pa'
    >>> cell.config(seeds=(0, 1)).replicas
    (Replica(seed=0, beta=30.0), Replica(seed=1, beta=30.0))
    """

    data: str
    structure: str
    k: int
    """Importance samples K of the bound."""
    method: str
    sampler: str
    beta: float | None = None
    """The authors' choice; None for the default, or for methods without a relaxation."""
    nll: float | None = None
    """Published test NLL, if there is one."""
    std: float | None = None
    """Its standard deviation over training runs."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the recipe, such as `("net", "conv")`. Its results are variants of the plain cell."""

    def __post_init__(self) -> None:
        """Take the settings of TOML and JSON as well, so that cells can be compared and hashed."""
        pairs = self.settings.items() if isinstance(self.settings, Mapping) else self.settings
        object.__setattr__(self, "settings", tuple((name, _without_lists(value)) for name, value in pairs))

    @property
    def id(self) -> str:
        """Identifier: data/structure/kK/method/sampler."""
        return f"{self.data}/{self.structure}/k{self.k}/{self.method}/{self.sampler}"

    def config(
        self,
        *,
        seeds: Sequence[int] = (0,),
        steps: int | None = None,
        settings: Iterable[str] = (),
        profile: str = "paper",
    ) -> Config:
        """The recipe of this cell as a config.

        Args:
            seeds: Seeds, which train as replicas of one run.
            steps: Training steps; the whole schedule is scaled. None for those of the cell or the recipe.
            settings: `key=value` texts that override the recipe and the settings of the cell.
            profile: Profile whose values replace those of the recipe; all of the above override them.

        Returns:
            The config. The path of a condition is absolute.

        Raises:
            ConfigError: A setting is invalid.
            UnknownNameError: There is no such profile.
        """
        own: dict[str, Any] = {name: getattr(self, name) for name in ("data", "structure", "method", "sampler", "beta")}
        if steps is not None:
            own["steps"] = steps
        try:
            recipe = _recipe({**own, "importance_samples": self.k, "seeds": tuple(seeds)}, profile)
            changed = {name: value for name, value in self.settings if name != "steps" or steps is None}
            config = recipe.replace(**changed).with_settings(settings)
            return config.replace(condition=resolved_condition(config.condition))
        except SoftspinError as error:
            raise type(error)(f"{self.id}: {error}") from None

    def variant(self, config: Config) -> dict[str, Any]:
        """Settings of a config that differ from the recipe of this cell.

        Args:
            config: A config of this cell.

        Returns:
            Values by name; empty for the recipe itself, with any number of steps.
        """
        recipe = dataclasses.replace(self, settings=()).config(seeds=config.seeds, steps=config.steps).settings()
        own = identifying_settings(config.settings())
        return {name: value for name, value in own.items() if value != recipe.get(name)}

    def matches(self, pattern: str) -> bool:
        """Whether identifier and settings match a pattern.

        >>> cell = Cell("mnist", "2-nonlinear", 1, "dvae#-power", "pa", 30.0, settings=(("net", "conv"),))
        >>> [cell.matches(p) for p in ("mnist/2-*/power*", "k1/net=conv", "mnist/*", "omniglot", "power/mnist")]
        [True, True, True, False, False]

        Args:
            pattern: Parts of the identifier in order, with wildcards, then settings as `name=value` in the order of the
                table; parts, and the prefix `dvae#-`, may be left out.

        Returns:
            True if every part of the pattern matches.
        """
        parts = iter([*self.id.split("/"), *(f"{name}={value}" for name, value in self.settings)])
        return all(any(_part_matches(part, wanted) for part in parts) for wanted in pattern.strip("/").split("/"))


def _without_lists(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    return tuple(_without_lists(one) for one in value) if isinstance(value, list | tuple) else value


def _recipe(own: Mapping[str, Any], profile: str) -> Config:
    """The published recipe with the settings of a cell, without settings that its method does not use.

    Settings that profiles can set are left to another profile than `paper`, which is the recipe.
    """
    settings = migrate(paper.RECIPE)
    used = method(str(own["method"])).used_settings()
    other = {name for name in settings if (info := setting_info(name)) and info.method_only and name not in used}
    kept = {name: value for name, value in settings.items() if name not in other}
    if profile == "paper":
        return Config.from_dict({"version": VERSION, **kept, **own})
    kept = {name: value for name, value in kept.items() if name not in PROFILE_SETTINGS}
    return Config.from_dict({"version": VERSION, **kept, **own, "profile": profile})


def _part_matches(part: str, wanted: str) -> bool:
    return fnmatchcase(part, wanted) or fnmatchcase(part.removeprefix("dvae#-"), wanted)


def check_names(names: Iterable[str]) -> None:
    """Raise for settings that the cell or another option determines.

    Args:
        names: Names of settings.

    Raises:
        ConfigError: A setting cannot be set in a grid.
    """
    for name in names:
        if name == "profile":
            raise ConfigError("profile is no setting of a cell; use --profile")
        info = setting_info(name)
        if info is not None and info.in_grid is not None:
            raise ConfigError(f"{name} cannot be set in a grid; {info.in_grid}")


def find_table(name: str) -> Path:
    """Find the file of a table.

    Args:
        name: Path of a TOML file, name of a table in the folder `experiments`, or a table of the paper.

    Returns:
        The path of the file.

    Raises:
        UnknownNameError: There is no table of this name.
    """
    if name.endswith(".toml"):
        return Path(name)
    for folder in (OWN_TABLES, PAPER_TABLES):
        if (path := folder / f"{name}.toml").is_file():
            return path
    known = sorted({found.stem for folder in (OWN_TABLES, PAPER_TABLES) for found in folder.glob("*.toml")})
    raise unknown_name("table", name, known)


def read_cells(path: Path) -> list[Cell]:
    """Read and validate all cells of a table.

    Args:
        path: A TOML file, see :func:`find_table`.

    Returns:
        The cells, in the order of the file.

    Raises:
        ConfigError: The file cannot be read, or a cell is invalid.
    """
    content = read_toml(path, "table")
    listed = content.get("cells")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"table {path} has no cells; it must be a list: cells = [{{data = ..., ...}}, ...]")
    cells = [_cell(path, number, values) for number, values in enumerate(listed, 1)]
    seen: set[tuple[str, frozenset[tuple[str, Any]]]] = set()
    for cell in cells:
        key = cell.id, frozenset(cell.settings)
        if key in seen:
            raise ConfigError(
                f"table {path} has the cell {cell.id} twice" + " with these settings" * bool(cell.settings)
            )
        seen.add(key)
    return cells


def _cell(path: Path, number: int, values: object) -> Cell:
    where = f"table {path}, cell {number}"
    fields = {field.name: field for field in dataclasses.fields(Cell)}
    if not isinstance(values, dict):
        raise ConfigError(f"{where} is not a table of keys and values")
    for name in values:
        if name not in fields:
            raise type(wrong := unknown_name("key", name, fields))(f"{where}: {wrong}")
    missing = [name for name, field in fields.items() if name not in values and field.default is dataclasses.MISSING]
    if missing:
        raise ConfigError(f"{where} has no '{missing[0]}'")
    for name in ("nll", "std"):
        if not isinstance(values.get(name, 0.0), int | float):
            raise ConfigError(f"{where}: {name} = {values[name]!r} is not a number")
    own = values.get("settings", {})
    if not isinstance(own, dict):
        raise ConfigError(f'{where}: settings = {own!r} is not a table; write settings = {{net = "conv"}}')
    try:
        check_names(name for name in own if name != "steps")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if "/" in str(values["data"]):
        raise ConfigError(f"{where}: data = {values['data']!r} has a slash, which separates the parts of cell names")
    try:
        config = Cell(**values).config()
    except SoftspinError as error:
        raise type(error)(f"table {path}: {error}") from None
    return Cell(**values | {"k": config.importance_samples, "beta": config.beta})


def choose(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """Select cells.

    Args:
        cells: All cells.
        patterns: Patterns, see :meth:`Cell.matches`; none selects all cells.

    Returns:
        Cells that match any of the patterns, in their order.

    Raises:
        ConfigError: No cell matches.
    """
    found = [cell for cell in cells if not patterns or any(cell.matches(pattern) for pattern in patterns)]
    if not found:
        text = " or ".join(f"'{pattern}'" for pattern in patterns)
        raise ConfigError(f"no cell matches {text}; the first of {len(cells)} is called {cells[0].id}")
    return found
