"""Replicas of a run: all pairs of a seed and a variant, in which settings that are lists have one value each.

Lists have equal lengths and go together: `betas=20,30 decoder_dropout=0.1,0.2` has two variants, not four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from softspin.config.settings import Settings
from softspin.config.values import plain, setting_hints, short_text
from softspin.errors import ConfigError

MOST_REPLICAS = 10_000

Variant = dict[str, Any]
"""Values of the settings that are lists, by name; `beta` for `betas`."""


class _SeedAndBeta(NamedTuple):
    seed: int
    beta: float | None
    """None for methods without a relaxation."""


class Replica(_SeedAndBeta):
    """Seed and beta, a pair, of one of the models that a run trains in parallel; and its other settings."""

    settings: tuple[tuple[str, Any], ...] = ()
    """Names and values of the other settings that are lists."""

    @classmethod
    def make(cls, seed: int, beta: float | None, settings: Mapping[str, Any]) -> Replica:
        """Make a replica with other settings.

        Args:
            seed: Its seed.
            beta: Its beta.
            settings: The other settings that are lists, by name.

        Returns:
            The replica.
        """
        made = cls(seed, beta)
        made.settings = tuple(settings.items())
        return made

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data.

        Returns:
            All values by name.
        """
        return {"seed": self.seed, "beta": self.beta, **{name: plain(value) for name, value in self.settings}}


@cache
def list_settings() -> tuple[str, ...]:
    """Names of the settings, besides `betas`, that can be a list with one value for each variant."""
    return tuple(
        name
        for name, hint in setting_hints().items()
        if any(get_origin(one) is tuple for one in get_args(hint)[1:])
        and not any(get_origin(one) is tuple for one in get_args(hint)[:1])
    )


def variants_of(settings: Settings) -> tuple[Variant, ...]:
    """The variants of a config.

    Args:
        settings: The config.

    Returns:
        Values by name, for each variant; one without values if no setting is a list.

    Raises:
        ConfigError: Lists have different lengths, or two variants are equal, or there are too many replicas.
    """
    lists = {name: value for name in list_settings() if isinstance(value := getattr(settings, name), tuple)}
    if settings.betas:
        lists = {"betas": settings.betas, **lists}
    names = list(lists)
    for name in names[1:]:
        if (first := len(lists[names[0]])) != len(lists[name]):
            raise ConfigError(
                f"{names[0]} = {short_text(lists[names[0]])} has {first} values, {name} = {short_text(lists[name])} "
                f"has {len(lists[name])}; lists go together, so give one value for each replica of a seed"
            )
    keys = ["beta" if name == "betas" else name for name in names]
    found = tuple(dict(zip(keys, values, strict=True)) for values in zip(*lists.values(), strict=True)) or ({},)
    count = len(found)
    if len(settings.seeds) * count > MOST_REPLICAS:
        what = "betas" if names == ["betas"] else "variants"
        raise ConfigError(
            f"{len(settings.seeds):,} seeds x {count:,} {what} are too many replicas for one run; at most "
            f"{MOST_REPLICAS:,} are possible"
        )
    for number, one in enumerate(found):
        if one in found[:number]:
            if names == ["betas"]:
                text = ", ".join(f"{beta:g}" for beta in settings.betas)
                raise ConfigError(
                    f"betas = [{text}] is not possible; it must be different finite numbers above 0, as in 20,30,40"
                )
            text = ", ".join(f"{name} = {value}" for name, value in one.items())
            raise ConfigError(f"the variant {text} is there twice; replicas of a seed must differ")
    return found


def replicas_of(settings: Settings) -> tuple[Replica, ...]:
    """All pairs of a seed and a variant, ordered by seed.

    Args:
        settings: The config.

    Returns:
        The replicas.
    """
    variants = variants_of(settings)
    return tuple(
        Replica.make(seed, one.get("beta", settings.beta), {k: v for k, v in one.items() if k != "beta"})
        for seed in settings.seeds
        for one in variants
    )


def merged_variants(variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Settings of a config that has these variants; the reverse of :func:`variants_of`.

    Args:
        variants: Values of the same settings for each, by name.

    Returns:
        Settings by name; one that is the same in all variants is no list.
    """
    settings: dict[str, Any] = {}
    for name in variants[0]:
        values = tuple(one[name] for one in variants)
        is_list = len(dict.fromkeys(values)) > 1
        if name == "beta":
            settings |= {"beta": None if is_list else values[0], "betas": values if is_list else ()}
        else:
            settings[name] = values if is_list else values[0]
    return settings
