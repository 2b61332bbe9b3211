"""The interface between training and a sampler of the prior, with or without CUDA graph capture."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config

State = Any
"""A NamedTuple of tensors with all that the next step needs. Checkpoints store it under the names of its fields."""


class Sampler(Part):
    """Sampler for the negative phase: `(state, info) = step(state, boltzmann, sweeps)`.

    A subclass implements :meth:`init` and :meth:`step`. The other methods work for a state with chains `z`
    `(*replicas, chains, D)` and an info with a `flip_rate` `(*replicas,)`. The caller owns the state: a step returns a
    new state and does not modify the old one.
    """

    capturable = False
    chain_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the state with an entry for each chain, after the replica dimension. Processes of one run share these
    chains. It is empty if chains depend on each other, as in a population: every process then has all of them. It
    belongs to the class that implements :meth:`step`."""
    first_chain = 0
    """Number of the first chain in the state, even. The chains draw the random numbers of chain `first_chain` and
    those after it. Training sets it if processes share the chains."""

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> Sampler:
        """Build the sampler that a config describes.

        Args:
            config: Configuration of the run.
            compiled: Whether small operations may go through torch.compile.

        Returns:
            The sampler.
        """
        return cls()

    def __repr__(self) -> str:
        """The class and its options."""
        options = inspect.signature(type(self)).parameters
        shown = [f"{name}={value!r}" for name, value in vars(self).items() if name in options]
        return f"{type(self).__name__}({', '.join(shown)})"

    @abstractmethod
    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> State:
        """Create the initial state.

        Args:
            boltzmann: Distribution to sample.
            chains: Number of chains per replica.
            seed: Seed of the random numbers.

        Returns:
            The initial state.
        """

    @abstractmethod
    def step(self, state: State, boltzmann: Boltzmann, sweeps: int) -> tuple[State, Any]:
        """Advance the chains at the current parameters.

        Args:
            state: State after the previous step.
            boltzmann: Distribution at the current parameters.
            sweeps: Number of Gibbs sweeps of every chain.

        Returns:
            The new state, and diagnostics of the step.
        """

    def samples(self, state: State) -> Tensor:
        """Samples of the distribution in a state.

        Args:
            state: State after a step.

        Returns:
            Bits, `(*replicas, chains, D)`.
        """
        z: Tensor = state.z
        return z

    def quality(self, info: Any) -> Tensor:
        """Mixing quality of the step, as one number for the metrics log.

        Args:
            info: Diagnostics of a step.

        Returns:
            A number from 0 to 1 per replica, `(*replicas,)`.
        """
        rate: Tensor = info.flip_rate
        return rate

    def log_z(self, state: State) -> Tensor | None:
        """The sampler's running estimate of log Z, if it has one.

        Args:
            state: State after a step.

        Returns:
            The estimate `(*replicas,)`, or None.
        """
        return None

    def set_log_z(self, state: State, value: Tensor) -> State:
        """Replace the running estimate of log Z by a better one.

        Args:
            state: State after a step.
            value: log Z at the parameters of the state, `(*replicas,)`.

        Returns:
            The state with this log Z; the same state if the sampler has no estimate.
        """
        return state

    def restart(self, boltzmann: Boltzmann, z: Tensor, rng_state: Tensor, log_z: Tensor) -> State:
        """Create a state that continues the chains of another sampler, or another number of chains.

        Training needs it for `late_chains` and `late_sampler`.

        Args:
            boltzmann: Distribution at the current parameters.
            z: Samples of it, one for each chain, `(*replicas, chains, D)`.
            rng_state: State of the random numbers, `(*replicas, 2)`, which is continued.
            log_z: Estimate of log Z, `(*replicas,)`.

        Returns:
            The state.

        Raises:
            NotImplementedError: The sampler cannot continue other chains; training says so before its first step.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot continue other chains")

    def init_replicas(self, boltzmanns: Sequence[Boltzmann], chains: int, seeds: Sequence[int]) -> State:
        """Create one state for all replicas. The draws of a replica do not depend on the other replicas.

        Args:
            boltzmanns: One distribution per replica.
            chains: Number of chains per replica.
            seeds: One seed per replica.

        Returns:
            The states of all replicas, stacked along a leading replica dimension.
        """
        states = [self.init(one, chains, seed) for one, seed in zip(boltzmanns, seeds, strict=True)]
        return type(states[0])(*(torch.stack(fields) for fields in zip(*states, strict=True)))
