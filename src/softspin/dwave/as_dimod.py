"""Softspin's samplers with the interface of dimod: they sample p(x) ~ e^(-beta E(x)) and do not search for minima.

Chains are swept in float32, as in training; energies are computed by the BQM. The `info` of a SampleSet has the seed,
also if none was given, so every result can be reproduced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dimod
import numpy as np
import torch
from dimod.core.sampler import Sampler
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.dwave.bqm import from_bqm
from softspin.samplers import anneal_population, gibbs, tempering
from softspin.samplers.primitives import check_count

Draw = Callable[[Boltzmann, int], tuple[Tensor, dict[str, float]]]
"""Function of a Boltzmann machine and a seed that returns samples `(num_reads, D)`, and entries for `info`."""


class SoftspinSampler(Sampler):
    """Base class of the samplers: common parameters, and the conversion from a BQM to a SampleSet."""

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Names of the arguments of :meth:`sample`."""
        return {name: [] for name in ("num_reads", "beta", "sweeps", "seed")}

    @property
    def properties(self) -> dict[str, Any]:
        """Empty: any BQM is accepted."""
        return {}

    def _sampled(
        self, bqm: dimod.BinaryQuadraticModel, num_reads: int, beta: float, seed: int | None, draw: Draw
    ) -> dimod.SampleSet:
        check_count("num_reads", num_reads)
        seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        info: dict[str, Any] = {"beta": beta, "seed": seed}
        if not bqm.num_variables:
            return dimod.SampleSet.from_samples_bqm((np.empty((num_reads, 0), np.int8), []), bqm, info=info)
        boltzmann, labels, offset = from_bqm(bqm, beta, dtype=torch.float32)
        z, extra = draw(boltzmann, seed)
        if "log_z" in extra:
            extra["log_z"] -= offset
        bits = z.to(torch.int8).numpy()
        rows = bits if bqm.vartype is dimod.BINARY else 2 * bits - 1
        return dimod.SampleSet.from_samples_bqm((rows, labels), bqm, info=info | extra)


class GibbsSampler(SoftspinSampler):
    """Independent chains of block Gibbs sweeps, each from fair coin flips.

    >>> bqm = dimod.BQM.from_ising({"a": -9.0}, {("a", "b"): 9.0})
    >>> GibbsSampler().sample(bqm, num_reads=2, seed=0).record.sample.tolist()
    [[1, -1], [1, -1]]
    """

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int = 100,
        beta: float = 1.0,
        sweeps: int = 1000,
        seed: int | None = None,
        **unknown: Any,
    ) -> dimod.SampleSet:
        """Sample with `num_reads` independent chains.

        Args:
            bqm: Binary quadratic model.
            num_reads: Number of samples.
            beta: Inverse temperature.
            sweeps: Number of Gibbs sweeps of every chain.
            seed: Seed of the random numbers; a random one if None.
            **unknown: Other arguments, which dimod warns about and ignores.

        Returns:
            The samples with their energies.
        """
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            state, _ = gibbs.step(gibbs.init(boltzmann, num_reads, seed), boltzmann, sweeps)
            return state.z, {}

        return self._sampled(bqm, num_reads, beta, seed, draw)


class PopulationAnnealingSampler(SoftspinSampler):
    """Population annealing from independent units, with an estimate of log Z = log sum_x e^(-beta E(x)) in `info`.

    References:
        K. Hukushima and Y. Iba, 2003, Population Annealing and Its Application to a Spin Glass.
    """

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int = 100,
        beta: float = 1.0,
        sweeps: int = 10,
        seed: int | None = None,
        **unknown: Any,
    ) -> dimod.SampleSet:
        """Sample with a population of `num_reads` members, and at least 100.

        The samples may be correlated. Compared with independent draws, the variance of their means is larger by at most
        a factor of `info["mean_square_family"]`.

        Args:
            bqm: Binary quadratic model.
            num_reads: Number of samples.
            beta: Inverse temperature.
            sweeps: Number of Gibbs sweeps after each tempering step.
            seed: Seed of the random numbers; a random one if None.
            **unknown: Other arguments, which dimod warns about and ignores.

        Returns:
            The samples with their energies; log Z and its standard error are in `info`.
        """
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            log_z, state, info = anneal_population(boltzmann, max(num_reads, 100), seed, sweeps=sweeps)
            # Members of a family are adjacent, so a subset must be drawn at random.
            order = torch.randperm(len(state.z), generator=torch.Generator().manual_seed(seed))[:num_reads]
            return state.z[order], {
                "log_z": log_z.value.item(),
                "log_z_standard_error": log_z.standard_error.item(),
                "mean_square_family": info.mean_square_family.item(),
            }

        return self._sampled(bqm, num_reads, beta, seed, draw)


class ParallelTemperingSampler(SoftspinSampler):
    """Parallel tempering between inverse temperature 0 and beta; one ladder of chains for each read.

    References:
        R. H. Swendsen and J.-S. Wang, 1986, Replica Monte Carlo Simulation of Spin-Glasses.
        C. J. Geyer, 1991, Markov Chain Monte Carlo Maximum Likelihood.
    """

    @property
    def parameters(self) -> dict[str, list[str]]:
        return {**super().parameters, "temperatures": []}

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int = 100,
        beta: float = 1.0,
        sweeps: int = 200,
        temperatures: int = 16,
        seed: int | None = None,
        **unknown: Any,
    ) -> dimod.SampleSet:
        """Sample with `num_reads` ladders of chains; the samples are their cold chains.

        Args:
            bqm: Binary quadratic model.
            num_reads: Number of samples.
            beta: Inverse temperature.
            sweeps: Number of sweeps, each followed by exchanges.
            temperatures: Number of equal steps of the inverse temperature.
            seed: Seed of the random numbers; a random one if None.
            **unknown: Other arguments, which dimod warns about and ignores.

        Returns:
            The samples with their energies; the lowest exchange rate is in `info`.
        """
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            state = tempering.init(boltzmann, num_reads, seed, temperatures)
            state, info = tempering.step(state, boltzmann, sweeps)
            return state.samples, {"lowest_exchange_rate": info.exchange_rate.min().item()}

        return self._sampled(bqm, num_reads, beta, seed, draw)
