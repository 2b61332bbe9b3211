"""A population, what a step tells of it, and when it has collapsed."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from torch import Tensor

from softspin.deprecation import warn_renamed
from softspin.samplers.primitives import worst_replica
from softspin.samplers.resampling import by_family, effective_sample_size, family_sizes, mean_square_family
from softspin.samplers.result import log_mean_error

COLLAPSED = 0.9
"""A population has collapsed when one member carries more than this share of the weight, or two families are left."""


class CollapseWarning(UserWarning):
    """One member, or a family or two, carry nearly all the weight: samples and log Z are not to be trusted."""


class PopulationState(NamedTuple):
    """What the next step needs."""

    z: Tensor
    """Members, `(*replicas, members, D)`, 0 or 1."""
    bias: Tensor
    """Parameters at which the members were last swept, `(*replicas, D)`."""
    coupling: Tensor
    """`(*replicas, n, m)` of an RBM, `(*replicas, D, D)` of any other graph."""
    log_z: Tensor
    """Estimate of log Z at these parameters, `(*replicas,)`, float64."""
    ancestors: Tensor
    """From which member each one descends, counted since `init` or :func:`reset_ancestors`, `(*replicas, members)`."""
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
    """What is only interesting; `(*replicas,)` but for the last three. Properties are computed when asked for.

    Families are those of the state's founders: of all steps since `init` or :func:`reset_ancestors`.
    """

    log_z_increment: Tensor
    """log Z where the population is now - log Z where it was."""
    tempering_steps: Tensor
    """Into how many parts the step was divided."""
    effective_sample_size: Tensor
    """The smallest over the parts of the step; of the whole of it where it was made at once."""
    largest_weight: Tensor
    """The largest share of the weight that one member carried, over the parts of the step."""
    weights: Tensor
    """Of the last part, relative to the largest, `(*replicas, members)`, float64."""
    prior_ancestors: Tensor
    """The founders of the members that had these weights, `(*replicas, members)`."""
    ancestors: Tensor
    """The founders of the members that there are now, `(*replicas, members)`."""

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
        """How many equal families the families are worth, by their weights in the last part."""
        return effective_sample_size(by_family(self.prior_ancestors, self.weights))

    @property
    def standard_error(self) -> Tensor:
        """Of the state's log Z, if it was exact when the founders were.

        From how unequal the families became: kin are counted as equal, founders as independent draws of the machine
        at which they were. Sweeps make kin differ, and systematic resampling rounds, so it is too large rather than too
        small, the more so the longer ago the founders lived; but for steps made at once that were too long to weigh,
        of which later ones know nothing.
        """
        return log_mean_error(self.effective_families, self.ancestors.shape[-1])

    @property
    def families(self) -> Tensor:
        """How many founders have descendants."""
        return (family_sizes(self.ancestors) > 0).sum(-1)

    @property
    def largest_family(self) -> Tensor:
        """Share of the population that descends from one founder."""
        return family_sizes(self.ancestors).amax(-1) / self.ancestors.shape[-1]

    @property
    def mean_square_family(self) -> Tensor:
        """rho_t = sum of squared family sizes / members: 1 if nothing was resampled, `members` if all are kin."""
        return mean_square_family(self.ancestors)

    @property
    def collapsed(self) -> Tensor:
        """Whether one member carried nearly all the weight in some part, two families or fewer do, or it is NaN."""
        return ~(self.largest_weight <= COLLAPSED) | self.standard_error.isinf()


def warn_of_collapse(info: PopulationInfo) -> None:
    """Say which replica, and how far it has gone."""
    worst, name = worst_replica(-info.effective_families)
    weight, families = info.largest_weight[worst].item(), info.effective_families[worst].item()
    warnings.warn(
        f"{name}the population collapsed: one of {info.ancestors.shape[-1]} members had {weight:.0%} of the weight, "
        f"and its families are worth {families:.1f} equal ones; take smaller parameter steps, more parts or more "
        "members, or count families from here by reset_ancestors",
        CollapseWarning,
        stacklevel=4,
    )
