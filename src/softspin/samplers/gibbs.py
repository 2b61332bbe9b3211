"""Block Gibbs sampling; with chains kept across parameter updates, persistent contrastive divergence (PCD)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from softspin.deprecation import renamed_arguments, warn_renamed
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.kernels import Implementation
from softspin.random import KeyDomain
from softspin.samplers.base import Sampler
from softspin.samplers.diagnostics import flip_rate
from softspin.samplers.primitives import (
    check_boltzmann,
    check_chains,
    check_count,
    check_state,
    check_step,
    independent_draw,
    replica_rng_states,
    sweep,
)

if TYPE_CHECKING:
    from softspin.config import Config


class GibbsState(NamedTuple):
    """State of Gibbs sampling."""

    z: Tensor
    """Chains, `(*replicas, chains, D)`, 0 or 1."""
    rng_state: Tensor
    """Key and counter, `(*replicas, 2)`."""

    @property
    def stream(self) -> Tensor:
        """Deprecated name of `rng_state`."""
        warn_renamed("stream", "rng_state")
        return self.rng_state


class GibbsInfo(NamedTuple):
    """Diagnostics of a step."""

    flip_rate: Tensor
    """Fraction of the bits that differ from the start of the step, `(*replicas,)`."""


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def init(boltzmann: Boltzmann, chains: int, seed: int, start: Tensor | None = None) -> GibbsState:
    """Start chains at fair coin flips, or at given states.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> init(BipartiteBoltzmann(torch.zeros(2, 5), torch.zeros(2, 2, 3)), chains=10, seed=0).z.shape
    torch.Size([2, 10, 5])

    Args:
        boltzmann: Boltzmann machine to sample.
        chains: Number of chains per replica.
        seed: Seed of the random numbers.
        start: Initial bits, `(*replicas, chains, D)`; fair coin flips if None.

    Returns:
        The initial state.

    Raises:
        ShapeError: `start` has another number of chains or another shape.
        SupportError: The number of chains is below 1, or parameters are not finite.
    """
    check_boltzmann(boltzmann)
    check_count("chains", chains)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.GIBBS)
    if start is None:
        return GibbsState(
            independent_draw(boltzmann, torch.zeros_like(boltzmann.bias), rng_state, (chains,)), rng_state
        )
    start = boltzmann.as_states("the initial chains", start)
    check_chains(start, boltzmann, what="the initial chains")
    if start.shape[-2] != chains:
        raise ShapeError(f"start has {start.shape[-2]} chains; it must have {chains}, as requested by chains")
    return GibbsState(start.clone(), rng_state)


@renamed_arguments(machine="boltzmann")
@torch.no_grad()
def step(
    state: GibbsState,
    boltzmann: Boltzmann,
    sweeps: int,
    *,
    compiled: bool = False,
    implementation: Implementation = "auto",
    first_chain: int = 0,
) -> tuple[GibbsState, GibbsInfo]:
    """Run block Gibbs sweeps of every chain.

    A sweep of an RBM samples the right side, then the left; on any other graph it samples one color class after
    another. With `validate_args=False` of the Boltzmann machine nothing is read on the host, and NaN parameters
    silently give meaningless samples.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> boltzmann = BipartiteBoltzmann(torch.tensor([0.0, 9.0, -9.0]), torch.zeros(1, 2))
    >>> state, info = step(init(boltzmann, chains=10_000, seed=0), boltzmann, sweeps=1)
    >>> state.z.mean(0).round(decimals=2), info.flip_rate.round(decimals=1)
    (tensor([0.5..., 1.0000, 0.0000]), tensor(0.5000))

    Args:
        state: State after the previous step.
        boltzmann: Boltzmann machine to sample.
        sweeps: Number of sweeps.
        compiled: Whether the flip rate is computed through torch.compile.
        implementation: Implementation of the sweeps.
        first_chain: Number of the first chain of the state, even: it has the random numbers of this chain.

    Returns:
        The new state, and the flip rate of the step.
    """
    check_state(state, GibbsState)
    check_step(boltzmann, state.z, sweeps)
    z, rng_state = sweep(
        boltzmann, state.z, state.rng_state, sweeps, implementation=implementation, first_chain=first_chain
    )
    return GibbsState(z, rng_state), GibbsInfo((compiled_flip_rate() if compiled else flip_rate)(state.z, z))


@functools.cache
def compiled_flip_rate() -> Callable[[Tensor, Tensor], Tensor]:
    """:func:`flip_rate` by torch.compile."""
    return torch.compile(flip_rate)


class Gibbs(Sampler):
    """Persistent contrastive divergence (PCD): the chains continue from one training step to the next.

    Args:
        compiled: Whether small operations go through torch.compile.

    References:
        T. Tieleman, 2008, Training Restricted Boltzmann Machines Using Approximations to the Likelihood Gradient, ICML.
    """

    name = "pcd"
    citation = (
        "T. Tieleman, Training Restricted Boltzmann Machines using Approximations to the Likelihood Gradient, ICML 2008"
    )
    capturable = True
    chain_fields = ("z",)

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> Gibbs:
        return cls(compiled)

    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> GibbsState:
        return init(boltzmann, chains, seed)

    def restart(self, boltzmann: Boltzmann, z: Tensor, rng_state: Tensor, log_z: Tensor) -> GibbsState:
        return GibbsState(z.clone(), rng_state.clone())

    def step(self, state: GibbsState, boltzmann: Boltzmann, sweeps: int) -> tuple[GibbsState, GibbsInfo]:
        return step(state, boltzmann, sweeps, compiled=self.compiled, first_chain=self.first_chain)
