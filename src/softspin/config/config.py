"""The configuration of a run, a flat frozen dataclass whose defaults are the published recipe."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from softspin.config.consistency import (
    check_input_flips,
    check_method_settings,
    check_more_samples,
    check_parts,
    default_beta,
    resolved_beta,
    resolved_edges,
)
from softspin.config.migrations import RENAMED_SETTINGS, VERSION, migrate
from softspin.config.phases import LATE, Phase, phases_of
from softspin.config.profiles import profile_values
from softspin.config.replicas import Replica, Variant, merged_variants, replicas_of, variants_of
from softspin.config.settings import Settings
from softspin.config.toml import read_toml
from softspin.config.values import (
    PartSettings,
    complete_part_settings,
    config_arguments,
    declared_settings,
    default_values,
    invalid_value,
    method_settings,
    parse_settings,
    plain,
    setting_hints,
    short_text,
)
from softspin.deprecation import current_names, warn_renamed
from softspin.errors import ConfigError, UnknownNameError, unknown_name
from softspin.graphs import Edges
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS, SAMPLERS, Part
from softspin.structures import STRUCTURES, Shape, structure_name
from softspin.typed import convert

CUSTOM = "custom"
"""Name of a sampler that is passed to `softspin.fit` as an object."""


class Intervals(NamedTuple):
    """Steps between reports, checkpoints and evaluations."""

    report: int
    checkpoint: int
    evaluate: int


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The configuration of a run. Defaults are the published recipe.

    Fields are those of :class:`softspin.config.settings.Settings`. `beta` is resolved at construction: the published
    value for this data set, structure and method, or else the method's default. `profile="quick"`, `"paper"` or
    `"softspin-1"` replaces the defaults of settings that are not given. Without it, :func:`softspin.fit` and
    `softspin train` choose a profile by the data.

    Raises:
        ConfigError: A value is outside its limits, or two settings contradict each other.
        UnknownNameError: No method, structure or other part has this name.

    >>> config = Config(data="mnist", seeds=(0, 1)).with_settings(["betas=20,30", "steps=1e4"])
    >>> config.replicas[:3]
    (Replica(seed=0, beta=20.0), Replica(seed=0, beta=30.0), Replica(seed=1, beta=20.0))
    >>> config.shape.units, config.intervals.evaluate
    (400, 200)
    >>> Config(profile="quick", chains=50).steps
    2000
    >>> Config(chains=0)
    Traceback (most recent call last):
    softspin.errors.ConfigError: chains = 0 is not possible; it must be an integer from 1 to 2147483647
    """

    part_settings: PartSettings = ()
    """Settings declared by the chosen parts, as pairs (name, value)."""
    profile: InitVar[str | None] = None
    """Profile that replaces the defaults of settings that are not given."""

    def __post_init__(self, profile: str | None) -> None:
        # Whether beta was given, for :meth:`replace`. Not a field, so that equal configs compare equal.
        object.__setattr__(self, "_beta_given", self.beta is not None or bool(self.betas))
        for name, hint in setting_hints().items():
            value = getattr(self, name)
            if name == "graph" and isinstance(value, str):
                continue  # resolved below, once the number of units is known
            try:
                object.__setattr__(self, name, convert(hint, value))
            except ValueError as error:
                raise invalid_value(name, value, str(error)) from None
        if self.structure not in STRUCTURES:
            raise unknown_name("structure", self.structure, STRUCTURES)
        if self.prior is None:
            object.__setattr__(self, "prior", "rbm" if self.graph is None else "graph")
        object.__setattr__(self, "part_settings", complete_part_settings(self.part_settings, self.parts))
        if self.graph is not None:
            object.__setattr__(self, "graph", resolved_edges(self.graph, self.shape.units))
        object.__setattr__(self, "beta", resolved_beta(self))
        check_method_settings(self)
        variants_of(self)  # raises if lists do not go together
        check_parts(self)
        for phase in self.phases:
            if any(getattr(phase, name) != getattr(self, name) for name in LATE):
                self.in_phase(phase)  # raises if a part does not accept its settings
        check_input_flips(self)
        check_more_samples(self)

    @property
    def parts(self) -> dict[str, type[Part]]:
        """Classes of the parts by kind, without a custom sampler."""
        found: dict[str, type[Part]] = {
            "method": METHODS.get(self.method),
            "net": NETS.get(self.net),
            "likelihood": LIKELIHOODS.get(self.likelihood),
            "prior": PRIORS.get(self.prior or "rbm"),
        }
        if self.sampler != CUSTOM:
            found["sampler"] = SAMPLERS.get(self.sampler)
        if self.late_sampler is not None and self.late_sampler[1] != self.sampler:
            found["late sampler"] = SAMPLERS.get(self.late_sampler[1])
        return found

    @property
    def given(self) -> frozenset[str]:
        """Names of the settings that were given explicitly. A profile sets none of them."""
        names: frozenset[str] = self._given  # type: ignore[attr-defined]
        return names

    @property
    def chosen_profile(self) -> str | None:
        """The profile that was chosen, or None. It is not stored: its settings are."""
        name: str | None = self.__dict__["profile"]
        return name

    @property
    def options(self) -> dict[str, Any]:
        """Settings declared by the parts, by name."""
        return dict(self.part_settings)

    @property
    def shape(self) -> Shape:
        """Sizes of the model: those of the structure, unless overridden."""
        own = {name: getattr(self, name) for name in Shape._fields if getattr(self, name) is not None}
        return STRUCTURES[self.structure]._replace(**own)

    @property
    def structure_name(self) -> str:
        """Name of the structure with the sizes of this config, or the sizes if there is none.

        >>> Config(groups=1).structure_name, Config(bits_per_group=32).structure_name
        ('1-nonlinear', '2x32 bits, 2x200')
        """
        return structure_name(self.shape)

    @property
    def edges(self) -> Edges | None:
        """Edges of the graph, or None for an RBM."""
        assert not isinstance(self.graph, str)
        return self.graph

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All pairs of a seed and a variant, ordered by seed. Without lists of other settings, a variant is a beta."""
        return replicas_of(self)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Values of the settings that are lists, for each replica of a seed; one without values if there is no list."""
        return variants_of(self)

    def of_replicas(self, name: str) -> list[Any]:
        """The values of a setting for all replicas.

        >>> Config(seeds=(0, 1), learning_rate=(0.1, 0.2)).of_replicas("learning_rate")
        [0.1, 0.2, 0.1, 0.2]

        Args:
            name: Name of a setting that can be a list.

        Returns:
            A value for each replica.
        """
        value = getattr(self, name)
        each = value if isinstance(value, tuple) else (value,) * len(self.variants)
        return [*each] * len(self.seeds)

    def with_variant(self, variant: Mapping[str, Any]) -> Config:
        """The config of the replicas of one variant.

        Args:
            variant: One of :attr:`variants`.

        Returns:
            The config without lists, with the same seeds.
        """
        return self.replace(**{**variant, **({"betas": ()} if "beta" in variant else {})})

    def with_variants(self, variants: Sequence[Mapping[str, Any]]) -> Config:
        """The config of a run with one replica for each of these variants and each seed.

        >>> both = Config().with_variants([{"beta": 20, "learning_rate": 1e-3}, {"beta": 30, "learning_rate": 1e-3}])
        >>> both.betas, both.learning_rate
        ((20.0, 30.0), 0.001)

        Args:
            variants: Values of the same settings for each, by name; settings that can be lists, or `beta`.

        Returns:
            The config; a setting that is the same in all of them is no list.
        """
        return self.replace(**merged_variants(variants))

    def of_replica(self, number: int) -> Config:
        """The config of one replica alone.

        Args:
            number: Number of the replica.

        Returns:
            The config with its seed and without lists.
        """
        variant = self.variants[number % len(self.variants)]
        return self.with_variant(variant).replace(seeds=(self.replicas[number].seed,))

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Settings that change late in training, with their first steps; one phase if nothing changes."""
        return phases_of(self)

    def in_phase(self, phase: Phase) -> Config:
        """The config of a run that has the settings of a phase from its first step to its last.

        Args:
            phase: One of :attr:`phases`.

        Returns:
            The config, whose only phase is this one.
        """
        return self.replace(**{name: getattr(phase, name) for name in LATE}, **dict.fromkeys(LATE.values()))

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
        """Create a config from plain data, such as JSON.

        Args:
            values: Settings by name, of the current or an earlier version.

        Returns:
            The config.
        """
        return cls(**config_arguments(migrate(values)))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Config:
        """Create a config from a TOML file of `key = value` lines; other settings keep their defaults.

        The line `profile = "quick"` chooses a profile.
        Values are TOML values, or strings as in :meth:`with_settings`: `seeds = [0, 1, 2]` or `seeds = "0-2"`.

        Args:
            path: The file.

        Returns:
            The config.

        Raises:
            ConfigError: The file cannot be read, or a setting is invalid.
        """
        values = read_toml(path, "config file")
        try:
            if "version" not in values:  # written by hand
                values = current_names(values, RENAMED_SETTINGS, error=ConfigError)
            values = migrate(values)
            texts = {name: value for name, value in values.items() if isinstance(value, str)}
            return cls(**config_arguments(values | parse_settings(texts, default_values())))
        except (ConfigError, UnknownNameError) as error:
            raise type(error)(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data for JSON.

        Returns:
            All settings with their `version`, as read by :meth:`from_dict`.
        """
        return {"version": VERSION} | self.settings()

    def settings(self) -> dict[str, Any]:
        """All settings as plain data.

        Returns:
            Settings by name, with those of the parts and without those that the method does not use.
        """
        unused = {name for name in method_settings() if name not in METHODS.get(self.method).used_settings()}
        own = {name: plain(getattr(self, name)) for name in setting_hints() if name not in unused}
        return own | {name: plain(value) for name, value in self.part_settings}

    def defaults(self) -> dict[str, Any]:
        """Default values of all settings, for this data set and these parts.

        Returns:
            Defaults by name, with the keys of :meth:`settings`.
        """
        own = {field.name: plain(field.default) for field in dataclasses.fields(Settings)}
        added = {name: plain(one.default) for part in self.parts.values() for name, one in part.settings.items()}
        found = own | added | {"data": self.data, "prior": "rbm", "beta": None if self.betas else default_beta(self)}
        return {name: found[name] for name in self.settings()}

    def replace(self, **changes: Any) -> Config:
        """Copy with other settings. Unlike `dataclasses.replace`, this resolves beta and the profile again.

        Args:
            **changes: New values by name; also `profile`.

        Returns:
            The new config.
        """
        values = {name: getattr(self, name) for name in setting_hints()}
        beta_given: bool = self._beta_given  # type: ignore[attr-defined]
        if not beta_given:
            values["beta"] = None
        if "graph" in changes and "prior" not in changes:
            values["prior"] = None
        changes = current_names(changes, RENAMED_SETTINGS, error=ConfigError)
        profile = changes.pop("profile", self.chosen_profile)
        values |= changes
        given = self.given | changes.keys()
        if profile is not None:
            values |= profile_values(profile, {name: value for name, value in values.items() if name in given})
        new = config_arguments(values)
        declared = declared_settings(new)  # a replaced part takes its settings with it
        kept = {name: value for name, value in self.part_settings if name in declared}
        made = Config(**new | {"part_settings": tuple((kept | dict(new["part_settings"])).items())})
        _remember(made, given, profile)
        return made

    def with_settings(self, settings: Iterable[str]) -> Config:
        """Copy with settings given as text, as on the command line.

        Args:
            settings: Texts `key=value`, such as `beta=30`, `seeds=0-4`, `betas=20,30,40` or `beta=none`.

        Returns:
            The new config.

        Raises:
            ConfigError: A text has no value, or a value is invalid.
        """
        texts = {}
        for text in settings:
            name, equals, value = text.partition("=")
            if not equals:
                raise ConfigError(f"setting '{text}' has no value; write {name.strip()}=VALUE")
            texts[name.strip()] = value
        texts = current_names(texts, RENAMED_SETTINGS, error=ConfigError)
        return self.replace(**parse_settings(texts, {name: getattr(self, name) for name in setting_hints()}))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in RENAMED_SETTINGS:
                raise AttributeError(f"'Config' object has no attribute '{name}'")
            warn_renamed(name, RENAMED_SETTINGS[name])
            return getattr(self, RENAMED_SETTINGS[name])


def _remember(config: Config, given: frozenset[str], profile: str | None) -> None:
    """Set what is not a setting. Not fields, so that equal configs compare equal."""
    object.__setattr__(config, "_given", given)
    object.__setattr__(config, "profile", profile)


_init_by_current_names = Config.__init__


@functools.wraps(_init_by_current_names)
def _init(self: Config, *unnamed: Any, **settings: Any) -> None:
    if unnamed:
        what = f"{short_text(unnamed[0])} has no name"
        raise ConfigError(f"{what}; settings are given by name: softspin.Config(data='digits', steps=500)")
    settings = current_names(settings, RENAMED_SETTINGS, error=ConfigError)
    profile = settings.pop("profile", None)
    _remember(self, frozenset(settings) - {"part_settings"}, profile)
    if profile is not None:
        settings |= profile_values(profile, settings)
    _init_by_current_names(self, **config_arguments(settings))


Config.__init__ = _init  # type: ignore[method-assign]
