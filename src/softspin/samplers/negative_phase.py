"""The negative phase: E[z] and E[z z'] from samples, which is the gradient of log Z."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.numerics import carry_gradient


class NegativePhase(NamedTuple):
    """Estimated moments of a machine; the gradients of log Z with respect to bias and couplings."""

    mean: Tensor
    """E[z], `(*replicas, D)`."""
    pair: Tensor
    """E[left right'], `(*replicas, n, m)`, of an RBM; E[z z'], `(*replicas, D, D)`, of any other graph."""


@torch.no_grad()
def negative_phase(machine: Boltzmann, z: Tensor) -> NegativePhase:
    """Moments of samples z `(*replicas, ..., D)`, Rao-Blackwellised.

    With zhat_i = p(z_i = 1 | all other units),

        E[z_i] ~ mean of zhat_i,    E[z_i z_j] ~ mean of (zhat_i z_j + z_i zhat_j) / 2,

    for an RBM: one side by its conditional mean given the other, both ways round, averaged. On any other graph the
    same two formulas hold unit by unit, without regard to colours. Unbiased if the samples are the machine's; less
    noisy than z z'.

    >>> machine = BipartiteBoltzmann(torch.zeros(3), torch.zeros(1, 2))
    >>> negative_phase(machine, torch.tensor([[1.0, 1.0, 0.0]]))
    NegativePhase(mean=tensor([0.5000, 0.5000, 0.5000]), pair=tensor([[0.5000, 0.2500]]))
    """
    soft = torch.sigmoid(machine.field(z))
    replicas = len(machine.batch_shape)
    hard, soft = (x.reshape(*machine.batch_shape, -1, machine.units) for x in (z.to(soft), soft))
    count = hard.shape[replicas]
    mean = soft.mean(-2)
    if isinstance(machine, BipartiteBoltzmann):
        n = machine.left
        both = soft[..., :n].mT @ hard[..., n:] + hard[..., :n].mT @ soft[..., n:]
        return NegativePhase(mean, both / (2 * count))
    cross = soft.mT @ hard / count
    pair = (cross + cross.mT) / 2
    pair = pair - torch.diag_embed(pair.diagonal(dim1=-2, dim2=-1)) + torch.diag_embed(mean)
    return NegativePhase(mean, pair)


def log_z_with_gradient(machine: Boltzmann, value: Tensor, moments: NegativePhase) -> Tensor:
    """log Z in one tensor `(*replicas,)`: its value from an estimate, its gradient from samples.

    What `Boltzmann(..., log_z=...)` takes in training: d log Z / d bias = E[z], d log Z / d weight = E[left right'].

    >>> bias, weight = torch.zeros(3, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    >>> machine = BipartiteBoltzmann(bias, weight)
    >>> moments = NegativePhase(torch.full((3,), 0.5), torch.full((1, 2), 0.25))
    >>> log_z = log_z_with_gradient(machine, torch.tensor(2.08), moments)
    >>> log_z.backward(); log_z.item(), bias.grad, weight.grad
    (2.07..., tensor([0.5000, 0.5000, 0.5000]), tensor([[0.2500, 0.2500]]))
    """
    linear = (machine.bias * moments.mean.detach()).sum(-1)
    if isinstance(machine, BipartiteBoltzmann):
        quadratic = (machine.weight * moments.pair.detach()).sum((-2, -1))
    else:
        quadratic = (machine.coupling * moments.pair.detach()).sum((-2, -1)) / 2
    return carry_gradient(value.to(machine.bias), linear + quadratic)
