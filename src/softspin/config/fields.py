"""Types of settings with their limits, and the metadata of a setting."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from softspin.typed import Rule

Count = Annotated[int, Rule("an integer from 1 to 2147483647", lambda v: 1 <= v < 2**31)]
Several = Annotated[int, Rule("an integer from 2 to 2147483647", lambda v: 2 <= v < 2**31)]
Natural = Annotated[int, Rule("an integer from 0 to 2147483647", lambda v: 0 <= v < 2**31)]
Positive = Annotated[float, Rule("a finite number above 0", lambda v: v > 0)]
NotNegative = Annotated[float, Rule("a finite number from 0 to 1e38", lambda v: 0 <= v <= 1e38)]
Share = Annotated[float, Rule("a number from 0 to 1", lambda v: 0 <= v <= 1)]
BelowOne = Annotated[float, Rule("a number from 0 to below 1", lambda v: 0 <= v < 1)]
UpToHalf = Annotated[float, Rule("a number from 0 to 0.5", lambda v: 0 <= v <= 0.5)]
Inside = Annotated[float, Rule("a number above 0 and below 1", lambda v: 0 < v < 1)]
Clamp = Annotated[float, Rule("0 (exact) or small, such as 1e-7 (the authors' program)", lambda v: 0 <= v < 0.5)]
Seeds = Annotated[
    tuple[Natural, ...],
    Rule(
        "one or more different integers from 0 to 2147483647, as in 0-4 or (0, 1, 2)",
        lambda v: 0 < len(v) == len(set(v)),
    ),
]
Betas = Annotated[tuple[Positive, ...], Rule("different finite numbers above 0, as in 20,30,40", lambda v: True)]
T = TypeVar("T")
PerReplica: TypeAlias = T | tuple[T, ...]
"""One value for all replicas, or a list with one value for each variant."""
LateCount = Annotated[
    tuple[Share, Count],
    Rule("a share of the steps and an integer from 1, as in 0.85:100", lambda v: True),
]
LateName = Annotated[
    tuple[Share, str], Rule("a share of the steps and the name of a sampler, as in 0.6:pt", lambda v: True)
]
Schedule = Annotated[
    tuple[tuple[NotNegative, NotNegative], ...],
    Rule(
        "pairs (share of the steps, factor) with shares that rise to 1, as in 0.02:0.1,0.6:1,1:0.1",
        lambda v: len(v) > 0 and v[-1][0] == 1 and all(a < b for (a, _), (b, _) in zip(((0, 0), *v), v, strict=False)),
    ),
]
Pairs = Annotated[tuple[tuple[Natural, Natural], ...], Rule("pairs of units, as in 0:1,1:2", lambda v: True)]
Filled = Annotated[str, Rule("a name or a path", lambda v: v.strip() != "")]
Device = Annotated[
    str, Rule("auto, cpu, cuda or cuda:N", lambda v: re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", v) is not None)
]


class SettingInfo(NamedTuple):
    """Metadata of a setting, besides its type and default."""

    help: str
    section: str
    neutral: bool
    """Whether it changes the result by rounding at most. A resumed run may change it, and it makes no variant."""
    in_grid: str | None
    """For a setting fixed by the cells of a table: what to do in a grid instead of setting it."""
    option: str | None
    """Default shown by `softspin train --help`; None if the help leaves the setting out."""
    method_only: bool
    """Whether only methods that list it in `used_settings` have it; with others it must keep its default."""


def setting(
    default: Any,
    help: str,
    *,
    section: str,
    neutral: bool = False,
    in_grid: str | None = None,
    option: str | None = None,
    method_only: bool = False,
) -> Any:
    """A field of the config with its metadata; the arguments are those of :class:`SettingInfo`."""
    info = SettingInfo(help, section, neutral, in_grid, option, method_only)
    return dataclasses.field(default=default, metadata={"setting": info})
