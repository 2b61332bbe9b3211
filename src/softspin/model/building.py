"""The model that a config describes, with initial parameters."""

from __future__ import annotations

import torch

from softspin.conditions import Condition
from softspin.config import Config
from softspin.data.conditions import ConditionTable, make_table
from softspin.data.dataset import DataSpec
from softspin.likelihoods import Likelihood
from softspin.methods import Method
from softspin.model.vae import DiscreteVAE
from softspin.nets import Net, NetSpec
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS
from softspin.priors import Prior


def build(config: Config, data: DataSpec) -> DiscreteVAE:
    """Build the model that a config describes. The parameters of a replica depend on its seed alone.

    Args:
        config: Configuration of the run.
        data: Shape and mean of the data.

    Returns:
        The model, with initial parameters.
    """
    shape = config.shape
    generators = [torch.Generator().manual_seed(replica.seed) for replica in config.replicas]
    likelihood: Likelihood = LIKELIHOODS.get(config.likelihood)(config, data)
    method: type[Method] = METHODS.get(config.method)
    net: type[Net] = NETS.get(config.net)
    outputs = shape.bits_per_group * method.outputs_per_bit
    condition = None
    if data.condition is not None:
        raw = data.condition
        table = raw if isinstance(raw, ConditionTable) else make_table(raw, config.condition_values, data.class_names)
        condition = Condition(table, len(config.replicas), shape.units)
    given = () if condition is None else (condition.columns,)
    encoder = []
    for group in range(shape.groups):
        inputs = (likelihood.inputs, *given, *([group * shape.bits_per_group] if group else []))
        spec = NetSpec("encoder", group, inputs, outputs, data, likelihood.shape, likelihood.adjacent)
        encoder.append(net.build(config, spec, generators))
    ends = (*given, shape.units), likelihood.outputs
    spec = NetSpec("decoder", 0, *ends, data, likelihood.shape, likelihood.adjacent)
    decoder = net.build(config, spec, generators)
    prior: Prior = PRIORS.get(config.prior or "rbm").build(config)
    return DiscreteVAE(encoder, decoder, prior, method(config, generators), likelihood, data.mean, condition)
