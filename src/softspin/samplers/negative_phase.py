"""The negative phase: E[z] and E[z z'] from samples, which is the gradient of log Z."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.numerics import carry_gradient
from softspin.samplers.primitives import check_chains


class NegativePhase(NamedTuple):
    """Estimated moments of a Boltzmann machine: the gradients of log Z with respect to bias and couplings."""

    mean: Tensor
    """E[z], `(*replicas, D)`."""
    pair: Tensor
    """E[left right'], `(*replicas, n, m)`, of an RBM; E[z z'], `(*replicas, D, D)`, of any other graph."""


@torch.no_grad()
def negative_phase(boltzmann: Boltzmann, z: Tensor) -> NegativePhase:
    """Rao-Blackwellized moments of samples.

    With zhat_i = p(z_i = 1 | all other units),

        E[z_i] ~ mean of zhat_i,    E[z_i z_j] ~ mean of (zhat_i z_j + z_i zhat_j) / 2.

    For an RBM this is the conditional mean of one side given the other, averaged over both directions. On any other
    graph the formulas hold for each unit, whatever its color. The estimate is unbiased if the samples come from the
    Boltzmann machine, and has less variance than z z'. Nothing is read on the host if the Boltzmann machine does not
    validate.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2))
    >>> negative_phase(boltzmann, torch.tensor([[1.0, 1.0, 0.0]]))
    NegativePhase(mean=tensor([0.5000, 0.5000, 0.5000]), pair=tensor([[0.5000, 0.2500]]))

    Args:
        boltzmann: Boltzmann machine.
        z: Samples of it, `(*replicas, ..., D)`.

    Returns:
        The moments.
    """
    check_chains(z, boltzmann, chain_dims=None, what="the samples")
    hard, soft = (
        x.reshape(*boltzmann.batch_shape, -1, boltzmann.units) for x in (z, torch.sigmoid(boltzmann.field(z)))
    )
    mean = soft.mean(-2)
    return NegativePhase(mean, boltzmann.pair_moments(hard, soft, mean))


def log_z_with_gradient(boltzmann: Boltzmann, value: Tensor, z: Tensor) -> Tensor:
    """log Z as a tensor with a given value and a gradient from samples.

    Pass it to `Boltzmann(..., log_z=...)` in training: d log Z / d bias = E[z], d log Z / d weight = E[left right'], by
    :func:`negative_phase`.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> bias, weight = torch.zeros(3, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    >>> boltzmann = BipartiteBoltzmann(bias, weight)
    >>> log_z = log_z_with_gradient(boltzmann, torch.tensor(2.08), torch.tensor([[1.0, 1.0, 0.0]]))
    >>> log_z.backward(); log_z.item(), bias.grad, weight.grad
    (2.07..., tensor([0.5000, 0.5000, 0.5000]), tensor([[0.5000, 0.2500]]))

    Args:
        boltzmann: Boltzmann machine whose parameters receive the gradient.
        value: log Z, `(*replicas,)`.
        z: Samples, `(*replicas, ..., D)`.

    Returns:
        log Z, `(*replicas,)`.

    Raises:
        ShapeError: There is not one value per replica.
    """
    if value.shape != boltzmann.batch_shape:
        raise ShapeError(
            f"log Z of shape {tuple(value.shape)} for replicas {tuple(boltzmann.batch_shape)}; give one per replica"
        )
    mean, pair = negative_phase(boltzmann, z)
    linear = (boltzmann.bias * mean).sum(-1)
    return carry_gradient(value.to(boltzmann.bias), linear + boltzmann.coupling_term(pair))
