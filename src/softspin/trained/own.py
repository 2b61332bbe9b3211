"""A model of networks and a prior that were trained elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.distributions import Boltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.errors import ConfigError, ShapeError
from softspin.evaluation.running import evaluating
from softspin.model import DiscreteVAE
from softspin.nets.custom import check_net
from softspin.parts import LIKELIHOODS, METHODS
from softspin.priors import GivenPrior


def net_of_parts(
    encoder: Sequence[nn.Module], decoder: nn.Module, prior: Boltzmann, spec: DataSpec, *, method: str, data: str
) -> tuple[DiscreteVAE, Config]:
    """Copy networks and prior into one module, with a config that describes them; see :meth:`Model.from_parts`."""
    check_is_boltzmann(prior)
    if isinstance(encoder, nn.Module) or not all(isinstance(net, nn.Module) for net in encoder):
        raise ConfigError("encoder must be a list of networks, one for each group of bits, such as encoder=[net]")
    if not isinstance(decoder, nn.Module):
        raise ConfigError(f"decoder must be a torch.nn.Module, not {type(decoder).__name__}")
    if not isinstance(spec, DataSpec):
        raise ConfigError(f"data must be a Dataset, such as softspin.data.load('mnist'), not {type(spec).__name__}")
    if prior.batch_shape.numel() != 1:
        raise ShapeError(f"the prior has replicas {tuple(prior.batch_shape)}; give the prior of one model")
    groups, units = len(encoder), prior.units
    if not groups or units % groups:
        raise ConfigError(f"{units} units do not divide into {groups} groups; give one network for each group")
    config = Config(
        data=data, method=method, groups=groups, bits_per_group=units // groups, graph=_graph_setting(prior)
    )
    parts = LIKELIHOODS.get(config.likelihood)(config, spec), METHODS.get(config.method)(config)
    own = copy.deepcopy((list(encoder), decoder))
    net = DiscreteVAE(*own, GivenPrior(prior), parts[1], parts[0], spec.mean).to(prior.bias.device)
    with evaluating(net):
        for group, one in enumerate(net.encoder):
            inputs = net.likelihood.inputs + group * net.bits_per_group
            check_net(f"the encoder of group {group + 1}", one, inputs, net.bits_per_group * net.method.outputs_per_bit)
        check_net("the decoder", net.decoder, net.units, net.likelihood.outputs)
    return net, config


def _graph_setting(prior: Boltzmann) -> tuple[tuple[int, int], ...] | None:
    """The setting `graph` that describes a prior; None for an RBM of two equal sides."""
    if 2 * prior.couplings.shape[-1] == 2 * prior.couplings.shape[-2] == prior.units:
        return None
    row, column = (side.tolist() for side in prior.edges())
    pairs = set(zip(row, column, strict=True))
    # A config requires an edge at every unit. That of a unit without couplings has the weight 0.
    for unit in {*range(prior.units)} - {*row, *column}:
        pairs.add((unit - 1, unit) if unit else (0, 1))
    return tuple(sorted(pairs))
