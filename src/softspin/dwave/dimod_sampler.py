"""Any dimod sampler in place of Gibbs sampling: the negative phase from an annealer, a QPU or a tree solver."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from dimod.core.sampler import Sampler
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.dwave.bqm import bits_of, check_labels, to_bqm
from softspin.dwave.temperature import TemperatureReport, TemperatureWarning, check_reads, check_temperature
from softspin.errors import ShapeError, SupportError
from softspin.random import DrawDomain, KeyDomain, advance, one_uniform
from softspin.samplers import GibbsInfo, GibbsState
from softspin.samplers import Sampler as TrainingSampler
from softspin.samplers.diagnostics import flip_rate
from softspin.samplers.primitives import (
    check_boltzmann,
    check_count,
    check_step,
    independent_draw,
    replica_rng_states,
    split_replicas,
)


class DimodSampler(TrainingSampler):
    """A dimod sampler with the interface of softspin, `init` and `step`; also for `softspin.fit(..., sampler=...)`.

    Each step calls the dimod sampler with `num_reads` equal to the number of chains. It also passes a seed if the
    sampler takes one; only then can a run be repeated and resumed bit for bit. The reads of a step are independent of
    the step before, so `sweeps` has no effect on the sampler; its own `parameters` set how long it runs.

    A Boltzmann machine is sampled at temperature 1. Many dimod samplers sample at another temperature, or another
    distribution altogether, such as those that search for minima. So each sampler is tested before its first use, see
    :func:`check_temperature`. The result is in `report`. You are warned with a TemperatureWarning if the temperature is
    wrong or the samples are not Boltzmann-distributed (for correct samplers, in two of a million cases).

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> from softspin.dwave import GibbsSampler
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> sampler = DimodSampler(GibbsSampler(), sweeps=20)
    >>> state, info = sampler.step(sampler.init(boltzmann, chains=10, seed=0), boltzmann)
    >>> state.z.shape, round(sampler.report.beta, 1)
    (torch.Size([10, 5]), 1.0)

    Args:
        sampler: Sampler of dimod that takes `num_reads`.
        effective_beta: b, for a sampler that draws from e^(-b E): all energies are divided by it.
        labels: Names of the variables, such as nodes of a QPU, in the order of the units; 0 to D - 1 if None.
        check: Whether to test the sampler before its first use.
        **parameters: Arguments passed to the sampler at every call.

    Raises:
        SupportError: The sampler takes no `num_reads`, `parameters` has `num_reads` or `seed`, or `effective_beta` is
            not positive and finite.
    """

    name = "dimod"

    def __init__(
        self,
        sampler: Sampler,
        *,
        effective_beta: float = 1.0,
        labels: Sequence[Hashable] | None = None,
        check: bool = True,
        **parameters: Any,
    ) -> None:
        check_reads(sampler)
        for name in parameters:
            if name in ("num_reads", "seed"):
                raise SupportError(f"{name} is set by DimodSampler, from the chains and the state; leave it out")
        if not 0 < effective_beta < float("inf"):
            raise SupportError(f"effective_beta = {effective_beta:g}; it must be positive and finite")
        self.sampler, self.effective_beta, self.labels, self.parameters = sampler, effective_beta, labels, parameters
        self.check = check
        self.report: TemperatureReport | None = None
        """The measured temperature of the sampler, after its first use."""

    def __repr__(self) -> str:
        arguments = {"effective_beta": self.effective_beta, **self.parameters}
        return f"DimodSampler({type(self.sampler).__name__}, {', '.join(f'{k}={v}' for k, v in arguments.items())})"

    @torch.no_grad()
    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> GibbsState:
        """Start chains at fair coin flips, and test the sampler once.

        Args:
            boltzmann: Boltzmann machine to sample.
            chains: Number of reads per replica.
            seed: Seed of the random numbers.

        Returns:
            The initial state.
        """
        check_boltzmann(boltzmann)
        check_count("chains", chains)
        check_labels(self.labels, boltzmann.units)
        self._measure()
        rng_state = replica_rng_states(boltzmann, seed, KeyDomain.DIMOD)
        return GibbsState(
            independent_draw(boltzmann, torch.zeros_like(boltzmann.bias), rng_state, (chains,)), rng_state
        )

    @torch.no_grad()
    def step(self, state: GibbsState, boltzmann: Boltzmann, sweeps: int = 1) -> tuple[GibbsState, GibbsInfo]:
        """Replace all chains by new reads, for each replica. Energies and reads go through the host.

        Args:
            state: State after the previous step.
            boltzmann: Boltzmann machine to sample.
            sweeps: Only advances the random counter.

        Returns:
            The new state, and the flip rate.
        """
        check_step(boltzmann, state.z, sweeps)
        chains = state.z.shape[-2]
        seeds = (one_uniform(state.rng_state, DrawDomain.DIMOD_SEED) * 2**31).to(torch.int64).reshape(-1).tolist()
        reads = [self._read(one, chains, own) for one, own in zip(split_replicas(boltzmann), seeds, strict=True)]
        z = torch.stack(reads).reshape(state.z.shape)
        return GibbsState(z, advance(state.rng_state, sweeps)), GibbsInfo(flip_rate(state.z, z))

    def _read(self, boltzmann: Boltzmann, chains: int, seed: int) -> Tensor:
        bqm = to_bqm(boltzmann, self.labels)
        bqm.scale(1 / self.effective_beta)
        own = {"seed": seed} if "seed" in self.sampler.parameters else {}
        found = self.sampler.sample(bqm, num_reads=chains, **own, **self.parameters)
        z = bits_of(found, list(bqm.variables), boltzmann.bias)
        if len(z) != chains:
            raise ShapeError(f"{type(self.sampler).__name__} returned {len(z)} reads; {chains} were requested")
        return z

    def _measure(self) -> None:
        if not self.check or self.report is not None:
            return
        self.report = found = check_temperature(self.sampler, self.effective_beta, **self.parameters)
        if found.right_temperature and found.boltzmann:
            return
        hint = "the negative phase, and so training, will be biased"
        if found.boltzmann and 0 < found.beta < float("inf"):
            hint = f"if this holds for all Boltzmann machines, effective_beta={found.beta:.3g} corrects it"
        warnings.warn(
            f"{type(self.sampler).__name__} does not sample the requested distribution: {found}; {hint}",
            TemperatureWarning,
            stacklevel=4,
        )
