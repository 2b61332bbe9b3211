"""Centred gradients of the prior: those of the energy in z - o, for offsets o near the mean of z.

With G the usual gradient of the loss, the difference of the negative and the positive phase,

    G'_ij = G_ij - o_i G_j - G_i o_j,    G'_i = G_i - sum_j G'_ij o_j.

Both vanish at the same parameters. The centred one hardly depends on which value of a bit is called 1. The offsets are
a running mean of the means of both phases; those of the steps before are used, so that they do not depend on the batch.

References:
    G. Montavon and K.-R. Mueller, 2012, Deep Boltzmann Machines and the Centering Trick.
    J. Melchior, A. Fischer and L. Wiskott, 2016, How to Center Deep Boltzmann Machines, JMLR 17.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.errors import ConfigError
from softspin.model import DiscreteVAE
from softspin.training.adam import Adam

DECAY = 0.99
"""Decay of the running mean per step."""


class Centring:
    """Offsets of the prior, and where its parameters are in Adam's table.

    Args:
        model: The model.
        adam: Adam, which has the parameters of the prior.

    Raises:
        ConfigError: The prior has no couplings that are trained.
    """

    def __init__(self, model: DiscreteVAE, adam: Adam) -> None:
        self.prior = model.prior_parameters
        if not any(own is self.prior.weight for own in adam.parameters):
            raise ConfigError(
                f"centred = true is not possible: prior = {self.prior.name} trains no couplings; set it to false"
            )
        self.offset = torch.full_like(self.prior.bias, 0.5, requires_grad=False)
        """o, `(R, D)`."""
        self.signs = torch.tensor([1.0, -1.0, -1.0]).to(self.prior.bias.device)
        """Weights of the rows in :meth:`apply`. Here, because a captured step must not copy from the host."""
        self.columns: list[slice] = []
        for wanted in (self.prior.bias, self.prior.weight):
            sizes = [parameter.numel() // model.replicas for parameter in adam.parameters]
            index = next(i for i, own in enumerate(adam.parameters) if own is wanted)
            self.columns.append(slice(sum(sizes[:index]), sum(sizes[: index + 1])))

    def apply(self, gradient: Tensor, negative_mean: Tensor, kl_weight: Tensor) -> Tensor:
        """Centre the gradient of the prior, and update the offsets.

        Args:
            gradient: Gradient of all parameters, `(R, P)`.
            negative_mean: E[z] of the negative phase, `(R, D)`.
            kl_weight: Weight of the KL.

        Returns:
            The gradient `(R, P)`, centred for the prior.
        """
        bias_columns, weight_columns = self.columns
        bias = gradient[:, bias_columns]
        weight = gradient[:, weight_columns].reshape(self.prior.weight.shape)
        boltzmann = self.prior.detached(bias.new_zeros(len(bias)))
        # The rows o + G, o and G with weights 1, -1 and -1 have the pairs o_i G_j + G_i o_j.
        rows = torch.stack([self.offset + bias, self.offset, bias], dim=1)
        pairs = boltzmann.weighted_pairs(rows, self.signs.to(rows.dtype))
        weight = weight - self.prior.weight_moments(pairs)
        change = boltzmann.with_parameters(torch.zeros_like(bias), self.prior.couplings(weight))
        centred = gradient.clone()
        centred[:, weight_columns] = weight.flatten(1)
        centred[:, bias_columns] = bias - change.field(self.offset)
        # The positive mean is the negative one minus the gradient; without a KL nothing is known of it.
        positive = negative_mean - torch.where(kl_weight > 0, bias / kl_weight.clamp_min(1e-6), 0.0)
        mean = (0.5 * (negative_mean + positive)).clamp(0, 1)
        self.offset.lerp_(mean, 1 - DECAY)
        return centred
