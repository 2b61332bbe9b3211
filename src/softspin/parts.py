"""Interchangeable parts: what a method, net, likelihood, prior and sampler have in common, and how they are registered.

A part is a class with a name. `METHODS.register` (as a decorator or a call) adds one; a package can also announce its
parts as entry points of the groups `softspin.methods`, `softspin.nets`, `softspin.likelihoods`, `softspin.priors` and
`softspin.samplers`. Built-in parts are listed by import path and loaded when first used, so this module needs no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from softspin.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from softspin.config import Config


class PartSetting(NamedTuple):
    """A setting that a part adds to a config: `--set name=value`, stored beside the config's own settings."""

    hint: Any
    """Its type, as :mod:`softspin.typed` understands it."""
    default: Any
    help: str = ""


class Part:
    """Base of all parts: what the config, the command line, the model card and the engine ask of each of them."""

    name: ClassVar[str]
    citation: ClassVar[str] = ""
    """The paper behind it, for model cards."""
    settings: ClassVar[Mapping[str, PartSetting]] = {}
    """Settings of its own, by name. Those of :class:`softspin.Config` need not be repeated."""
    compilable: ClassVar[bool] = True
    """Whether torch.compile can follow it."""
    capturable: ClassVar[bool] = True
    """Whether a CUDA graph can hold it: nothing is read on the host, and shapes do not change."""

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Raise ConfigError for settings that are not possible with this part."""


P = TypeVar("P", bound=Part)


class Registry(Generic[P]):
    """Parts of one kind, by name.

    >>> PRIORS.names()
    ['graph', 'rbm']
    """

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._parts: dict[str, type[P] | str] = dict(builtin)
        self._plugins_loaded = False

    def register(self, part: type[P]) -> type[P]:
        """Add a part under its name; also a class decorator. A name that is taken is an error."""
        name = getattr(part, "name", None)
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise ConfigError(f"a {self.kind} needs a class attribute name, a text without slashes, not {name!r}")
        if name in self._parts and self._parts[name] is not part:
            raise ConfigError(f"the name '{name}' is taken by another {self.kind}; choose another one")
        self._parts[name] = part
        return part

    def unregister(self, name: str) -> None:
        """Remove a part that was registered by a call."""
        self._parts.pop(name, None)

    def get(self, name: str) -> type[P]:
        """The class of that name; UnknownNameError, with the nearest name, if there is none."""
        if name not in self._parts:
            self._load_plugins()
        if name not in self._parts:
            raise unknown_name(self.kind, name, self._parts)
        part = self._parts[name]
        if isinstance(part, str):
            module, _, attribute = part.partition(":")
            part = self._parts[name] = getattr(importlib.import_module(module), attribute)
        return part

    def names(self) -> list[str]:
        """All names, those of installed packages included."""
        self._load_plugins()
        return sorted(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for point in entry_points(group=f"softspin.{self.kind}s"):
            self._parts.setdefault(point.name, point.value)


METHODS: Registry[Any] = Registry(
    "method",
    {
        "dvae-spike_exp": "softspin.methods.discrete_kl:SpikeExponentialDVAE",
        "dvae++-exp": "softspin.methods.discrete_kl:ExponentialDVAE",
        "dvae++-power": "softspin.methods.discrete_kl:PowerDVAE",
        "dvae#-gauss_int": "softspin.methods.gaussian_integral:GaussianIntegral",
        "dvae#-gaussian": "softspin.methods.relaxed:GaussianRelaxed",
        "dvae#-exp": "softspin.methods.relaxed:ExponentialRelaxed",
        "dvae#-un_exp": "softspin.methods.relaxed:UniformExponentialRelaxed",
        "dvae#-power": "softspin.methods.relaxed:PowerRelaxed",
    },
)
NETS: Registry[Any] = Registry("net", {"mlp": "softspin.nets.mlp:MLP"})
LIKELIHOODS: Registry[Any] = Registry("likelihood", {"bernoulli": "softspin.likelihoods.bernoulli:Bernoulli"})
PRIORS: Registry[Any] = Registry(
    "prior", {"rbm": "softspin.priors.rbm:RBM", "graph": "softspin.priors.graph:GraphPrior"}
)
SAMPLERS: Registry[Any] = Registry(
    "sampler",
    {
        "pcd": "softspin.samplers.gibbs:Gibbs",
        "pa": "softspin.samplers.population:PopulationAnnealing",
        "pt": "softspin.samplers.tempering:ParallelTempering",
    },
)
