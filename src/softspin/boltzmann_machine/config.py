"""The settings of a Boltzmann machine that is trained on its own, each with its type, default and help text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_type_hints

from softspin.config.fields import Count, Device, Natural, NotNegative, Pairs, Positive, Seeds, Several
from softspin.errors import ConfigError, unknown_name
from softspin.graphs import Edges, checked_edges, read_edges
from softspin.typed import Rule, convert, describe, parse

SHORT = 60
"""Characters of a value that an error shows."""
Steps = Annotated[int, Rule("an integer from 1 to 1000", lambda v: 1 <= v <= 1000)]


def _setting(default: Any, help: str, *, neutral: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "neutral": neutral})


@dataclass(frozen=True, kw_only=True)
class BoltzmannConfig:
    """Settings of :func:`softspin.fit_boltzmann`. Values are checked and converted.

    >>> BoltzmannConfig(hidden=16, sampler="pa").hidden
    16
    >>> BoltzmannConfig(chains=0)
    Traceback (most recent call last):
    softspin.errors.ConfigError: chains = 0 is not possible; it must be an integer from 2 to 2147483647

    Raises:
        ConfigError: A value is not possible.
    """

    hidden: Natural | None = _setting(
        None, "Set the number of hidden units; by default 200 for an RBM, and 0 with a graph."
    )
    graph: Pairs | str | None = _setting(
        None,
        "Couple these pairs of units instead of an RBM: 0:1,1:2, a .json file of pairs, or a lattice such as zephyr:2."
        " Visible units come first. Hidden units may be coupled with visible ones only.",
    )
    sampler: Literal["pcd", "pa", "pt"] = _setting(
        "pcd", "Choose the sampler of the negative phase: pcd, pa (population annealing) or pt (parallel tempering)."
    )
    chains: Several = _setting(100, "Set the number of chains, or of members of the population.")
    sweeps: Count = _setting(1, "Set the number of Gibbs sweeps of each chain in a step.")
    temperatures: Steps = _setting(16, "Set the number of temperature steps of parallel tempering.")
    batch_size: Count = _setting(100, "Set the number of data points in a step.")
    steps: Count = _setting(4000, "Set the number of training steps.")
    learning_rate: Positive = _setting(0.2, "Set the initial learning rate.")
    schedule: Literal["linear", "constant"] = _setting(
        "linear", "Choose the learning rate over the steps: it falls linearly to 0, or is constant."
    )
    weight_decay: NotNegative = _setting(0.0, "Add this times the weights to the gradient; biases have no decay.")
    centred: bool = _setting(True, "Use centred gradients, which do not depend on which value of a bit is called 1.")
    average: bool = _setting(
        True, "Use the average of the parameters over about the last tenth of the steps, which is less noisy."
    )
    init_scale: NotNegative = _setting(
        0.3,
        "Set the standard deviation of the initial couplings of hidden units, times the root of the number of visible"
        " units; other couplings start at 0.",
    )
    seeds: Seeds = _setting((0,), "Train one replica for each of these seeds, all at once.")
    evaluate_every: Count | None = _setting(
        None, "Set the number of steps between evaluations of the likelihood; by default a tenth of the steps."
    )
    checkpoint_every: Count | None = _setting(
        None, "Set the number of steps between checkpoints; by default that of evaluations.", neutral=True
    )
    validation_temperatures: Count = _setting(1000, "Set the number of AIS temperatures for log Z while training.")
    validation_chains: Several = _setting(100, "Set the number of AIS chains for log Z while training.")
    test_temperatures: Count = _setting(5000, "Set the number of AIS temperatures for log Z at the end.", neutral=True)
    test_chains: Several = _setting(200, "Set the number of AIS chains for log Z at the end.", neutral=True)
    compile: Literal["auto", "on", "off"] = _setting(
        "auto", "Compile steps with torch.compile: auto does so on a GPU.", neutral=True
    )
    device: Device = _setting("auto", "Train on auto (a GPU if there is one), cpu, cuda or cuda:N.", neutral=True)

    def __post_init__(self) -> None:
        for name, hint in hints().items():
            value = getattr(self, name)
            if name == "graph" and isinstance(value, str):
                continue
            try:
                object.__setattr__(self, name, convert(hint, value))
            except ValueError as error:
                shown = repr(value) if isinstance(value, str) else str(value)
                shown = shown if len(shown) <= SHORT else f"{shown[: SHORT - 3]}..."
                raise ConfigError(f"{name} = {shown} is not possible; it must be {error}") from None

    def shape(self, visible: int) -> Shape:
        """Number of hidden units and edges for data with so many columns.

        Args:
            visible: Number of visible units.

        Returns:
            The shape.

        Raises:
            ConfigError: The graph does not fit the data, or couples hidden units with each other.
        """
        if self.graph is None:
            hidden = 200 if self.hidden is None else self.hidden
            if not hidden:
                raise ConfigError("hidden = 0 is not possible for an RBM; give at least 1, or a graph of visible units")
            return Shape(visible, hidden, None)
        hidden = self.hidden or 0
        units = visible + hidden
        size = f"{visible} visible + {hidden} hidden units"
        try:
            pairs = read_edges(self.graph, units) if isinstance(self.graph, str) else self.graph
            edges = checked_edges(convert(hints()["graph"], [list(one) for one in pairs]), units, size)
        except (ValueError, TypeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"graph is not possible; it must be {describe(hints()['graph'])}") from None
        for first, second in edges:
            if first >= visible:
                raise ConfigError(
                    f"graph couples the hidden units {first} and {second}; hidden units may be coupled with visible "
                    f"ones (0 to {visible - 1}) only, because their sum must be exact"
                )
        return Shape(visible, hidden, edges)

    def replace(self, **changes: Any) -> Self:
        """The same settings, some of them changed.

        Args:
            **changes: Values by name.

        Returns:
            The settings.

        Raises:
            UnknownNameError: There is no such setting.
        """
        for name in changes:
            if name not in hints():
                raise unknown_name("setting", name, hints())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON.

        Returns:
            All settings by name.
        """
        return {name: _plain(getattr(self, name)) for name in hints()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain data; those that are missing have their defaults.

        Args:
            values: Values by name.

        Returns:
            The settings.

        Raises:
            UnknownNameError: There is no such setting.
            ConfigError: A value is not possible.
        """
        return cls().replace(**values)

    def with_texts(self, texts: Mapping[str, str]) -> Self:
        """The same settings with some given as text, as on the command line.

        Args:
            texts: Values by name.

        Returns:
            The settings.

        Raises:
            UnknownNameError: There is no such setting.
            ConfigError: A value is not possible.
        """
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in hints():
                raise unknown_name("setting", name, hints())
            try:
                values[name] = text if name == "graph" else parse(hints()[name], text)
            except ValueError as error:
                raise ConfigError(f"{name} = {text[:SHORT]} is not possible; it must be {error}") from None
        return self.replace(**values)

    @property
    def evaluation_interval(self) -> int:
        """Steps between evaluations."""
        return self.evaluate_every or max(1, self.steps // 10)

    @property
    def checkpoint_interval(self) -> int:
        """Steps between checkpoints."""
        return self.checkpoint_every or self.evaluation_interval


class Shape(NamedTuple):
    """Units and couplings of a Boltzmann machine."""

    visible: int
    hidden: int
    edges: Edges | None
    """Coupled pairs; None for an RBM."""

    @property
    def text(self) -> str:
        """A description for people."""
        units = f"{self.visible:,} visible and {self.hidden:,} hidden units"
        return f"RBM of {units}" if self.edges is None else f"graph of {units} with {len(self.edges):,} couplings"


@cache
def hints() -> dict[str, Any]:
    """Types of the settings, by name."""
    found = get_type_hints(BoltzmannConfig, include_extras=True)
    return {**found, "graph": Pairs | None}


def differing(one: BoltzmannConfig, other: BoltzmannConfig) -> str | None:
    """Name of the first setting that differs and may not, in a resumed run."""
    fixed = [field.name for field in dataclasses.fields(BoltzmannConfig) if not field.metadata["neutral"]]
    return next((name for name in fixed if getattr(one, name) != getattr(other, name)), None)


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
