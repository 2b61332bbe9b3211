"""Pictures show the stored arrays and their provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softspin.errors import FigureError
from softspin.experiments.figures import NAMES
from softspin.experiments.figures.arrays import STORED, Arrays, load, save
from softspin.report.figures import caption, compose, draw

RANDOM = np.random.default_rng(0)
STEPS, METHODS, BETAS = (
    np.arange(1, 6),
    np.array(["dvae#-exp", "dvae#-exp", "dvae#-power"]),
    np.array([8.0, 10.0, 30.0]),
)


def some(*shape: int) -> NDArray[Any]:
    return RANDOM.uniform(0.1, 1.0, shape)


def columns(family: str, count: int, *names: str) -> dict[str, NDArray[Any]]:
    return {f"{family}_beta": np.arange(1.0, count + 1)} | {f"{family}_{name}": some(count) for name in names}


VALUES: dict[str, dict[str, NDArray[Any]]] = {
    "fig1": {"rho": np.linspace(0, 1, 7)}
    | {f"{family}_{part}": some(2, 7) for family in ("exp", "un_exp", "power") for part in ("zeta", "slope")}
    | {f"{family}_beta": np.array([8.0, 16.0]) for family in ("exp", "un_exp", "power")},
    "fig2a": {"iterations": STEPS, "method": np.array("dvae#-power"), "beta": np.array(30.0), "step": np.array(9)}
    | {f"kl_{part}": some(3, 5) for part in ("value", "lower", "upper")},
    "fig2b": {"step": STEPS, "method": METHODS, "beta": BETAS, "kl_value": some(5, 3, 4)},
    "fig2c": {"step": STEPS, "method": METHODS, "beta": BETAS}
    | {f"noise_{part}": some(5, 3) for part in ("variance", "error", "total")},
    "appendix": {
        name: column
        for family in ("exp", "power")
        for name, column in columns(family, 3, "distance", "distance_error", "variance", "variance_error").items()
    },
}
SHOWN: dict[str, list[NDArray[Any]]] = {
    "fig1": [
        VALUES["fig1"][f"{f}_{p}"][i] for f in ("exp", "un_exp", "power") for p in ("zeta", "slope") for i in (0, 1)
    ],
    "fig2a": list(VALUES["fig2a"]["kl_value"]),
    "fig2b": list(VALUES["fig2b"]["kl_value"].mean(-1).T),
    "fig2c": [VALUES["fig2c"]["noise_variance"][:, 1], VALUES["fig2c"]["noise_variance"][:, 2]],
    "appendix": [VALUES["appendix"]["exp_distance"], VALUES["appendix"]["power_distance"]],
}
"""The curves of each figure."""


def arrays(name: str, **changes: Any) -> Arrays:
    meta = {
        "figure": name,
        "commit": "abc123",
        "config": {"x": 1},
        "device": "cuda H200",
        "date": "2026-01-02T03:04:05",
    }
    return Arrays(VALUES[name], meta | {"marks": []} | changes)


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_curve_is_drawn(name: str) -> None:
    figure = compose(arrays(name))
    lines = [np.asarray(line.get_ydata()) for axis in figure.axes for line in axis.get_lines()]
    for curve in SHOWN[name]:
        assert sum(np.array_equal(curve, line) for line in lines) == 1
    assert all(axis.get_ylabel() or axis.get_shared_y_axes().get_siblings(axis) for axis in figure.axes)
    assert "softspin abc123, cuda H200, 2026-01-02" in [text.get_text() for text in figure.texts]
    assert figure.get_suptitle() == ""


@pytest.mark.parametrize("name", NAMES)
def test_deviations_from_the_paper_are_in_plot_and_caption(name: str) -> None:
    short = arrays(name, marks=["40 steps instead of 100,000", "on digits instead of mnist"])
    text = "not as in the paper: 40 steps instead of 100,000; on digits instead of mnist"
    assert compose(short).get_suptitle() == text
    assert "Not as in the paper: 40 steps instead of 100,000; on digits instead of mnist." in caption(short)
    assert "paper" not in caption(arrays(name))


def test_the_stored_arrays_are_of_a_known_commit_and_can_be_drawn() -> None:
    names = [path.stem for path in sorted(STORED.glob("*.npz"))]
    assert {"appendix", "fig1"} <= set(names) <= set(NAMES)
    for name in names:
        stored = load(STORED, name)
        assert stored.meta["command"].startswith("softspin figure")
        assert compose(stored).axes


def test_pictures_are_deterministic_files(tmp_path: Path) -> None:
    save(tmp_path, *arrays("appendix"))
    first = [path.read_bytes() for path in draw("appendix", tmp_path, tmp_path / "a")]
    again = [path.read_bytes() for path in draw("appendix", tmp_path, tmp_path / "b")]
    assert first == again
    assert first[0].startswith(b"\x89PNG")
    assert b"<svg" in first[1]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["appendix.png", "appendix.svg"]


def test_arrays_of_unknown_origin_or_with_missing_parts_are_not_drawn(tmp_path: Path) -> None:
    save(tmp_path, *arrays("fig2c", commit=None))
    with pytest.raises(FigureError, match="does not record its commit"):
        draw("fig2c", tmp_path, tmp_path / "out")
    save(tmp_path, {"step": STEPS}, arrays("fig2c").meta)
    with pytest.raises(
        FigureError, match="the arrays of fig2c have no 'method'; softspin figure fig2c --compute makes"
    ):
        draw("fig2c", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
