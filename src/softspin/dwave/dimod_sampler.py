"""Any dimod sampler in the place of Gibbs sampling: the negative phase from an annealer, a QPU or a solver's tree."""

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
    """A dimod sampler behind the interface of ours, `init` and `step`; for `softspin.fit(..., sampler=...)` as well.

    `parameters` go to the sampler at every call, `num_reads` is the number of chains, and a seed is given where the
    sampler takes one: then a run can be repeated and resumed bit for bit, and not otherwise. The reads of a step are
    all there is: no chain goes on from the step before, so `sweeps` says nothing to it, and how long it works is for
    its own parameters to say. `labels` name the variables, such as nodes of a QPU, in the order of the units.

    Machines are sampled at temperature 1. A sampler that draws from e^(-b E) with another b can be used with
    `effective_beta=b`: it gets all energies divided by that. Many draw from something else altogether, as those do
    that look for minima. So at its first use a sampler is measured, see :func:`check_temperature`; the result is in
    `report`, and a TemperatureWarning says so if it is wrong (of samplers that are right, two in a million).
    `check=False` leaves that out.

    >>> from softspin.distributions import BipartiteBoltzmann
    >>> from softspin.dwave import GibbsSampler
    >>> boltzmann = BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3))
    >>> sampler = DimodSampler(GibbsSampler(), sweeps=20)
    >>> state, info = sampler.step(sampler.init(boltzmann, chains=10, seed=0), boltzmann)
    >>> state.z.shape, round(sampler.report.beta, 1)
    (torch.Size([10, 5]), 1.0)
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
                raise SupportError(
                    f"{name} is not for DimodSampler to be told; it follows from the chains and the state"
                )
        if not 0 < effective_beta < float("inf"):
            raise SupportError(f"effective_beta = {effective_beta:g}; it must be a finite number above 0")
        self.sampler, self.effective_beta, self.labels, self.parameters = sampler, effective_beta, labels, parameters
        self.check = check
        self.report: TemperatureReport | None = None
        """What the sampler's temperature was found to be, once it was used."""

    def __repr__(self) -> str:
        told = {"effective_beta": self.effective_beta, **self.parameters}
        return f"DimodSampler({type(self.sampler).__name__}, {', '.join(f'{k}={v}' for k, v in told.items())})"

    @torch.no_grad()
    def init(self, boltzmann: Boltzmann, chains: int, seed: int) -> GibbsState:
        """Fair coin flips, until the first step; the sampler's temperature is measured here, once."""
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
        """As many reads as there are chains, of every replica's machine. Energies and reads go through the host."""
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
            raise ShapeError(f"{type(self.sampler).__name__} gave {len(z)} reads; {chains} were asked for")
        return z

    def _measure(self) -> None:
        if not self.check or self.report is not None:
            return
        self.report = found = check_temperature(self.sampler, self.effective_beta, **self.parameters)
        if found.right_temperature and found.boltzmann:
            return
        hint = "the negative phase, and so training, will be off"
        if found.boltzmann and 0 < found.beta < float("inf"):
            hint = f"if that is so for all machines, effective_beta={found.beta:.3g} makes up for it"
        warnings.warn(
            f"{type(self.sampler).__name__} does not sample as asked: {found}; {hint}", TemperatureWarning, stacklevel=4
        )
