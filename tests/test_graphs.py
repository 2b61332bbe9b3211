"""Edges of a prior: from text and files, and as parts of the graphs of processors, compared with networkx."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from softspin.config import Config
from softspin.errors import ConfigError, MissingExtraError, UnknownNameError
from softspin.graphs import checked_edges, lattice

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dwave_networkx
    import networkx  # type: ignore[import-untyped]


def four(graph: Any, **changes: Any) -> Config:
    """Make a config with 4 bits."""
    return Config(structure="1-nonlinear", graph=graph, **({"bits_per_group": 4} | changes))


@pytest.mark.parametrize(("name", "size", "units"), [("zephyr", 1, 48), ("zephyr", 2, 33), ("pegasus", 2, 20)])
def test_a_lattice_is_a_connected_part_of_its_graph(name: str, size: int, units: int) -> None:
    found = lattice(name, size, units)
    whole = getattr(dwave_networkx, f"{name}_graph")(size)
    part = whole.subgraph(found.nodes)
    assert len(set(found.nodes)) == units
    assert list(found.nodes) == sorted(found.nodes)
    assert min(whole) in found.nodes
    assert networkx.is_connected(part)
    assert {(found.nodes[i], found.nodes[j]) for i, j in found.edges} == {(min(e), max(e)) for e in part.edges}
    assert not networkx.is_bipartite(networkx.Graph(found.edges)), "these graphs have triangles"
    distance = networkx.single_source_shortest_path_length(whole, min(whole))
    radius = max(distance[node] for node in found.nodes)
    assert all(node in found.nodes for node in distance if distance[node] < radius), "all nearer nodes are selected"


def test_a_config_stores_the_edges_and_not_the_name(tmp_path: Path) -> None:
    triangle = ((0, 1), (0, 2), (1, 2), (2, 3))
    path = tmp_path / "graph.json"
    path.write_text(json.dumps([[2, 3], [1, 0], [2, 0], [1, 2]]))
    for graph in (triangle, [[1, 2], [0, 1], [0, 2], [3, 2]], "0:1,1:2, 2:0,2:3", str(path)):
        config = four(graph)
        assert config.graph == config.edges == triangle
        assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    settings = ["structure=1-nonlinear", "bits_per_group=4", f"graph={path}"]
    assert Config().with_settings(settings).graph == triangle
    assert Config().with_settings([*settings[:2], "graph=chimera:1"]).edges == lattice("chimera", 1, 4).edges
    assert four(triangle).with_settings(["graph=none"]).graph is None
    toml = tmp_path / "run.toml"
    toml.write_text('structure = "1-nonlinear"\nbits_per_group = 4\ngraph = "0:1,1:2,0:2,2:3"\n')
    assert Config.from_toml(toml).graph == triangle
    assert four([[0, 1], [1, 2]], bits_per_group=3).shape.units == 3, "a graph may have an odd number of units"


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("0:1,1:2,2:2,3:1", "graph has an edge 2:2 that connects a unit to itself; list each pair of different units"),
        ("0:1,1:2,2:3,1:0", "graph has an edge 0:1 that is repeated; list each pair of different units once"),
        ("0:1,1:2,2:4,3:4", "graph has an edge at unit 4; groups x bits_per_group = 4 units are numbered from 0"),
        ("0:1,1:3", "graph has no edge at unit 2; each of groups x bits_per_group = 4 units needs an edge"),
        ([], "graph has no edge at unit 0"),
        ("0-1", "graph = '0-1' is not possible; it must be pairs of units as in 0:1,1:2, a .json file with a list"),
        ("", "graph = '' is not possible; it must be pairs of units"),
        ([[0, 1, 2]], "graph = [[0, 1, 2]] is not possible; it must be pairs of units, as in 0:1,1:2"),
        ([[0, -1]], "graph = [[0, -1]] is not possible; it must be pairs of units"),
        (3, "graph = 3 is not possible; it must be pairs of units, as in 0:1,1:2"),
        ("nothing.json", "graph file nothing.json cannot be read: No such file or directory"),
        ("zephyr:0", "graph = zephyr:0 is not possible; the size of a lattice is from 1 to 32"),
        ("pegasus:1", "graph = pegasus:1 has 0 nodes, 0 of them connected to the first; groups x bits_per_group = 4"),
        ("zefyr:2", "unknown graph 'zefyr'; did you mean 'zephyr'?"),
    ],
)
def test_a_bad_graph_is_a_one_line_error(graph: Any, message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        four(graph)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_other_bad_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.json"
    path.write_text("[[0, 1")
    with pytest.raises(ConfigError, match=r"graph file .*graph\.json is not JSON: Expecting"):
        four(str(path))
    path.write_text('{"edges": 3}')
    with pytest.raises(ConfigError, match="is not possible; it must be pairs of units"):
        four(str(path))
    with pytest.raises(ConfigError, match="compile = on is not possible with the prior 'graph'; use auto"):
        four("0:1,1:2,2:3", compile="on")
    with pytest.raises(ConfigError, match="bits_per_group = 10,001 units is not possible; at most 10,000 units are"):
        checked_edges([(i, i + 1) for i in range(10_000)], 10_001)
    monkeypatch.setitem(sys.modules, "dwave_networkx", None)
    with pytest.raises(MissingExtraError, match=r"graph = zephyr:1 needs .*; in a clone .*\[dwave\]'$"):
        four("zephyr:1")
