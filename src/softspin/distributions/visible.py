"""The distribution of the visible units of a Boltzmann machine, with the hidden units summed out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softspin.distributions.boltzmann import Boltzmann
from softspin.distributions.checks import check_is_boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.numerics import align, replica_matmul, softplus


class VisibleMarginal:
    """p(v) of the first n units of a Boltzmann machine whose other units are not coupled among each other.

    With z = (v, h), b and c the biases of visible and hidden units, and F the free energy,

        p(v) = e^(-F(v)) / Z,   F(v) = -b.v - v.W_vv.v / 2 - sum_j log(1 + e^(c_j + v.W_vh)_j).

    W_vv is 0 for an RBM. Sums over hidden units are exact. Nothing is read on the host, except by `check`.

    Args:
        boltzmann: Boltzmann machine over n + m units.
        visible: Number of visible units n, the first ones; for an RBM, those of its left side.

    Raises:
        ShapeError: There are fewer than n units, or n is below 1.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> rbm = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
        >>> marginal = VisibleMarginal(rbm, 2)
        >>> v = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> marginal.log_prob(v).exp().sum().round(decimals=4)
        tensor(1.)
    """

    def __init__(self, boltzmann: Boltzmann, visible: int) -> None:
        check_is_boltzmann(boltzmann)
        if not 1 <= visible <= boltzmann.units:
            raise ShapeError(f"{visible} visible units of {boltzmann!r}; there must be from 1 to {boltzmann.units}")
        self.boltzmann, self.visible = boltzmann, visible
        self._among, self._across = boltzmann.split(visible)

    def check(self) -> None:
        """Raise unless the hidden units are independent given the visible ones.

        Raises:
            SupportError: Two hidden units are coupled.
        """
        first, second = self.boltzmann.edges()
        coupled = (first >= self.visible).nonzero()
        if len(coupled):
            pair = f"{int(first[coupled[0]])} and {int(second[coupled[0]])}"
            raise SupportError(
                f"the hidden units {pair} are coupled; a likelihood needs hidden units that are coupled with visible "
                f"ones (the first {self.visible}) only"
            )

    def hidden_field(self, v: Any) -> Tensor:
        """Compute the log odds c + v.W_vh of the hidden units given the visible ones.

        Args:
            v: States of the visible units, `(*replicas, ..., n)`.

        Returns:
            Log odds, `(*replicas, ..., m)`.
        """
        v = self._states(v)
        return align(self.boltzmann.bias[..., self.visible :], v.ndim) + replica_matmul(v, self._across)

    def free_energy(self, v: Any) -> Tensor:
        """Compute F(v) = -log of the sum of e^(-E(v, h)) over the hidden states h.

        Args:
            v: States of the visible units, `(*replicas, ..., n)`.

        Returns:
            Free energies, `(*replicas, ...)`.
        """
        v = self._states(v)
        field = align(self.boltzmann.bias[..., : self.visible], v.ndim)
        if self._among is not None:
            field = field + 0.5 * replica_matmul(v, self._among)
        return -(v * field).sum(-1) - softplus(self.hidden_field(v)).sum(-1)

    def log_prob(self, v: Any) -> Tensor:
        """Compute log p(v) = -F(v) - log Z, with log Z of the Boltzmann machine.

        Args:
            v: States of the visible units, `(*replicas, ..., n)`.

        Returns:
            Log probabilities, `(*replicas, ...)`.
        """
        minus_energy = -self.free_energy(v)
        return minus_energy - align(self.boltzmann.log_z, minus_energy.ndim, event_dims=0)

    def _states(self, v: Any) -> Tensor:
        states = self.boltzmann.as_states("visible units", v)
        if states.shape[-1:] != (self.visible,):
            raise ShapeError(
                f"visible units of shape {tuple(states.shape)}; the last dimension must be the {self.visible} visible "
                "units"
            )
        return states

    def __repr__(self) -> str:
        return f"VisibleMarginal({self.boltzmann!r}, {self.visible} visible)"


def joint_means(marginal: VisibleMarginal, v: Tensor) -> Tensor:
    """Visible states, and the means of the hidden units given them.

    Args:
        marginal: Distribution of the visible units.
        v: Their states, `(*replicas, ..., n)`.

    Returns:
        States and means, `(*replicas, ..., n + m)`.
    """
    return torch.cat([v, torch.sigmoid(marginal.hidden_field(v))], dim=-1)
