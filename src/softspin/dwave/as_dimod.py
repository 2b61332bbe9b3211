"""Our samplers as dimod's: they take a BQM and give a SampleSet of draws from p(x) ~ e^(-beta E(x)), not of minima.

Chains are swept in float32, as in training; energies are the BQM's own. The seed is in the SampleSet's `info`, also
where none was given, so every sample can be made again.
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
"""Samples `(num_reads, D)` of a machine with a seed, and what else is known."""


class SoftspinSampler(Sampler):
    """What our samplers have in common: the parameters that they all take, and the way from a BQM to a SampleSet."""

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Names of what :meth:`sample` takes."""
        return {name: [] for name in ("num_reads", "beta", "sweeps", "seed")}

    @property
    def properties(self) -> dict[str, Any]:
        """None: any BQM is taken."""
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
        z, known = draw(boltzmann, seed)
        if "log_z" in known:
            known["log_z"] -= offset
        bits = z.to(torch.int8).numpy()
        rows = bits if bqm.vartype is dimod.BINARY else 2 * bits - 1
        return dimod.SampleSet.from_samples_bqm((rows, labels), bqm, info=info | known)


class GibbsSampler(SoftspinSampler):
    """Independent chains of block Gibbs sweeps, each from fair coins.

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
        """`num_reads` chains after `sweeps` sweeps."""
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            state, _ = gibbs.step(gibbs.init(boltzmann, num_reads, seed), boltzmann, sweeps)
            return state.z, {}

        return self._sampled(bqm, num_reads, beta, seed, draw)


class PopulationAnnealingSampler(SoftspinSampler):
    """Population annealing from temperature 0, with an estimate of log Z = log sum_x e^(-beta E(x)) in `info`."""

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
        """`num_reads` members of a population, of at least 100, with `sweeps` sweeps after each part of the way.

        Members may be kin: `info["mean_square_family"]` is by how much their means may vary more than those of
        independent draws, as variances.
        """
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            log_z, state, info = anneal_population(boltzmann, max(num_reads, 100), seed, sweeps=sweeps)
            # Kin are neighbours, so a few members must come from everywhere.
            order = torch.randperm(len(state.z), generator=torch.Generator().manual_seed(seed))[:num_reads]
            return state.z[order], {
                "log_z": log_z.value.item(),
                "log_z_standard_error": log_z.standard_error.item(),
                "mean_square_family": info.mean_square_family.item(),
            }

        return self._sampled(bqm, num_reads, beta, seed, draw)


class ParallelTemperingSampler(SoftspinSampler):
    """Ladders of chains from temperature 0 to beta that exchange their states; one ladder for each read."""

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
        """The cold ends of `num_reads` ladders with `temperatures` even steps, after `sweeps` sweeps and exchanges."""
        self.remove_unknown_kwargs(**unknown)

        def draw(boltzmann: Boltzmann, seed: int) -> tuple[Tensor, dict[str, float]]:
            state = tempering.init(boltzmann, num_reads, seed, temperatures)
            state, info = tempering.step(state, boltzmann, sweeps)
            return state.samples, {"lowest_exchange_rate": info.exchange_rate.min().item()}

        return self._sampled(bqm, num_reads, beta, seed, draw)
