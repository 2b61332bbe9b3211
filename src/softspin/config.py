"""Every choice of a run, as one flat frozen record whose defaults are the published recipe."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from softspin import recipe
from softspin.errors import ConfigError, UnknownNameError, unknown_name
from softspin.graphs import Edges, checked_edges, read_edges
from softspin.methods import METHODS
from softspin.recipe import RATE_SCHEDULE, STRUCTURES, Shape
from softspin.typed import Rule, convert, parse

Count = Annotated[int, Rule("an integer from 1 to 2147483647", lambda v: 1 <= v < 2**31)]
Several = Annotated[int, Rule("an integer from 2 to 2147483647", lambda v: 2 <= v < 2**31)]
Natural = Annotated[int, Rule("an integer from 0 to 2147483647", lambda v: 0 <= v < 2**31)]
Positive = Annotated[float, Rule("a finite number above 0", lambda v: v > 0)]
NotNegative = Annotated[float, Rule("a finite number, 0 or above", lambda v: v >= 0)]
Share = Annotated[float, Rule("a number from 0 to 1", lambda v: 0 <= v <= 1)]
BelowOne = Annotated[float, Rule("a number from 0 to below 1", lambda v: 0 <= v < 1)]
Inside = Annotated[float, Rule("a number above 0 and below 1", lambda v: 0 < v < 1)]
Clamp = Annotated[float, Rule("0 (exact) or small, such as 1e-7 (the authors' program)", lambda v: 0 <= v < 0.5)]
Seeds = Annotated[
    tuple[Natural, ...],
    Rule("one or more different integers from 0 to 2147483647, as in 0-4", lambda v: 0 < len(v) == len(set(v))),
]
Betas = Annotated[
    tuple[Positive, ...], Rule("different finite numbers above 0, as in 20,30,40", lambda v: len(v) == len(set(v)))
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

MOST_REPLICAS = 10_000


class Replica(NamedTuple):
    """What distinguishes one of the models that a run trains at once."""

    seed: int
    beta: float


class Intervals(NamedTuple):
    """After how many steps each thing happens again."""

    report: int
    checkpoint: int
    evaluate: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. Fields left alone follow the recipe to the letter.

    >>> config = Config(data="mnist", seeds=(0, 1)).with_settings(["betas=20,30", "steps=1e4"])
    >>> config.replicas[:3]
    (Replica(seed=0, beta=20.0), Replica(seed=0, beta=30.0), Replica(seed=1, beta=20.0))
    >>> config.shape.units, config.intervals.evaluate
    (400, 200)
    >>> Config(chains=0)
    Traceback (most recent call last):
    softspin.errors.ConfigError: chains = 0 is not possible; it must be an integer from 1 to 2147483647
    """

    data: Filled = "digits"
    """A data set's name, or the path of a .npy or .npz file."""

    # The model
    method: str = "dvae#-power"
    """A column of the paper's Table 1: smoothing, prior and bound; see `softspin.methods`."""
    structure: str = "2-nonlinear"
    """Gives groups, bits, layers and width, each unless set itself; see `softspin.recipe`."""
    groups: Count | None = None
    bits: Count | None = None
    layers: Natural | None = None
    width: Count | None = None
    graph: Pairs | str | None = None
    """Which bits the prior couples, as pairs of units: none is an RBM, the first half of the bits against the second.
    A text is replaced by the pairs it stands for, see `softspin.graphs`: 0:1,1:2, a .json file, or zephyr:2."""
    init_scale: Positive = 2.6
    """Kernels start as a truncated normal of variance init_scale / fan_in."""
    norm_decay: BelowOne = 0.8
    """Decay of batch norm's running statistics at each step."""
    norm_epsilon: Positive = 1e-2

    # The relaxation
    beta: Positive | None = None
    """Inverse temperature of the smoothing; None is the recipe's for this data set, structure and method."""
    betas: Betas = ()
    """A grid of beta instead of one value; each is a replica."""
    epsilon: Inside = 0.05
    """Uniform share of the un_exp smoothing; the others have none."""
    clamp: Clamp = 0.0
    """Added inside the logs of the power smoothing; 0 is exact, 1e-7 is what the authors' program did."""
    mean_field_steps: Count = 5

    # The objective
    samples: Count = 1
    """K: importance samples of the bound of dvae#, samples that the ELBO of the others is averaged over."""
    warmup: Share = 0.3
    """Share of the steps over which the weight of the KL rises from 0 to 1."""
    weight_decay: NotNegative = 1e-4
    """Times sum(w^2) / 2 over kernels, batch-norm scales and couplings, as a loss term."""

    # The optimiser
    steps: Count = 1_000_000
    batch: Count = 100
    rate: Positive = 3e-3
    rate_schedule: Schedule = RATE_SCHEDULE
    """Pairs (share of the steps up to which, factor on the rate)."""
    adam_beta1: BelowOne = 0.9
    adam_beta2: BelowOne = 0.999
    adam_epsilon: Positive = 1e-3
    adam_corrected: bool = False
    """True: epsilon beside the root of the corrected second moment, as in PyTorch; False: of the uncorrected one."""

    # The sampler of the negative phase
    sampler: Literal["pcd", "pa", "own"] = "pa"
    """Persistent contrastive divergence, population annealing, or one that is given to `softspin.fit`."""
    chains: Count = 1000
    sweeps: Count = 40
    """Sweeps at each parameter update."""

    # The replicas
    seeds: Seeds = (0,)
    """Replicas are all pairs of a seed and a beta."""

    # When things happen; None is a share of the steps, see `intervals`
    report_every: Count | None = None
    checkpoint_every: Count | None = None
    evaluate_every: Count | None = None

    # Evaluation: on the validation set as training goes, on the test set at its end
    validation_samples: Count = 100
    validation_temperatures: Count = 1000
    validation_chains: Several = 1024
    test_samples: Count = 4000
    test_temperatures: Count = 10_000
    test_chains: Several = 1000

    # The machine
    device: Device = "auto"
    tf32: bool = False
    """Training matmuls in TF32 on a GPU; evaluation is in float32 always."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether the step is compiled; auto leaves the choice to the engine."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            value = getattr(self, name)
            if name == "graph" and isinstance(value, str):
                continue  # until the number of units is known to be one
            try:
                object.__setattr__(self, name, convert(hint, value))
            except ValueError as error:
                raise _impossible(name, value, str(error)) from None
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        if self.structure not in STRUCTURES:
            raise unknown_name("structure", self.structure, STRUCTURES)
        if self.graph is not None:
            object.__setattr__(self, "graph", self._edges(self.graph))
        self._check_together()

    def _edges(self, graph: Pairs | str) -> Edges:
        """The edges in order, whatever they were given as, so that a run keeps them and not a file's name."""
        units = self.shape.units
        pairs = read_edges(graph, units) if isinstance(graph, str) else graph
        try:
            pairs = convert(Pairs, pairs)
        except ValueError as error:
            raise _impossible("graph", pairs, str(error)) from None
        return checked_edges(pairs, units)

    def _check_together(self) -> None:
        smoothing = METHODS[self.method].smoothing
        if len(self.seeds) * max(1, len(self.betas)) > MOST_REPLICAS:
            count = f"{len(self.seeds):,} seeds x {len(self.betas):,} betas"
            raise ConfigError(f"{count} are too many replicas for one run; at most {MOST_REPLICAS:,} are possible")
        if self.beta is not None and self.betas:
            raise ConfigError(
                f"beta = {self.beta:g} and betas = {_text(self.betas)} exclude each other; set one to none"
            )
        if smoothing == "power" and min(replica.beta for replica in self.replicas) <= 1:
            raise ConfigError(
                f"{'betas' if self.betas else 'beta'} = {_text(self.betas or self.beta)} is not possible; "
                f"the power smoothing of '{self.method}' needs more than 1"
            )
        if self.clamp and smoothing != "power":
            raise ConfigError(
                f"clamp = {self.clamp:g} is not possible for '{self.method}'; only power smoothings have one"
            )
        if self.sampler == "pa" and self.chains < 2:
            raise ConfigError("chains = 1 is not possible; population annealing (sampler = pa) needs at least 2")
        if self.graph is not None and self.compile == "on":
            raise ConfigError("compile = on is not possible with a graph, whose steps are not compiled; use auto")
        if self.shape.units % 2 and self.graph is None:
            groups, bits = self.shape.groups, self.shape.bits
            raise ConfigError(f"groups x bits = {groups} x {bits} is odd; an RBM of two equal halves needs it even")

    @property
    def shape(self) -> Shape:
        """Groups, bits, layers and width: the structure's, but for those set."""
        own = {name: getattr(self, name) for name in Shape._fields if getattr(self, name) is not None}
        return STRUCTURES[self.structure]._replace(**own)

    @property
    def edges(self) -> Edges | None:
        """The graph as it always is once it was given."""
        assert not isinstance(self.graph, str)
        return self.graph

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All pairs of a seed and a beta; the betas of one seed are neighbours."""
        beta = recipe.beta(self.data, self.structure, self.method) if self.beta is None else self.beta
        return tuple(Replica(seed, one) for seed in self.seeds for one in self.betas or (beta,))

    @property
    def intervals(self) -> Intervals:
        """Steps between reports (0.2% of all, unless set), checkpoints and evaluations (2%, as in the recipe)."""
        fiftieth = max(1, self.steps // 50)
        return Intervals(
            report=self.report_every or max(1, self.steps // 500),
            checkpoint=self.checkpoint_every or fiftieth,
            evaluate=self.evaluate_every or fiftieth,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Config:
        """From plain data, such as JSON's; an unknown key is an error that names the nearest."""
        return cls(**{_known(name): value for name, value in values.items()})  # type: ignore[arg-type]

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Config:
        """From a TOML file of `key = value` lines; keys left out keep their defaults.

        Values are TOML's, or texts as :meth:`with_settings` takes them: `seeds = [0, 1, 2]` or `seeds = "0-2"`.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_dict({k: _parsed(_known(k), v) if isinstance(v, str) else v for k, v in values.items()})
        except FileNotFoundError:
            raise ConfigError(f"no config file {path}") from None
        except OSError as error:
            raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"config file {path} is not TOML: {error}") from None
        except (ConfigError, UnknownNameError) as error:
            raise type(error)(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold; `Config.from_dict` gives the config back."""
        return {name: _plain(getattr(self, name)) for name in _hints()}

    def with_settings(self, settings: Iterable[str]) -> Config:
        """A copy with `key=value` texts applied: `beta=30`, `seeds=0-4`, `betas=20,30,40`, `beta=none`."""
        changes = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            name = _known(name.strip())
            if not equals:
                raise ConfigError(f"setting '{setting}' has no value; write {name}=VALUE")
            changes[name] = _parsed(name, text)
        return dataclasses.replace(self, **changes)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config, include_extras=True)


def _known(name: str) -> str:
    if name not in _hints():
        raise unknown_name("setting", name, _hints())
    return name


def _parsed(name: str, text: str) -> Any:
    if name == "graph":
        return None if text.strip().lower() == "none" else text
    try:
        return parse(_hints()[name], text)
    except ValueError as error:
        raise _impossible(name, text, str(error)) from None


def _impossible(name: str, value: object, right: str) -> ConfigError:
    return ConfigError(f"{name} = {_text(value)} is not possible; it must be {right}")


def _text(value: object) -> str:
    """A value on one line of readable length."""
    if isinstance(value, tuple):
        value = list(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
