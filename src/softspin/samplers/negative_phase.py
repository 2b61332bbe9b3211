"""The negative phase: E[z] and E[z z'] from samples, which is the gradient of log Z."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import warn_renamed
from softspin.distributions import Boltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.errors import ShapeError
from softspin.numerics import carry_gradient, real_tensor
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
    check_is_boltzmann(boltzmann)
    z = boltzmann.as_states("the samples", z)
    check_chains(z, boltzmann, chain_dims=None, what="the samples")
    hard, soft = (
        x.reshape(*boltzmann.batch_shape, -1, boltzmann.units) for x in (z, torch.sigmoid(boltzmann.field(z)))
    )
    mean = soft.mean(-2)
    return NegativePhase(mean, boltzmann.pair_moments(hard, soft, mean))


def with_negative_phase(boltzmann: Boltzmann, samples: Tensor, log_z: Tensor | float) -> Boltzmann:
    """The same Boltzmann machine, with a given value of log Z and the gradient of log Z from samples.

    Use it in a training loop: wherever log Z of the result enters a loss, d log Z / d bias = E[z] and
    d log Z / d weight = E[left right'] reach the parameters, by :func:`negative_phase`. The samples come from a sampler
    at the same parameters; :meth:`softspin.samplers.PopulationAnnealing.log_z` is a value that costs nothing.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> bias, weight = torch.zeros(3, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    >>> boltzmann = BipartiteBoltzmann(bias, weight)
    >>> prior = with_negative_phase(boltzmann, torch.tensor([[1.0, 1.0, 0.0]]), log_z=2.08)
    >>> prior.log_z.backward(); prior.log_z.item(), bias.grad, weight.grad
    (2.07..., tensor([0.5000, 0.5000, 0.5000]), tensor([[0.5000, 0.2500]]))

    Args:
        boltzmann: Boltzmann machine whose parameters receive the gradient.
        samples: Samples of it, `(*replicas, ..., D)`.
        log_z: Value of log Z, `(*replicas,)`, such as the estimate of a sampler. The gradient does not depend on it.

    Returns:
        The Boltzmann machine, with this log Z.

    Raises:
        ShapeError: There is not one value per replica, or the samples are not of this Boltzmann machine.
    """
    check_is_boltzmann(boltzmann)
    value = real_tensor("log_z", log_z)
    if value.shape != boltzmann.batch_shape:
        raise ShapeError(
            f"log Z of shape {tuple(value.shape)} for replicas {tuple(boltzmann.batch_shape)}; give one per replica"
        )
    mean, pair = negative_phase(boltzmann, samples)
    linear = (boltzmann.bias * mean).sum(-1)
    return boltzmann.with_log_z(carry_gradient(value.to(boltzmann.bias), linear + boltzmann.coupling_term(pair)))


def log_z_with_gradient(boltzmann: Boltzmann, value: Tensor, z: Tensor) -> Tensor:
    """Deprecated name of :func:`with_negative_phase`, with other arguments; it returned log Z alone.

    Args:
        boltzmann: Boltzmann machine whose parameters receive the gradient.
        value: log Z, `(*replicas,)`.
        z: Samples, `(*replicas, ..., D)`.

    Returns:
        log Z, `(*replicas,)`.
    """
    warn_renamed("log_z_with_gradient", "with_negative_phase")
    return with_negative_phase(boltzmann, z, value).log_z
