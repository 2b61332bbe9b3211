"""What training asks of a sampler of the prior, captured in a CUDA graph or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.parts import Part

if TYPE_CHECKING:
    from softspin.config import Config

State = Any
"""A NamedTuple of tensors, all that the next step needs: it is saved in checkpoints under the names of its fields."""


class Sampler(Part):
    """Samples for the negative phase: `(state, info) = step(state, boltzmann, sweeps)`.

    A subclass has :meth:`init` and :meth:`step`; a state with chains `z` `(*replicas, chains, D)` and an info with a
    `flip_rate` `(*replicas,)` need nothing else. Whoever loops owns the state: a step leaves it as it is.
    """

    capturable = False

    @classmethod
    def build(cls, config: Config, *, compiled: bool = False) -> Sampler:
        """The sampler of a config; `compiled` says whether its small operations may go through torch.compile."""
        return cls()

    @abstractmethod
    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> State:
        """The state to begin with."""

    @abstractmethod
    def step(self, state: State, boltzmann: Boltzmann, sweeps: int) -> tuple[State, Any]:
        """Move to the present distribution; the new state, and what is only interesting of the step."""

    def samples(self, state: State) -> Tensor:
        """States of the distribution, `(*replicas, chains, D)`."""
        z: Tensor = state.z
        return z

    def quality(self, info: Any) -> Tensor:
        """How well a step moved, from 0 to 1, `(*replicas,)`."""
        rate: Tensor = info.flip_rate
        return rate

    def log_z(self, state: State) -> Tensor | None:
        """The sampler's own estimate of log Z `(*replicas,)`, if it keeps one."""
        return None

    def set_log_z(self, state: State, value: Tensor) -> State:
        """The state with a better log Z `(*replicas,)`, estimated elsewhere at its parameters."""
        return state

    def init_replicas(self, boltzmanns: Sequence[Boltzmann], chains: int, seeds: Sequence[int]) -> State:
        """One state for all replicas, each from its own seed: what a replica draws does not depend on the others."""
        states = [self.init(one, chains, seed) for one, seed in zip(boltzmanns, seeds, strict=True)]
        return type(states[0])(*(torch.stack(parts) for parts in zip(*states, strict=True)))
