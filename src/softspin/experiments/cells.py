"""Cells: what one number of a table takes to reproduce, read from TOML."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from softspin import paper
from softspin.config import VERSION, Config, is_neutral, migrate, setting_info
from softspin.errors import ConfigError, SoftspinError, unknown_name
from softspin.methods import method

PLACE = Path("experiments")
"""Where tables are looked for by name: the folder of that name in a checkout."""


@dataclass(frozen=True)
class Cell:
    """One number of a table: a config without seeds, and the value in print.

    >>> cell = Cell("mnist", "2-nonlinear", 1, "dvae#-power", "pa", 30.0, 83.37, 0.02)
    >>> cell.id
    'mnist/2-nonlinear/k1/dvae#-power/pa'
    >>> cell.config(seeds=(0, 1)).replicas
    (Replica(seed=0, beta=30.0), Replica(seed=1, beta=30.0))
    """

    data: str
    structure: str
    k: int
    """Samples K of the bound."""
    method: str
    sampler: str
    beta: float | None = None
    """The authors' choice; None is the default, or none at all for methods without a relaxation."""
    nll: float | None = None
    """Test NLL in print, if there is one."""
    std: float | None = None
    """Its standard deviation over training runs."""

    @property
    def id(self) -> str:
        """data/structure/kK/method/sampler."""
        return f"{self.data}/{self.structure}/k{self.k}/{self.method}/{self.sampler}"

    def config(self, *, seeds: Sequence[int] = (0,), steps: int | None = None, settings: Iterable[str] = ()) -> Config:
        """The recipe for this cell; other steps scale its whole schedule, `key=value` settings make a variant."""
        own: dict[str, Any] = {name: getattr(self, name) for name in ("data", "structure", "method", "sampler", "beta")}
        if steps is not None:
            own["steps"] = steps
        try:
            return _recipe({**own, "importance_samples": self.k, "seeds": tuple(seeds)}).with_settings(settings)
        except SoftspinError as error:
            raise type(error)(f"{self.id}: {error}") from None

    def variant(self, config: Config) -> dict[str, Any]:
        """Settings of a config of this cell that are not the recipe's; {} is the recipe, of whatever length."""
        recipe = self.config(seeds=config.seeds, steps=config.steps).settings()
        return {
            name: value
            for name, value in config.settings().items()
            if value != recipe.get(name) and not is_neutral(name)
        }

    def matches(self, pattern: str) -> bool:
        """Whether parts of the id match those of the pattern, in order; parts may be left out, and `dvae#-` too.

        >>> cell = Cell("mnist", "2-nonlinear", 1, "dvae#-power", "pa", 30.0)
        >>> [cell.matches(p) for p in ("mnist/2-*/power*", "k1", "mnist/*", "omniglot", "power/mnist")]
        [True, True, True, False, False]
        """
        parts = iter(self.id.split("/"))
        return all(any(_part_matches(part, wanted) for part in parts) for wanted in pattern.strip("/").split("/"))


def _recipe(own: Mapping[str, Any]) -> Config:
    """The published recipe with a cell's own settings; those that only other methods have are left out."""
    settings = migrate(paper.RECIPE)
    used = method(str(own["method"])).used_settings()
    other = {name for name in settings if (info := setting_info(name)) and info.method_only and name not in used}
    kept = {name: value for name, value in settings.items() if name not in other}
    return Config.from_dict({"version": VERSION, **kept, **own})


def _part_matches(part: str, wanted: str) -> bool:
    return fnmatchcase(part, wanted) or fnmatchcase(part.removeprefix("dvae#-"), wanted)


def check_settings(settings: Iterable[str]) -> None:
    """Raise for settings that a cell or another option has the say in."""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        info = setting_info(name)
        if info is not None and info.in_grid is not None:
            raise ConfigError(f"{name} cannot be set in a grid; {info.in_grid}")


def find_table(name: str) -> Path:
    """The file of a table: a path to TOML, or a name in the checkout's `experiments` folder."""
    if name.endswith(".toml"):
        return Path(name)
    path = PLACE / f"{name}.toml"
    if path.is_file():
        return path
    known = sorted(found.stem for found in PLACE.glob("*.toml"))
    if known:
        raise unknown_name("table", name, known)
    raise ConfigError(f"no table '{name}': there is no {path} here; go to a checkout, or give the path of a TOML file")


def read_cells(path: Path) -> list[Cell]:
    """All cells of a table, in its order; every one is checked."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"table {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"table {path} is not TOML: {error}") from None
    listed = content.get("cells")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"table {path} has no cells; it must be a list: cells = [{{data = ..., ...}}, ...]")
    cells = [_cell(path, number, values) for number, values in enumerate(listed, 1)]
    seen: set[str] = set()
    for cell in cells:
        if cell.id in seen:
            raise ConfigError(f"table {path} has the cell {cell.id} twice")
        seen.add(cell.id)
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
    if "/" in str(values["data"]):
        raise ConfigError(f"{where}: data = {values['data']!r} has a slash, which parts the names of cells")
    try:
        config = Cell(**values).config()
    except SoftspinError as error:
        raise type(error)(f"table {path}: {error}") from None
    return Cell(**values | {"k": config.importance_samples, "beta": config.beta})


def choose(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """Cells that match any of the patterns, in their order; all, if there is none. Nothing found is an error."""
    found = [cell for cell in cells if not patterns or any(cell.matches(pattern) for pattern in patterns)]
    if not found:
        text = " or ".join(f"'{pattern}'" for pattern in patterns)
        raise ConfigError(f"no cell matches {text}; the first of {len(cells)} is called {cells[0].id}")
    return found
