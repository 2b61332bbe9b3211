"""Edges between the bits of a prior: from text, from a file, or from part of the graph of a D-Wave processor."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from softspin.errors import ConfigError, missing_extra, unknown_name

Edges = tuple[tuple[int, int], ...]
LATTICES = ("chimera", "pegasus", "zephyr")
MAX_LATTICE_SIZE = 32
"""Maximum size of a lattice. The largest processors have size 16."""
MAX_UNITS = 10_000
"""Maximum number of units. Couplings are stored as a square matrix, which an untrusted file could make huge."""


class Lattice(NamedTuple):
    """A part of the graph of a processor."""

    edges: Edges
    """Pairs of units, counted from 0."""
    nodes: tuple[int, ...]
    """The processor's node of each unit, for the `labels` of a sampler with these nodes."""


def read_edges(text: str, units: int) -> Any:
    """Read pairs of units. The result is not validated: pass it to :func:`checked_edges`.

    Args:
        text: A lattice with its size such as `zephyr:2`, the path of a .json file with a list of pairs, or pairs such
            as `0:1,1:2`.
        units: Number of units of a lattice.

    Returns:
        The pairs, or any other content of the .json file.

    Raises:
        ConfigError: The text has none of these forms, or the file cannot be read.

    Example:
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


def checked_edges(edges: Iterable[tuple[int, int]], units: int, size: str | None = None) -> Edges:
    """Sort and validate edges.

    Args:
        edges: Pairs of units.
        units: Number of units, groups x bits_per_group.
        size: Description of the number of units for errors, if it is another one.

    Returns:
        The edges in order, each with the smaller unit first.

    Raises:
        ConfigError: A unit is out of range or has no edge, or an edge is repeated or connects a unit to itself.

    Example:
        >>> checked_edges([(2, 1), (0, 1)], 3)
        ((0, 1), (1, 2))
    """
    size = size or f"groups x bits_per_group = {units:,} units"
    if units > MAX_UNITS:
        raise ConfigError(f"graph of {size} is not possible; at most {MAX_UNITS:,} units are supported")
    ordered = sorted((min(pair), max(pair)) for pair in edges)
    wrong = [(pair, "connects a unit to itself") for pair in ordered if pair[0] == pair[1]]
    wrong += [(pair, "is repeated") for pair, after in pairwise(ordered) if pair == after]
    for (first, second), what in wrong:
        raise ConfigError(f"graph has an edge {first}:{second} that {what}; list each pair of different units once")
    connected = {unit for pair in ordered for unit in pair}
    if connected and max(connected) >= units:
        raise ConfigError(f"graph has an edge at unit {max(connected)}; {size} are numbered from 0")
    if len(connected) < units:
        alone = next(unit for unit in range(units) if unit not in connected)
        raise ConfigError(f"graph has no edge at unit {alone}; each of {size} needs an edge")
    return tuple(ordered)


def lattice(name: str, size: int, units: int) -> Lattice:
    """Select a connected part of the graph of a D-Wave processor, with all edges between its nodes.

    Nodes are found by breadth-first search from the lowest node number, neighbors in increasing order. Units are
    ordered by the numbers of their nodes.

    Args:
        name: "chimera", "pegasus" or "zephyr".
        size: Size of the graph, from 1 to 32.
        units: Number of nodes to select.

    Returns:
        Edges and nodes.

    Raises:
        UnknownNameError: No lattice has this name.
        ConfigError: The size is out of range, or the graph is too small.
        MissingExtraError: The package dwave_networkx is not installed.

    Example:
        >>> lattice("chimera", 1, 8).edges[:5]
        ((0, 4), (0, 5), (0, 6), (0, 7), (1, 4))
    """
    if name not in LATTICES:
        raise unknown_name("graph", name, LATTICES)
    if not 1 <= size <= MAX_LATTICE_SIZE:
        raise ConfigError(
            f"graph = {name}:{size} is not possible; the size of a lattice is from 1 to {MAX_LATTICE_SIZE}"
        )
    try:
        with warnings.catch_warnings():  # the package announces that it will be renamed
            warnings.simplefilter("ignore")
            import dwave_networkx
    except ImportError as error:
        raise missing_extra(f"graph = {name}:{size} needs the package dwave_networkx", "dwave") from error
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
            f"groups x bits_per_group = {units} units need a larger size"
        )
    nodes = tuple(sorted(found))
    unit = {node: number for number, node in enumerate(nodes)}
    edges = ((unit[a], unit[b]) for a, b in whole.subgraph(nodes).edges)
    return Lattice(checked_edges(edges, units), nodes)
