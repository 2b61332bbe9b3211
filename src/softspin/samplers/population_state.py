"""State and diagnostics of population annealing, and the test for a collapsed population."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from torch import Tensor

from softspin.deprecation import warn_renamed
from softspin.samplers.primitives import worst_replica
from softspin.samplers.resampling import by_family, effective_sample_size, family_sizes, mean_square_family
from softspin.samplers.result import log_mean_error

COLLAPSED = 0.9
"""A population has collapsed if one member has more than this fraction of the weight, or two families are left."""


class CollapseWarning(UserWarning):
    """One member, or one or two families, have nearly all the weight: samples and log Z are unreliable."""


class PopulationState(NamedTuple):
    """State of population annealing."""

    z: Tensor
    """Members of the population, `(*replicas, members, D)`, 0 or 1."""
    bias: Tensor
    """Biases at which the members were last swept, `(*replicas, D)`."""
    coupling: Tensor
    """Couplings: `(*replicas, n, m)` for an RBM, `(*replicas, D, D)` for any other graph."""
    log_z: Tensor
    """Estimate of log Z at these parameters, `(*replicas,)`, float64."""
    ancestors: Tensor
    """Index of each member's ancestor at `init` or :func:`reset_ancestors`, `(*replicas, members)`."""
    rng_state: Tensor
    """Key and counter, `(*replicas, 2)`."""

    @property
    def founders(self) -> Tensor:
        """Deprecated name of `ancestors`."""
        warn_renamed("founders", "ancestors")
        return self.ancestors

    @property
    def stream(self) -> Tensor:
        """Deprecated name of `rng_state`."""
        warn_renamed("stream", "rng_state")
        return self.rng_state


class PopulationInfo(NamedTuple):
    """Diagnostics of a step; all tensors `(*replicas,)` except the last three. Properties are computed on access.

    A family is the set of members with the same ancestor. It covers all steps since `init` or :func:`reset_ancestors`.
    """

    log_z_increment: Tensor
    """log Z at the new parameters - log Z at the old parameters."""
    tempering_steps: Tensor
    """Number of tempering steps that the step was divided into."""
    effective_sample_size: Tensor
    """The smallest over the tempering steps; with `single_step`, that of the weights for the whole step."""
    largest_weight: Tensor
    """The largest fraction of the weight that one member had, over the tempering steps."""
    weights: Tensor
    """Weights in the last tempering step, relative to the largest, `(*replicas, members)`, float64."""
    prior_ancestors: Tensor
    """Ancestors of the members that had these weights, before resampling, `(*replicas, members)`."""
    ancestors: Tensor
    """Ancestors of the new members, `(*replicas, members)`."""

    @property
    def parts(self) -> Tensor:
        """Deprecated name of `tempering_steps`."""
        warn_renamed("parts", "tempering_steps")
        return self.tempering_steps

    @property
    def weighed(self) -> Tensor:
        """Deprecated name of `prior_ancestors`."""
        warn_renamed("weighed", "prior_ancestors")
        return self.prior_ancestors

    @property
    def founders(self) -> Tensor:
        """Deprecated name of `ancestors`."""
        warn_renamed("founders", "ancestors")
        return self.ancestors

    @property
    def effective_families(self) -> Tensor:
        """Effective number of families, from their total weights in the last tempering step."""
        return effective_sample_size(by_family(self.prior_ancestors, self.weights))

    @property
    def standard_error(self) -> Tensor:
        """Standard error of the state's log Z, given that log Z was exact when the ancestors were counted.

        It is computed from the variance of the family weights. Members of one family count as identical, ancestors as
        independent draws. Sweeps decorrelate members of a family, and systematic resampling adds little noise, so the
        value is an overestimate, more so the longer ago the ancestors lived. One case is not covered: the error of a
        `single_step` that was too long for the weights does not enter the standard error of later steps.
        """
        return log_mean_error(self.effective_families, self.ancestors.shape[-1])

    @property
    def families(self) -> Tensor:
        """Number of ancestors that have descendants."""
        return (family_sizes(self.ancestors) > 0).sum(-1)

    @property
    def largest_family(self) -> Tensor:
        """Fraction of the population in the largest family."""
        return family_sizes(self.ancestors).amax(-1) / self.ancestors.shape[-1]

    @property
    def mean_square_family(self) -> Tensor:
        """rho_t = sum of squared family sizes / members: 1 without resampling, `members` if one family is left."""
        return mean_square_family(self.ancestors)

    @property
    def collapsed(self) -> Tensor:
        """Whether one member had nearly all the weight in a tempering step, two families or fewer do, or it is NaN."""
        return ~(self.largest_weight <= COLLAPSED) | self.standard_error.isinf()


def warn_of_collapse(info: PopulationInfo) -> None:
    """Warn about the worst replica of a collapsed population."""
    worst, name = worst_replica(-info.effective_families)
    weight, families = info.largest_weight[worst].item(), info.effective_families[worst].item()
    warnings.warn(
        f"{name}the population collapsed: one of {info.ancestors.shape[-1]} members had {weight:.0%} of the weight, "
        f"and the effective number of families is {families:.1f}; use smaller parameter steps, more tempering steps or "
        "more members, or restart the count of families with reset_ancestors",
        CollapseWarning,
        stacklevel=4,
    )
