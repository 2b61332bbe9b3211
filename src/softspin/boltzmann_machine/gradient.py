"""The gradient of the log-likelihood of a Boltzmann machine, centred or not."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann, VisibleMarginal
from softspin.distributions.visible import joint_means
from softspin.priors.base import Prior


class Gradient(NamedTuple):
    """Direction of ascent of the mean log-likelihood, and the mean activity of all units given the data."""

    bias: Tensor
    """`(R, D)`."""
    weight: Tensor
    """In the shape of the parameter."""
    activity: Tensor
    """Means of the visible data and of the hidden units given them, `(R, D)`."""


def likelihood_gradient(
    prior: Prior, boltzmann: Boltzmann, data: Tensor, samples: Tensor, offset: Tensor | None = None
) -> Gradient:
    """Estimate the gradient of the mean of log p(v), as the difference of moments under data and model.

    With z = (v, h), where h are the means of the hidden units given v,

        dW_ij = <z_i z_j>_data - <z_i z_j>_model,   db_i = <z_i>_data - <z_i>_model.

    With an offset o, the parameters are those of the energy in z - o, and the gradient in the usual parameters is

        dW_ij = <(z_i - o_i)(z_j - o_j)>_data - <(z_i - o_i)(z_j - o_j)>_model,
        db_i = <z_i>_data - <z_i>_model - sum_j dW_ij o_j.

    Both vanish at the same parameters. The centred one hardly depends on which value of a bit is called 1. Data and
    samples are rows of one matrix with weights of opposite signs, so there is one product for each formula.

    Args:
        prior: The parameters.
        boltzmann: Boltzmann machine at these parameters.
        data: Data, `(R, batch, n)`.
        samples: Visible units of samples of the model, `(R, chains, n)`.
        offset: Offsets o, `(R, D)`; None for the usual gradient.

    Returns:
        The gradient.

    References:
        G. Montavon and K.-R. Mueller, 2012, Deep Boltzmann Machines and the Centering Trick.
        J. Melchior, A. Fischer and L. Wiskott, 2016, How to Center Deep Boltzmann Machines, JMLR 17.
    """
    batch, chains = data.shape[-2], samples.shape[-2]
    z = joint_means(VisibleMarginal(boltzmann, data.shape[-1]), torch.cat([data, samples], dim=-2))
    activity = z[:, :batch].mean(-2)
    weights = torch.cat([z.new_full((batch,), 1 / batch), z.new_full((chains,), -1 / chains)])
    if offset is not None:
        z = z - offset[:, None]
    bias = (weights[:, None] * z).sum(-2)
    weight = prior.weight_moments(boltzmann.weighted_pairs(z, weights))
    if offset is not None:
        change = boltzmann.with_parameters(torch.zeros_like(bias), prior.couplings(weight))
        bias = bias - change.field(offset)
    return Gradient(bias, weight, activity)
