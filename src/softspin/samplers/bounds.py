"""Bounds on log Z that hold with certainty, up to rounding in float64: from found states, and from above.

Every state adds a positive term to Z, so a sum over some distinct states is a lower bound. One block of units, such as
one side of an RBM, is summed out in closed form. An upper bound replaces each product of two bits by a linear function
that is nowhere smaller; then the units are independent.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.numerics import softplus

KEY_BITS = 52
"""Largest number of bits of a key of a state: sums of integers below 2**53 are exact in float64, in any order."""
ROUNDING = 1e-10
"""Relative rounding error of a bound in float64, with a large margin."""
BOUND_STEPS = 200
"""Steps of gradient descent on the upper bound. Every step gives a valid bound; more steps make it tighter."""


class Known(NamedTuple):
    """Distinct partial states of a Boltzmann machine with one block summed out, and their weights.

    Equal states have equal keys. Should two different states have the same key, one of them is left out.
    """

    block: int
    """Index of the block that is summed out."""
    keys: Tensor
    """Sorted keys of the states, `(*replicas, N)` int64; duplicates are included."""
    log_weights: Tensor
    """log of the sum of e^(-E) over the block, `(*replicas, N)`; -inf for duplicates."""

    @property
    def log_sum(self) -> Tensor:
        """log of the sum of all weights, `(*replicas,)`."""
        return self.log_weights.logsumexp(-1)

    @property
    def bound(self) -> Tensor:
        """Lower bound on log Z, `(*replicas,)`: `log_sum` less what rounding could have added to it."""
        return self.log_sum - ROUNDING * (1 + self.log_sum.abs())


def precise(boltzmann: Boltzmann) -> Boltzmann:
    """The same Boltzmann machine in float64, without gradients."""
    return boltzmann.with_parameters(*(x.detach().to(torch.float64) for x in (boltzmann.bias, boltzmann.couplings)))


def block_log_weight(boltzmann: Boltzmann, block: int, z: Tensor) -> Tensor:
    """log of the sum of e^(-E) over all states of one block, given the other units.

    Args:
        boltzmann: Boltzmann machine.
        block: Index into its blocks.
        z: States `(*replicas, ..., D)`; the values of the block are not used.

    Returns:
        Minus the free energy of the other units, `(*replicas, ...)`.
    """
    rest = z.clone()
    rest[..., boltzmann.blocks[block]] = 0
    return softplus(boltzmann.block_field(block, rest)).sum(-1) - boltzmann.energy(rest)


def state_keys(z: Tensor, left_out: slice | Tensor | None = None) -> Tensor:
    """Keys of states `(..., D)`, `(...,)` int64: a random linear function of the bits, without those left out."""
    units = z.shape[-1]
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(1, (1 << KEY_BITS) // units, (units,), generator=generator).to(z.device, torch.float64)
    if left_out is not None:
        factors[left_out] = 0
    return (z.to(torch.float64) @ factors).to(torch.int64)


def distinct(z: Tensor) -> Tensor:
    """Which states `(..., N, D)` are the first of their kind, `(..., N)`.

    >>> distinct(torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])).tolist()
    [True, True, False]
    """
    keys, order = state_keys(z).sort(dim=-1, stable=True)
    return torch.ones_like(keys, dtype=torch.bool).scatter(-1, order, ~_repeated(keys))


def _repeated(keys: Tensor) -> Tensor:
    """Which sorted keys equal the one before."""
    same = torch.zeros_like(keys, dtype=torch.bool)
    same[..., 1:] = keys[..., 1:] == keys[..., :-1]
    return same


def known_states(boltzmann: Boltzmann, block: int, z: Tensor) -> Known:
    """Collect the distinct states among some, with one block summed out.

    Args:
        boltzmann: Boltzmann machine in float64.
        block: Index of the block to sum out.
        z: States, `(*replicas, N, D)`.

    Returns:
        The states and their weights.
    """
    keys, order = state_keys(z, boltzmann.blocks[block]).sort(-1)
    log_weights = block_log_weight(boltzmann, block, z.to(torch.float64)).gather(-1, order)
    return Known(block, keys, log_weights.masked_fill(_repeated(keys), -torch.inf))


def is_known(known: Known, keys: Tensor) -> Tensor:
    """Whether states with these keys `(*replicas, C)` are among the known ones."""
    at = torch.searchsorted(known.keys, keys.contiguous()).clamp(max=known.keys.shape[-1] - 1)
    return known.keys.gather(-1, at) == keys


@torch.no_grad()
def state_bound(boltzmann: Boltzmann, z: Tensor) -> Tensor:
    """Lower bound on log Z: the log of the sum of e^(-F) over distinct states of some units, the others summed out.

    For an RBM the distinct left sides are used, or the distinct right sides if they give more. On another graph it is
    the units outside of a color class.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(2), torch.zeros(1, 1))
    >>> [state_bound(boltzmann, torch.tensor(z)).exp().round().item() for z in ([[0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]])]
    [2.0, 4.0]

    Args:
        boltzmann: Boltzmann machine.
        z: Any states, `(*replicas, N, D)`. Repeated ones count once.

    Returns:
        The bound, `(*replicas,)`, float64.
    """
    exactly = precise(boltzmann)
    each = [known_states(exactly, block, z).bound for block in range(len(exactly.blocks))]
    return torch.stack(each).amax(0)


@torch.no_grad()
def upper_bound(boltzmann: Boltzmann) -> Tensor:
    """Upper bound on log Z by independent units.

    For W_ij > 0, W_ij z_i z_j <= W_ij (s z_i + (1 - s) z_j); for W_ij < 0, W_ij z_i z_j <= s W_ij (z_i + z_j - 1). Both
    hold for all bits and 0 <= s <= 1. With these, log Z is at most a constant plus a sum of softplus over units. The
    shares s are chosen by gradient descent.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> upper_bound(BipartiteBoltzmann(torch.zeros(5), torch.zeros(2, 3)))
    tensor(3.4657, dtype=torch.float64)

    Args:
        boltzmann: Boltzmann machine.

    Returns:
        The bound, `(*replicas,)`, float64.
    """
    exactly = precise(boltzmann)
    row, column = exactly.edges()
    weight = exactly.coupling[..., row, column]
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    logits, momentum, scale = torch.zeros_like(weight), torch.zeros_like(weight), torch.zeros_like(weight)
    best = torch.full(exactly.batch_shape, torch.inf, dtype=torch.float64, device=weight.device)
    for step in range(1, BOUND_STEPS + 1):
        share = torch.sigmoid(logits)
        fields = exactly.bias.index_add(-1, row, weight * share)
        fields = fields.index_add(-1, column, positive * (1 - share) + negative * share)
        best = torch.minimum(best, softplus(fields).sum(-1) - (negative * share).sum(-1))
        at_row, at_column = torch.sigmoid(fields[..., row]), torch.sigmoid(fields[..., column])
        slope = positive * (at_row - at_column) + negative * (at_row + at_column - 1)
        slope = slope * share * (1 - share)
        # Adam, whose steps do not depend on the size of the couplings.
        momentum, scale = 0.9 * momentum + 0.1 * slope, 0.99 * scale + 0.01 * slope.square()
        mean, spread = momentum / (1 - 0.9**step), (scale / (1 - 0.99**step)).sqrt()
        logits = logits - 0.1 * mean / (spread + torch.finfo(spread.dtype).tiny)
    return best + ROUNDING * (1 + best.abs())
