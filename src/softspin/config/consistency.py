"""Settings that depend on others: the resolved values of beta and graph, and checks that settings go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softspin.config.fields import Pairs
from softspin.config.settings import Settings
from softspin.config.values import invalid_value, method_settings, plain, short_text
from softspin.errors import ConfigError, SoftspinError
from softspin.graphs import Edges, checked_edges, read_edges
from softspin.paper import published_beta
from softspin.parts import LIKELIHOODS, METHODS
from softspin.typed import convert

if TYPE_CHECKING:
    from softspin.config.config import Config


def check_more_samples(settings: Settings) -> None:
    """Raise ConfigError unless `more_test_samples` are more than `test_samples`."""
    more, few = settings.more_test_samples, settings.test_samples
    if more is not None and more <= few:
        raise ConfigError(f"more_test_samples = {more} is not possible; it must be above test_samples = {few}, or none")


def default_beta(settings: Settings) -> float | None:
    """The published value for this data set, structure and method, or else the method's default."""
    method = METHODS.get(settings.method)
    published = published_beta(settings.data, settings.structure, settings.method)
    return (method.default_beta if published is None else published) if method.uses_beta else None


def resolved_beta(settings: Settings) -> float | None:
    """The given beta, or its default; None for a list of betas, and for a method without a relaxation.

    Args:
        settings: The config.

    Returns:
        The value.

    Raises:
        ConfigError: Both beta and betas are given, or one of them for a method without a relaxation.
    """
    if settings.beta is not None and settings.betas:
        raise ConfigError(
            f"beta = {settings.beta:g} and betas = {short_text(settings.betas)} exclude each other; set one to none"
        )
    given = settings.beta is not None or bool(settings.betas)
    if given and not METHODS.get(settings.method).uses_beta:
        raise ConfigError(f"beta cannot be set for '{settings.method}', which has no relaxation")
    return settings.beta if given else default_beta(settings)


def resolved_edges(graph: Pairs | str, units: int) -> Edges:
    """The sorted edges of a graph, so that a run stores the edges and not a file name.

    Args:
        graph: Pairs of units, or the name or file of a graph.
        units: Number of units.

    Returns:
        The edges.

    Raises:
        ConfigError: They are not pairs of units.
    """
    pairs = read_edges(graph, units) if isinstance(graph, str) else graph
    try:
        pairs = convert(Pairs, pairs)
    except ValueError as error:
        raise invalid_value("graph", pairs, str(error)) from None
    return checked_edges(pairs, units)


def check_method_settings(settings: Settings) -> None:
    """Raise a ConfigError if a setting is not the default one, and the method does not use it."""
    uses = METHODS.get(settings.method).used_settings()
    for name, default in method_settings().items():
        value = getattr(settings, name)
        if name not in uses and value != default:
            known = f"it has {', '.join(uses)}" if uses else "it has none of its kind"
            raise ConfigError(
                f"{name} = {short_text(value)} is not possible for '{settings.method}', which has no such setting; "
                f"{known}; leave it at {short_text(default)}"
            )


def check_parts(config: Config) -> None:
    """Raise a ConfigError if a part does not accept the config, or cannot be compiled as the config says."""
    for kind, part in config.parts.items():
        if config.compile == "on" and not part.compilable:
            raise ConfigError(f"compile = on is not possible with the {kind} '{part.name}'; use auto")
        try:
            part.check_config(config)
        except SoftspinError:
            raise
        except ValueError as error:
            raise ConfigError(str(error)) from error


def check_input_flips(config: Config) -> None:
    """Raise a ConfigError if bits of the input are to be flipped, and the data are not bits."""
    if any(config.of_replicas("input_flips")) and not LIKELIHOODS.get(config.likelihood).binary:
        raise ConfigError(
            f"input_flips = {plain(config.input_flips)} is not possible with likelihood = {config.likelihood}, whose "
            "data are not bits; set it to 0"
        )
