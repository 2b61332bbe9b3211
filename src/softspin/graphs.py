"""Which bits of a prior are coupled: edges from a text, from a file, or cut out of a D-Wave processor's graph."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from softspin.errors import ConfigError, MissingExtraError, unknown_name

Edges = tuple[tuple[int, int], ...]
LATTICES = ("chimera", "pegasus", "zephyr")
LARGEST = 32
"""Size of a lattice at most; the largest processors have 16."""
MOST_UNITS = 10_000
"""Of a graph: its couplings are kept as a square matrix, which a few edges in a stranger's file could make huge."""


class Lattice(NamedTuple):
    """A part of a processor's graph."""

    edges: Edges
    """Pairs of units, from 0."""
    nodes: tuple[int, ...]
    """The node of each unit: `labels` of a sampler that has these nodes."""


def read_edges(text: str, units: int) -> Any:
    """Pairs of units from `zephyr:2` and the like, a .json file with a list of pairs, or a text such as `0:1,1:2`.

    They are plain data, as they came; :func:`checked_edges` is for whoever uses them.

    >>> read_edges("0:1, 1:2", 3)
    [[0, 1], [1, 2]]
    """
    text = text.strip()
    if named := re.fullmatch(r"([A-Za-z_]+):([0-9]+)", text):
        return lattice(named[1].lower(), int(named[2]), units).edges
    if text.endswith(".json"):
        try:
            return json.loads(Path(text).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"graph file {text} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"graph file {text} is not JSON: {error}") from None
    pairs = [re.fullmatch(r"\s*([0-9]+)\s*:\s*([0-9]+)\s*", part) for part in text.split(",")]
    if not all(pairs):
        raise ConfigError(
            f"graph = '{text[:60]}' is not possible; it must be pairs of units as in 0:1,1:2, a .json file with a list "
            f"of pairs, or one of {', '.join(LATTICES)} with a size as in zephyr:2"
        )
    return [[int(pair[1]), int(pair[2])] for pair in pairs if pair]


def checked_edges(edges: Iterable[tuple[int, int]], units: int) -> Edges:
    """The edges, smaller unit first and in order; an error unless they join each unit to another, and no pair twice.

    >>> checked_edges([(2, 1), (0, 1)], 3)
    ((0, 1), (1, 2))
    """
    if units > MOST_UNITS:
        raise ConfigError(f"graph of groups x bits = {units:,} units is not possible; at most {MOST_UNITS:,} are")
    ordered = sorted((min(pair), max(pair)) for pair in edges)
    wrong = [(pair, "joins a unit to itself") for pair in ordered if pair[0] == pair[1]]
    wrong += [(pair, "is there twice") for pair, after in pairwise(ordered) if pair == after]
    for (first, second), what in wrong:
        raise ConfigError(f"graph has an edge {first}:{second} that {what}; every edge joins two units, once")
    joined = {unit for pair in ordered for unit in pair}
    if joined and max(joined) >= units:
        raise ConfigError(f"graph has an edge at unit {max(joined)}; groups x bits = {units} units count from 0")
    if len(joined) < units:
        alone = next(unit for unit in range(units) if unit not in joined)
        raise ConfigError(f"graph has no edge at unit {alone}; each of the groups x bits = {units} units needs one")
    return tuple(ordered)


def lattice(name: str, size: int, units: int) -> Lattice:
    """The first nodes of a processor's graph and all edges between them, as many as there are units.

    The nodes are found breadth first from the one with the smallest number, neighbours in the order of their numbers:
    a connected patch at a corner. Units follow the numbers of their nodes.

    >>> lattice("chimera", 1, 8).edges[:5]
    ((0, 4), (0, 5), (0, 6), (0, 7), (1, 4))
    """
    if name not in LATTICES:
        raise unknown_name("graph", name, LATTICES)
    if not 1 <= size <= LARGEST:
        raise ConfigError(f"graph = {name}:{size} is not possible; the size of a lattice is from 1 to {LARGEST}")
    try:
        with warnings.catch_warnings():  # it says that it will have another name one day
            warnings.simplefilter("ignore")
            import dwave_networkx
    except ImportError as error:
        raise MissingExtraError(
            f"graph = {name}:{size} needs the package dwave_networkx: pip install 'softspin[dwave]'"
        ) from error
    whole = getattr(dwave_networkx, f"{name}_graph")(size)
    found: dict[int, None] = {}
    waiting = [min(whole)] if len(whole) else []
    while waiting and len(found) < units:
        level = [node for node in dict.fromkeys(waiting) if node not in found]
        found |= dict.fromkeys(level[: units - len(found)])
        waiting = [other for node in level for other in sorted(whole[node])]
    if len(found) < units:
        raise ConfigError(
            f"graph = {name}:{size} has {len(whole)} nodes, {len(found)} of them connected to the first; "
            f"groups x bits = {units} units need a larger one"
        )
    nodes = tuple(sorted(found))
    unit = {node: number for number, node in enumerate(nodes)}
    edges = ((unit[a], unit[b]) for a, b in whole.subgraph(nodes).edges)
    return Lattice(checked_edges(edges, units), nodes)
