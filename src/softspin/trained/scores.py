"""Scores of single images and of latent bits: log-likelihood, energy, free energy."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from softspin.conditions import Given
from softspin.distributions import Boltzmann, VisibleMarginal
from softspin.errors import ShapeError
from softspin.model import DiscreteVAE
from softspin.samplers.primitives import check_count
from softspin.trained.batched import Batched
from softspin.trained.posterior import posterior_means
from softspin.trained.shareable import ReplicaChoice


class Scores(Batched):
    """A model with scores, for anomaly detection and model comparison. Arguments as in :class:`softspin.Model`."""

    def score_samples(
        self,
        x: Any,
        *,
        condition: Any = None,
        samples: int | None = None,
        replica: ReplicaChoice = None,
        seed: int = 0,
    ) -> Tensor:
        """Estimate log p(x) of each image, as :meth:`nll` does, with the value of log Z.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            samples: Importance samples of each image; by default the setting `test_samples`.
            replica: Which replica, or `"best"`.
            seed: Seed of the random numbers.

        Returns:
            Log-likelihoods `(N,)` in nats, float64. Low values are unlikely images.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        number = self.choose_replica(replica)
        found = self.nll(x, condition=condition, samples=samples, seed=seed).nll_per_image
        assert found is not None
        return -(found if self.net.replicas == 1 else found[number])

    def energy(
        self,
        x: Any,
        *,
        condition: Any = None,
        samples: int = 100,
        replica: ReplicaChoice = None,
        seed: int | None = 0,
    ) -> Tensor:
        """Compute the mean prior energy of the codes of each image, the mean of E(z) over q(z | x).

        The energy is linear in each bit, so with one group of bits it is exact, at the posterior probabilities. With
        several groups it is a mean over draws.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            samples: Draws for each image, if there are several groups of bits.
            replica: Which replica, or `"best"`.
            seed: Seed of these draws; None for new ones each time.

        Returns:
            Energies `(N,)`. High values are codes that the prior rarely has.

        Raises:
            ShapeError: The images do not have the model's number of pixels, or there are none.
            SupportError: There is no such replica, or a pixel value is outside the support of the likelihood.
        """
        check_count("samples", samples)

        def mean_energy(model: DiscreteVAE | Given, rows: Tensor, uniforms: Tensor) -> Tensor:
            one_group = len(self.net.encoder) == 1
            z = posterior_means(model, rows, uniforms) if one_group else model.sample_posterior(rows, uniforms)[0]
            return model.prior(validate=False).energy(z)

        draws = samples if len(self.net.encoder) > 1 else 1
        return self._each_image(x, condition, replica, draws, seed, mean_energy)

    def free_energy(self, z: Any, *, condition: Any = None, replica: ReplicaChoice = None) -> Tensor:
        """Compute the free energy of the first n latent bits: F = -log of the sum of e^(-E) over the other bits.

        n is the number of columns. With the left half of the bits of an RBM prior, the right half is summed out; with
        all bits, F is the energy. -F - log Z is the log probability of these bits under the prior.

        Args:
            z: Bits `(..., n)`.
            condition: Condition of a model of p(x | c), one.
            replica: Which replica, or `"best"`.

        Returns:
            Free energies `(...)`, float64.

        Raises:
            ShapeError: There are more columns than latent bits, or none.
            SupportError: There is no such replica, or the bits to sum over are coupled with each other.
        """
        prior = self.prior(replica, condition=condition)
        precise = prior.with_parameters(prior.bias.double(), prior.couplings.double())
        bits = precise.as_states("bits", z)
        if not bits.ndim:
            raise ShapeError(f"bits must have shape (..., n) with n from 1 to {prior.units}, not ()")
        marginal = VisibleMarginal(precise, bits.shape[-1])
        marginal.check()
        with torch.no_grad():
            return marginal.free_energy(bits)

    @abstractmethod
    def prior(self, replica: ReplicaChoice = None, *, condition: Any = None) -> Boltzmann:
        """The prior of one replica."""
