"""Exact log Z, moments and draws of Boltzmann distributions that are small enough to enumerate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.deprecation import renamed_attribute
from softspin.distributions.checks import sample_size
from softspin.distributions.couplings import Coupled
from softspin.distributions.enumeration import LARGEST, Moments, exact_draws, exact_moments
from softspin.errors import NoClosedFormError, TooLargeError
from softspin.numerics import carry_gradient


class Enumerable(Coupled):
    """The part of a Boltzmann distribution that sums over all states.

    The largest block and all units without couplings are summed out in closed form. The other units, at most 24, are
    enumerated.
    """

    _known: tuple[tuple[int, int], Moments] | None = None

    def exact_log_z(self) -> Tensor:
        """Compute log Z by enumeration.

        The largest block and all units without couplings are summed out in closed form. The other units, at most 24,
        are enumerated. The result is differentiable once.

        Returns:
            log Z, `(*replicas,)`.
        """
        if not (torch.is_grad_enabled() and (self.bias.requires_grad or self.coupling.requires_grad)):
            return self._exact(want_moments=False).log_z.to(self.bias.dtype)
        return carry_gradient(self.moments.log_z.to(self.bias.dtype), -self._mean_energy())

    @property
    def moments(self) -> Moments:
        """Exact log Z, E[z] and E[z z'] in float64, by the enumeration of :meth:`exact_log_z`."""
        return self._exact(want_moments=True)

    def marginals(self) -> Tensor:
        """Compute p(z_i = 1) exactly, by the enumeration of :meth:`exact_log_z`.

        Returns:
            Probabilities, `(*replicas, D)`.
        """
        return self.moments.mean.to(self.bias.dtype)

    @property
    def mean(self) -> Tensor:
        """E[z], the exact :meth:`marginals`, `(*replicas, D)`, without a gradient."""
        self._check_enumerable("mean", "estimate it by the mean of samples of softspin.samplers.anneal_population")
        return self.marginals()

    @property
    def variance(self) -> Tensor:
        """Exact variances of the units, `(*replicas, D)`, without a gradient."""
        return self.mean * (1 - self.mean)

    @property
    def mode(self) -> Tensor:
        """Raises NoClosedFormError: the most probable state is an optimization problem of its own."""
        raise NoClosedFormError(
            "the most probable state of a Boltzmann machine is not implemented; take the sample of lowest energy, or a "
            "solver of dimod (softspin.dwave.to_bqm)"
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Raises NoClosedFormError: a draw of bits has no gradient."""
        raise NoClosedFormError(
            "a sample of a Boltzmann machine is discrete, so it has no gradient; use sample(), or soft bits: "
            "SmoothedBernoulli.rsample and a relaxation such as OverlapRelaxation(boltzmann)"
        )

    def cdf(self, value: Tensor) -> Tensor:
        """Raises NoClosedFormError: the units are not ordered."""
        raise NoClosedFormError("a Boltzmann machine is a distribution of many bits, without a CDF; see mean, log_prob")

    def entropy(self) -> Tensor:
        """Compute the exact entropy log Z + E[E(z)], by the enumeration of :meth:`exact_log_z`.

        Returns:
            Entropies in nats, `(*replicas,)`, without a gradient.

        Raises:
            TooLargeError: More than 24 units would have to be enumerated.
        """
        self._check_enumerable("entropy", "estimate it as log Z plus the mean energy of samples")
        with torch.no_grad():
            return self.moments.log_z.to(self.bias.dtype) + self._mean_energy()

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw independent states, exactly, by the enumeration of :meth:`exact_log_z`.

        Larger Boltzmann machines have no exact sampler: use :func:`softspin.samplers.anneal_population` or
        :mod:`softspin.samplers.gibbs`, which say how well they have mixed.

        Args:
            sample_shape: A number of draws, or dimensions of the draws.
            generator: Source of randomness. None is torch's default generator.

        Returns:
            Bits, `(*replicas, *sample_shape, D)`: replicas come first, as :meth:`log_prob` takes them.

        Raises:
            TooLargeError: More than 24 units would have to be enumerated.

        Example:
            >>> from softspin.distributions import BipartiteBoltzmann
            >>> BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)).sample((4,)).shape
            torch.Size([4, 5])
        """
        self._check_enumerable(
            "sample", "use softspin.samplers.anneal_population(boltzmann, n, seed) or softspin.samplers.gibbs"
        )
        shape = sample_size(sample_shape)
        with torch.no_grad():
            flat = zip(
                self.bias.reshape(-1, self.units), self.coupling.reshape(-1, self.units, self.units), strict=True
            )
            draws = [exact_draws(*own, self._independent_set(), shape.numel(), generator) for own in flat]
        return torch.stack(draws).to(self.bias.dtype).reshape(*self.batch_shape, *shape, self.units)

    def _check_enumerable(self, what: str, instead: str) -> None:
        """Raise TooLargeError, with what to do, unless exact sums are possible."""
        if self.enumerated_units > LARGEST:
            raise TooLargeError(
                f"no exact {what} of {self!r}: it needs a sum over the states of {self.enumerated_units} units, and at "
                f"most {LARGEST} are possible; {instead}"
            )

    def _mean_energy(self) -> Tensor:
        """Compute E_p[E(z)] at fixed moments, so that its gradient is minus that of log Z."""
        mean = self.moments.mean.to(self.bias.dtype)
        pair = self.moments.pair.to(self.bias.dtype)
        return -(self.bias * mean).sum(-1) - 0.5 * (self.coupling * pair).sum((-2, -1))

    def _exact(self, want_moments: bool) -> Moments:
        """Enumerate once, and again only after the parameters were changed in place."""
        version = self.bias._version, self.couplings._version
        if self._known is None or self._known[0] != version or (want_moments and not self._known[1].mean.numel()):
            coupling = self.coupling.detach()
            self._known = version, exact_moments(self.bias.detach(), coupling, self._independent_set(), want_moments)
        return self._known[1]

    @property
    def enumerated_units(self) -> int:
        """Number of units that an exact sum enumerates. At most 24 are possible.

        All but the largest block and those without couplings, so none if all units are independent.
        """
        return self.units - len(self._independent_set())

    listed_units = renamed_attribute("listed_units", "enumerated_units")

    def _independent_set(self) -> Tensor:
        """Return the units that are summed out in closed form: the largest block, and units without couplings."""
        index = torch.arange(self.units, device=self.bias.device)
        summed_out = ~(self.coupling.detach() != 0).any(-1).reshape(-1, self.units).any(0)
        summed_out[max((index[block] for block in self.blocks), key=len)] = True
        return index[summed_out]
