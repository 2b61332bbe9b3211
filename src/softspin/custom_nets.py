"""Models with custom networks: build one, or restore its parameters. Files hold no code, so the networks are given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.errors import ConfigError, ShapeError
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE, build
from softspin.nets.custom import check_net
from softspin.stored_model import build_empty, fill, restore

Encoder = nn.Module | Sequence[nn.Module]
"""One module for each group of latent bits; a model with one group takes the module itself."""


def with_nets(config: Config, data: DataSpec, encoder: Encoder | None, decoder: nn.Module | None) -> DiscreteVAE:
    """Build the model of a config with custom networks.

    Args:
        config: Settings of the run; one replica.
        data: Shape and mean of the images.
        encoder: Custom encoder networks, one for each group; None for those of the config.
        decoder: Custom decoder network; None for that of the config.

    Returns:
        The model, untrained.

    Raises:
        ConfigError: There are several replicas, or not one encoder for each group.
        ShapeError: A network has the wrong input or output size.
    """
    nets = _checked(config, encoder, decoder)
    return _replaced(build(config, data), nets, decoder)


def restore_with_nets(
    config: Config,
    tensors: Mapping[str, Tensor],
    shape: tuple[int, ...] | None,
    encoder: Encoder | None,
    decoder: nn.Module | None,
) -> DiscreteVAE:
    """Build the model of a config with stored tensors; custom networks are given, and get their parameters.

    Args:
        config: Configuration of the run.
        tensors: Tensors by name, as in the model's `state_dict`.
        shape: Shape of an image; if None, the data are one row of features.
        encoder: Custom encoder networks, one for each group; None for those of the config.
        decoder: Custom decoder network; None for that of the config.

    Returns:
        The model.

    Raises:
        ConfigError: There are several replicas, or not one encoder for each group.
        ShapeError: A network is missing, or the tensors do not match the model.
        SupportError: A tensor has another type or non-finite values, or beta differs from the config.
    """
    for part in custom_parts(tensors):
        if {"encoder": encoder, "decoder": decoder}[part] is None:
            raise ShapeError(f"its {part} is a custom network, which files do not hold; give it: {part}=...")
    if encoder is None and decoder is None:
        return restore(config, tensors, shape)
    nets = _checked(config, encoder, decoder)
    built_in = (config.shape.groups if encoder is None else 0) + (decoder is None)
    if not built_in:  # the nets of an untrusted config are not used, so their size must not matter
        config = config.replace(layers=0)
    model = _replaced(build_empty(config, tensors, shape, built_in), nets, decoder)
    fill(model, config, tensors)
    return model


def custom_parts(tensors: Iterable[str]) -> list[str]:
    """Parts of a stored model with custom networks.

    >>> custom_parts(["mean", "encoder.0.linears.0.weight", "decoder.net.weight"])
    ['decoder']

    Args:
        tensors: Names of the tensors.

    Returns:
        `encoder`, `decoder`, both or none.
    """
    names = list(tensors)
    return [part for part in ("encoder", "decoder") if any(re.match(rf"{part}\.(\d+\.)?net\.", name) for name in names)]


def _checked(config: Config, encoder: Encoder | None, decoder: nn.Module | None) -> list[nn.Module] | None:
    """The encoder networks as a list, or None for those of the config."""
    if len(config.replicas) != 1:
        raise ConfigError("custom networks support one replica; give one seed and one beta")
    if decoder is not None and not isinstance(decoder, nn.Module):
        raise ConfigError(f"decoder = a {type(decoder).__name__} is not a module; give a torch.nn.Module")
    if encoder is None:
        return None
    # A Sequential is one network, although it is iterable.
    single = isinstance(encoder, nn.Module) and not isinstance(encoder, nn.ModuleList)
    several = encoder if isinstance(encoder, list | tuple | nn.ModuleList) else [encoder]
    nets: list[Any] = [encoder] if single else list(several)
    if not all(isinstance(net, nn.Module) for net in nets):
        raise ConfigError(
            f"encoder = a {type(encoder).__name__} is not a list of modules; give a torch.nn.Module for each group"
        )
    if len(nets) != config.shape.groups:
        raise ConfigError(f"{len(nets)} encoder networks for {config.shape.groups} groups; give one for each group")
    return nets


def _replaced(model: DiscreteVAE, encoder: list[nn.Module] | None, decoder: nn.Module | None) -> DiscreteVAE:
    """The model with other networks, each checked by a forward pass."""
    nets = list(model.encoder) if encoder is None else encoder
    own = DiscreteVAE(
        nets,
        decoder or model.decoder,
        model.prior_parameters,
        model.method,
        model.likelihood,
        model.mean,
        model.condition,
    )
    given = 0 if own.condition is None else own.condition.columns
    outputs, features = own.bits_per_group * own.method.outputs_per_bit, own.likelihood.inputs + given
    with evaluating(own):
        for group, net in enumerate(own.encoder if encoder is not None else ()):
            check_net(f"the encoder of group {group + 1}", net, features + group * own.bits_per_group, outputs)
        if decoder is not None:
            check_net("the decoder", own.decoder, own.units + given, own.likelihood.outputs)
    return own
