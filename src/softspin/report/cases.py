"""The cases of a tuning as a table: validation NLL, and the paired difference from the case without changes.

Rows are those of `softspin tune --cases FILE`, in its `validation.jsonl`. FILE names its command in a comment, which
has the settings that all cases share.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from softspin.config import Config
from softspin.config.values import setting_hints
from softspin.errors import ConfigError
from softspin.experiments.combinations import cell_of
from softspin.experiments.planning import keys_of
from softspin.experiments.rows import Key, latest, read_rows
from softspin.experiments.trials import make_space, named_cases
from softspin.report.claims import Difference
from softspin.report.tables import signed

COMMAND = "softspin tune "


class Case(NamedTuple):
    """A case and its results."""

    name: str
    settings: tuple[str, ...]
    nll: Mapping[int, float]
    """Validation NLL by seed."""
    failed: tuple[int, ...] = ()
    """Seeds that failed."""

    def minus(self, other: Case) -> Difference | None:
        """Mean difference over the seeds that both have, with its standard error; None if there are none.

        The error is infinite if there is one seed.
        """
        pairs = [nll - other.nll[seed] for seed, nll in self.nll.items() if seed in other.nll]
        if not pairs:
            return None
        error = stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.inf
        return Difference(fmean(pairs), error, len(pairs) - 1)


def command_of(path: Path) -> str:
    """The command in a comment of a file of cases.

    Args:
        path: The file.

    Raises:
        ConfigError: There is no such comment, or more than one.
    """
    lines = [
        line.removeprefix("#").strip() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"
    ]
    found = [line for line in lines if line.startswith(COMMAND)]
    if len(found) != 1:
        raise ConfigError(f"{path} has {len(found)} comments with a command; write one: # {COMMAND}--cases ...")
    return found[0]


def config_of(command: str) -> Config:
    """The settings that all cases of a command share.

    >>> config_of("softspin tune --cases c.toml --data mnist --steps 70 --seeds 0-1 --rungs 1").seeds
    (0, 1)
    """
    words = shlex.split(command.removeprefix(COMMAND))
    options = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    known = {*setting_hints(), "profile"}
    return Config().with_settings(f"{name}={value}" for name, value in options.items() if name in known)


def read_results(cases: Path, rows: Path) -> list[Case]:
    """The cases of a file with their results, lowest difference from the case without changes first.

    Args:
        cases: File of cases.
        rows: File of rows. Outdated ones are left out.

    Returns:
        All cases; those that cannot be compared are last.

    Raises:
        ConfigError: No case is without changes, or a row belongs to no case.
    """
    named = named_cases(cases)
    space = make_space(config_of(command_of(cases)), [], Path(), cases=list(named.values()), rungs=1)
    found: dict[Key, Case] = {}
    for name, settings in named.items():
        config = space.at(settings, 0)
        key = next(iter(keys_of(cell_of(config), config).values()))
        found[key._replace(seed=0)] = Case(name, settings, {})
    for key, row in latest(one for one in read_rows(rows) if not one.outdated).items():
        case = found.get(key._replace(seed=0))
        if case is None:
            raise ConfigError(
                f"{rows} has a row of no case of {cases}: {row.cell}, {row.steps:,} steps, {dict(row.variant)}"
            )
        if row.valid_nll is None:
            found[key._replace(seed=0)] = case._replace(failed=(*case.failed, row.seed))
        else:
            found[key._replace(seed=0)] = case._replace(nll={**case.nll, row.seed: row.valid_nll})
    results = [*found.values()]
    return sorted(results, key=lambda case: _order(case, reference(results)))


def reference(cases: Sequence[Case]) -> Case:
    """The case without changes."""
    plain = next((case for case in cases if not case.settings), None)
    if plain is None:
        raise ConfigError("no case is without changes, such as: all = []; the others are compared with it")
    return plain


def _order(case: Case, plain: Case) -> float:
    less = case.minus(plain)
    return math.inf if less is None else less.value


def cases_table(cases: Sequence[Case], seeds: int) -> str:
    """Cases as a Markdown table.

    Args:
        cases: Cases, one of them without changes.
        seeds: Number of seeds that each case should have.

    Returns:
        One line for each case: mean and standard deviation of the validation NLL over seeds, the paired difference
        from the case without changes with its standard error and its z-score, and the number of seeds.
    """
    plain = reference(cases)
    lines = [f"| case | settings | validation NLL | minus `{plain.name}` | seeds |", "|---|---|---|---|---|"]
    for case in cases:
        settings = ", ".join(f"`{text}`" for text in case.settings)
        less = "" if case is plain else _difference_text(case.minus(plain))
        lines.append(f"| `{case.name}` | {settings} | {_nll_text(case)} | {less} | {_seeds_text(case, seeds)} |")
    return "\n".join(lines)


def _nll_text(case: Case) -> str:
    nll = [*case.nll.values()]
    if not nll:
        return "failed" if case.failed else "not run yet"
    return f"{fmean(nll):.2f}" + (f" ± {stdev(nll):.2f}" if len(nll) > 1 else "")


def _difference_text(less: Difference | None) -> str:
    if less is None:
        return ""
    if math.isinf(less.error):
        return f"{signed(less.value, 3)}, spread unknown"
    return f"{signed(less.value, 3)} ± {less.error:.3f} ({signed(less.apart, 1)} SE)"


def _seeds_text(case: Case, seeds: int) -> str:
    shown = str(seeds) if len(case.nll) == seeds else f"{len(case.nll)} of {seeds}"
    return shown + (f"; failed: {', '.join(map(str, case.failed))}" if case.failed else "")
