"""Interchangeable parts: the common interface of methods, nets, likelihoods, priors and samplers, and their registries.

A part is a class with a name. `METHODS.register` (as a decorator or a call) adds one. A package can also declare its
parts as entry points of the groups `softspin.methods`, `softspin.nets`, `softspin.likelihoods`, `softspin.priors` and
`softspin.samplers`. Built-in parts are listed by import path and loaded on first use, so this module does not import
torch.
"""

from __future__ import annotations

import importlib
from abc import ABC
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from softspin.errors import ConfigError, unknown_name
from softspin.typed import convert

if TYPE_CHECKING:
    from softspin.config import Config


class PartSetting(NamedTuple):
    """A setting that a part adds to a config: `--set name=value`, stored with the other settings."""

    hint: Any
    """Its type, in the form that :mod:`softspin.typed` supports."""
    default: Any
    help: str = ""


class Part(ABC):
    """Base class of all parts, with the attributes that config, command line, model card and engine use."""

    name: ClassVar[str]
    citation: ClassVar[str] = ""
    """Citation of its paper, for model cards."""
    settings: ClassVar[Mapping[str, PartSetting]] = {}
    """Settings that it adds to the config, by name."""
    compilable: ClassVar[bool] = True
    """Whether torch.compile supports it."""
    capturable: ClassVar[bool] = True
    """Whether a CUDA graph can capture it: it reads nothing on the host, and shapes do not change."""

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Raise ConfigError for settings that this part does not support; by default there is nothing to check.

        Args:
            config: Configuration of the run.
        """


P = TypeVar("P", bound=Part)


class Registry(Generic[P]):
    """Parts of one kind, by name.

    >>> PRIORS.names()
    ['factorial', 'graph', 'rbm']

    Args:
        kind: Kind of the parts, such as "method".
        base: Import path of their base class.
        builtin: Import paths of the built-in parts, by name.
    """

    def __init__(self, kind: str, base: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._base = base
        self._parts: dict[str, type[P] | str | EntryPoint] = dict(builtin)
        self._plugins_found = False

    def register(self, part: type[P]) -> type[P]:
        """Add a part under its name; also a class decorator.

        Args:
            part: Class of the part.

        Returns:
            The class itself.

        Raises:
            ConfigError: The name belongs to another part, or the class is not a valid part of this kind.
        """
        self._check(part)
        if part.name in self._parts and self._parts[part.name] is not part:
            raise ConfigError(f"the name '{part.name}' belongs to another {self.kind}; choose another name")
        self._parts[part.name] = part
        return part

    def unregister(self, name: str) -> None:
        """Remove a registered part.

        Args:
            name: Name of the part.
        """
        self._parts.pop(name, None)

    def get(self, name: str) -> type[P]:
        """Look up a part.

        Args:
            name: Name of the part.

        Returns:
            The class of the part.

        Raises:
            UnknownNameError: There is no part of that name; the message suggests the nearest.
            ConfigError: The part of an installed package cannot be loaded or is not valid.
        """
        if name not in self._parts:
            self._find_plugins()
        if name not in self._parts:
            raise unknown_name(self.kind, name, self._parts)
        part = self._parts[name]
        if isinstance(part, EntryPoint):
            part = self._parts[name] = self._load_plugin(part)
        elif isinstance(part, str):
            part = self._parts[name] = _imported(part)
        return part

    def names(self) -> list[str]:
        """List all names, including those of installed packages.

        Returns:
            Sorted names.
        """
        self._find_plugins()
        return sorted(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _find_plugins(self) -> None:
        if not self._plugins_found:
            self._plugins_found = True
            for point in entry_points(group=f"softspin.{self.kind}s"):
                self._parts.setdefault(point.name, point)

    def _load_plugin(self, point: EntryPoint) -> type[P]:
        """Load and check the class of an entry point; errors name the entry point."""
        where = f"the {self.kind} '{point.name}', declared by an installed package as {point.value},"
        try:
            part: type[P] = point.load()
        except Exception as error:  # third-party code, which may raise anything
            raise ConfigError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        self._check(part)
        if part.name != point.name:
            raise ConfigError(f"{where} has the name '{part.name}'; both names must be the same")
        return part

    def _check(self, part: Any) -> None:
        """Raise for a class that cannot be used: of another kind, incomplete, or with invalid settings."""
        place = self._base.replace(":", ".")
        if not isinstance(part, type) or not issubclass(part, _imported(self._base)):
            shown = getattr(part, "__name__", repr(part))
            raise ConfigError(f"{shown} is not a {self.kind}; derive it from {place}")
        self._check_class(part, place)

    def _check_class(self, part: type[Part], place: str) -> None:
        name = getattr(part, "name", None)
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise ConfigError(f"a {self.kind} needs a class attribute name, a string without slashes, not {name!r}")
        if missing := sorted(part.__abstractmethods__):
            raise ConfigError(f"the {self.kind} '{name}' lacks {', '.join(missing)}; see {place}")
        for key, one in part.settings.items():
            if not isinstance(one, PartSetting) or not key.isidentifier() or key in RESERVED:
                raise ConfigError(f"the {self.kind} '{name}': '{key}' is not a PartSetting, or its name is reserved")
            try:
                convert(one.hint, one.default)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"the {self.kind} '{name}': the default of '{key}' is invalid: {error}") from None


RESERVED = ("version", "part_settings")
"""Names that no setting may have."""


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


METHODS: Registry[Any] = Registry(
    "method",
    "softspin.methods.base:Method",
    {
        "dvae-spike_exp": "softspin.methods.discrete_kl:SpikeExponentialDVAE",
        "dvae++-exp": "softspin.methods.discrete_kl:ExponentialDVAE",
        "dvae++-power": "softspin.methods.discrete_kl:PowerDVAE",
        "dvae#-gauss_int": "softspin.methods.gaussian_integral:GaussianIntegral",
        "dvae#-gaussian": "softspin.methods.relaxed:GaussianRelaxed",
        "dvae#-exp": "softspin.methods.relaxed:ExponentialRelaxed",
        "dvae#-un_exp": "softspin.methods.relaxed:UniformExponentialRelaxed",
        "dvae#-power": "softspin.methods.relaxed:PowerRelaxed",
        "arm": "softspin.methods.antithetic:ARM",
        "concrete": "softspin.methods.concrete:Concrete",
        "disarm": "softspin.methods.antithetic:DisARM",
        "gumbel-rao": "softspin.methods.gumbel_rao:GumbelRao",
        "gumbolt": "softspin.methods.concrete:GumBolt",
        "leg": "softspin.methods.local:LocalExpectation",
        "loo": "softspin.methods.reinforce:LeaveOneOut",
        "muprop": "softspin.methods.muprop:MuProp",
        "nvil": "softspin.methods.reinforce:NVIL",
        "ovis": "softspin.methods.multi_sample:OVIS",
        "rebar": "softspin.methods.rebar:REBAR",
        "reinforce": "softspin.methods.reinforce:Reinforce",
        "reinmax": "softspin.methods.straight_through:ReinMax",
        "relax": "softspin.methods.rebar:RELAX",
        "st-gumbel": "softspin.methods.concrete:StraightThroughGumbel",
        "straight-through": "softspin.methods.straight_through:StraightThrough",
        "vimco": "softspin.methods.multi_sample:VIMCO",
    },
)
NETS: Registry[Any] = Registry(
    "net",
    "softspin.nets.base:Net",
    {
        "mlp": "softspin.nets.mlp:MLP",
        "leaky-mlp": "softspin.nets.leaky_mlp:LeakyMLP",
        "resnet": "softspin.nets.resnet:ResNet",
        "conv": "softspin.nets.conv:Conv",
        "conv1d": "softspin.nets.conv1d:Conv1d",
    },
)
LIKELIHOODS: Registry[Any] = Registry(
    "likelihood",
    "softspin.likelihoods.base:Likelihood",
    {
        "bernoulli": "softspin.likelihoods.bernoulli:Bernoulli",
        "categorical": "softspin.likelihoods.categorical:Categorical",
        "discretized-logistic": "softspin.likelihoods.discretized_logistic:DiscretizedLogistic",
        "gaussian": "softspin.likelihoods.gaussian:Gaussian",
        "negative-binomial": "softspin.likelihoods.negative_binomial:NegativeBinomial",
        "zero-inflated-lognormal": "softspin.likelihoods.zero_inflated_lognormal:ZeroInflatedLogNormal",
    },
)
PRIORS: Registry[Any] = Registry(
    "prior",
    "softspin.priors.base:Prior",
    {
        "factorial": "softspin.priors.factorial:FactorialPrior",
        "graph": "softspin.priors.graph:GraphPrior",
        "rbm": "softspin.priors.rbm:RBM",
    },
)
SAMPLERS: Registry[Any] = Registry(
    "sampler",
    "softspin.samplers.base:Sampler",
    {
        "pcd": "softspin.samplers.gibbs:Gibbs",
        "pa": "softspin.samplers.population:PopulationAnnealing",
        "pt": "softspin.samplers.tempering:ParallelTempering",
    },
)
