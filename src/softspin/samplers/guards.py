"""Guards of a log Z by annealing: states found by other means refute an interval that is wrong.

Annealing cannot know of a mode that it never visits. A search that does not anneal may find it. Three checks follow,
from a proof to a comparison:

1. The sum of e^(-F) over distinct states is a lower bound on Z, whatever annealing says.
2. Z is the sum over the found states, exactly, plus the mean weight of the annealed chains that end elsewhere. This
   estimate is unbiased like AIS. It differs if the found states have another probability than annealing gives them.
   It is made for each block that is summed out, because the states of one side may cut through a mode.
3. Annealing from another base, and reverse annealing from the found states.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from softspin.distributions import Boltzmann
from softspin.numerics import softplus
from softspin.random import KeyDomain
from softspin.samplers.ais import Chains, Path
from softspin.samplers.bounds import Known, is_known, known_states, precise, state_keys, upper_bound
from softspin.samplers.primitives import anneal, replica_rng_states, sweep, worst_replica
from softspin.samplers.result import NORMAL_95, LogZ, log_mean_error, log_mean_exp, weight_ess
from softspin.samplers.search import evenly, find_states

SIGNIFICANT = 4.0
"""Standard errors of a disagreement that rejects an interval: one in 16,000 by chance."""
SURPRISING = 3.0
"""Standard errors of a disagreement that extends an interval: one in 370 by chance."""
ROUNDING = 2e-6
"""Relative rounding error of a log Z by float32 sweeps."""
COUNTS = 64, 2048
"""Smallest and largest number of ascents."""
FEWER, FEWEST = 10, 16
"""The chains of the further annealings: this many times fewer, and at least so many."""
RULE_OF_THREE = 3.0
"""Upper 95% limit of the expected number of events when none was seen."""
LARGEST_UNSEEN = 0.95
"""Largest probability that unseen states are taken to have; with more, bounds replace the interval."""
BURN_IN = 20
"""Gibbs sweeps from a found state before reverse annealing."""
SMALL = 44
"""Units from which on an ascent takes more sweeps' time the more there are."""
SHARE = 0.003
"""Ascents for each chain and temperature, so that the search takes about a tenth of the time of the sandwich."""


class LogZWarning(UserWarning):
    """The interval of log Z by annealing is wrong. It was replaced by bounds that hold with certainty."""


class Hybrid(NamedTuple):
    """log Z as a sum over known states and an estimate of the rest. All `(*replicas,)`, or `(blocks, *replicas)`."""

    value: Tensor
    standard_error: Tensor
    surprise: Tensor
    """Difference between the weight of the known states and its estimate by the chains, in standard errors."""


def ascents(temperatures: int, chains: int, units: int) -> int:
    """Number of ascents that fits the time of an annealing."""
    share = SHARE * min(1.0, SMALL / units)
    return min(max(round(share * temperatures * chains), COUNTS[0]), COUNTS[1])


def hybrid_estimate(boltzmann: Boltzmann, known: Known, chains: Chains) -> Hybrid:
    """Estimate log Z as the sum over known states plus the mean weight of the chains that end in none of them.

    It is unbiased if the chains had no part in finding the states. One more chain of mean weight is added to the
    variance, because chains that never left the known states do not show that there is nothing else.

    The known states A have the exact weight Z_A; the C chains estimate it by the sum of w / C over those that end in A.
    The variance of this estimate is at least p(A) (1 - p(A)) Z^2 / C, that of equal weights. The larger one of this and
    of the variance of the weights is used: if no chain ends in A, the weights show no variance. A large difference
    means that annealing gives wrong weights to modes of A, or too small an error, and does so whatever the rest is.

    Args:
        boltzmann: Boltzmann machine.
        known: Known states.
        chains: Chains of forward annealing.

    Returns:
        The estimate with its standard error, and the difference, `(*replicas,)` each.
    """
    count = chains.log_weights.shape[-1]
    inside = is_known(known, state_keys(chains.z, boltzmann.blocks[known.block]))
    rest = chains.log_weights.masked_fill(inside, -torch.inf)
    value = torch.logaddexp(known.log_sum, rest.logsumexp(-1) - math.log(count))
    within = torch.exp(chains.log_weights.masked_fill(~inside, -torch.inf) - value[..., None])
    typical = torch.exp(torch.minimum(chains.log_weights.logsumexp(-1) - math.log(count) - value, value.new_zeros(())))
    one_more = (typical / count).square()
    variance = torch.exp(rest - value[..., None]).var(-1) / count + one_more
    share = torch.exp(known.log_sum - value)
    paired = torch.maximum(within.var(-1), share * (1 - share)) / count + one_more
    return Hybrid(value, variance.sqrt(), (share - within.mean(-1)).abs() / paired.sqrt())


@torch.no_grad()
def guard(
    boltzmann: Boltzmann,
    found: LogZ,
    forward: Chains,
    reverse: Chains,
    path: Path,
    *,
    seed: int,
    starts: Tensor | None = None,
    stacklevel: int = 2,
) -> LogZ:
    """Check an interval of log Z, and replace it by bounds if it is refuted.

    Args:
        boltzmann: Boltzmann machine.
        found: The interval.
        forward: The forward chains that it comes from.
        reverse: The reverse chains: their weights, and the states that they started from.
        path: The annealing path of both.
        seed: Seed of the random numbers.
        starts: Further states to search from, such as codes of data, `(*replicas, N, D)`.
        stacklevel: Of the warning.

    Returns:
        The interval, with `flagged` set. Value and standard error change only where it is flagged.
    """
    chains = forward.log_weights.shape[-1]
    count = ascents(len(path.schedule) - 1, chains, boltzmann.units)
    given = [evenly(one.to(boltzmann.bias), count) for one in (reverse.z, starts) if one is not None]
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.SEARCH)
    states = find_states(boltzmann, rng_state, count=count, starts=torch.cat(given, dim=-2))
    hybrids, best, bound = _combine(precise(boltzmann), states.z, forward)
    margin = ROUNDING * (1 + found.value.abs())
    far = SIGNIFICANT * hybrids.standard_error + margin
    refuted = (hybrids.value - far > found.upper) | (hybrids.value + far < found.lower)
    refuted = refuted.any(0) | (bound > found.upper + margin)
    missed = _other_base(boltzmann, path, chains, seed) > found.upper + margin
    rare = _rarely_reached(boltzmann, path, states.top, forward, reverse, seed)
    missed |= rare - math.log(chains) > found.upper + margin
    flagged = refuted | missed
    lower, upper = _extended(found, hybrids, margin)
    lower = torch.where(lower.isneginf(), bound, lower)
    seen = chains + reverse.log_weights.shape[-1]
    upper = torch.maximum(upper, found.value + _unseen(rare - found.value, seen))
    if not bool(flagged.any()):
        return found._replace(lower=lower, upper=upper, flagged=flagged)
    above = upper_bound(boltzmann)
    value = torch.minimum(torch.maximum(best, bound), above)
    worst, name = worst_replica(torch.where(flagged, (value - found.value).abs(), -1.0))
    claim = f"annealing gives log Z in [{found.lower[worst].item():.2f}, {found.upper[worst].item():.2f}]"
    truth = f"only log Z in [{bound[worst].item():.2f}, {above[worst].item():.2f}] is certain"
    why = (
        f"the states found give {value[worst].item():.2f}" if bool(refuted[worst]) else "it hardly reaches some states"
    )
    warnings.warn(f"{name}{claim}, but {why}; {truth}", LogZWarning, stacklevel=stacklevel + 1)
    return found._replace(
        value=torch.where(flagged, value, found.value),
        standard_error=torch.where(flagged, torch.inf, found.standard_error),
        lower=torch.where(flagged, bound, lower),
        upper=torch.where(flagged, above, upper),
        flagged=flagged,
    )


def _combine(exactly: Boltzmann, states: Tensor, chains: Chains) -> tuple[Hybrid, Tensor, Tensor]:
    """The hybrid estimates `(blocks, *replicas)`, the value by the largest sum, and the lower bound on log Z."""
    known = [known_states(exactly, block, states) for block in range(len(exactly.blocks))]
    bounds = torch.stack([one.bound for one in known])
    each = [hybrid_estimate(exactly, one, chains) for one in known]
    hybrids = Hybrid(*(torch.stack(all_blocks) for all_blocks in zip(*each, strict=True)))
    return hybrids, hybrids.value.gather(0, bounds.argmax(0)[None])[0], bounds.amax(0)


def _extended(found: LogZ, hybrids: Hybrid, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the interval, extended to those of hybrid estimates that are more precise or contradict the chains.

    Where most of Z is known exactly, the sum is more precise than annealing, and corrects what is chance. Elsewhere it
    is noisier than good annealing, and would only widen the interval.
    """
    used = (hybrids.standard_error < found.standard_error) | (hybrids.surprise > SURPRISING)
    reach = NORMAL_95 * hybrids.standard_error
    low = torch.where(used, hybrids.value - reach, torch.inf).amin(0)
    high = torch.where(used, hybrids.value + reach, -torch.inf).amax(0)
    lower, upper = torch.minimum(found.lower, found.value - margin), torch.maximum(found.upper, found.value + margin)
    return torch.minimum(lower, low), torch.maximum(upper, high)


def _other_base(boltzmann: Boltzmann, path: Path, chains: int, seed: int) -> Tensor:
    """A limit that log Z exceeds: 4 standard errors below forward annealing, with a few chains from uniform bits."""
    base, few = torch.zeros_like(path.base), max(chains // FEWER, FEWEST)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.GUARD_FORWARD)
    log_weights, _ = anneal(boltzmann, base, path.schedule, few, rng_state, implementation=path.implementation)
    error = log_mean_error(weight_ess(log_weights), few)
    return boltzmann.units * math.log(2) + log_mean_exp(log_weights) - SIGNIFICANT * error


def _rarely_reached(
    boltzmann: Boltzmann, path: Path, top: Tensor, forward: Chains, reverse: Chains, seed: int
) -> Tensor:
    """The largest log p(A) Z / q(A) over neighborhoods A of found states that the chains have not seen; else -inf.

    Reverse annealing from A gives Z p(A) / q(A), where q(A) is the fraction of forward chains that end in A. If p(A) is
    more than C times q(A), C chains see A with a probability below p(A). Neighborhoods that give no more than the
    ordinary reverse chains were seen by these.
    """
    chains = forward.log_weights.shape[-1]
    few = max(chains // FEWER, FEWEST)
    rng_state = replica_rng_states(boltzmann, seed, KeyDomain.GUARD_REVERSE)
    start = top.repeat_interleave(math.ceil(few / top.shape[-2]), dim=-2)
    start, rng_state = sweep(boltzmann, start, rng_state, BURN_IN, implementation=path.implementation)
    log_weights, _ = anneal(
        boltzmann, path.base, path.schedule.flip(0), start.shape[-2], rng_state, start, path.implementation
    )
    largest = (softplus(path.base.to(torch.float64)).sum(-1, keepdim=True) - log_weights).amax(-1)
    usual = reverse.log_weights.amax(-1)
    return torch.where(largest > usual + 1, largest, -torch.inf)


def _unseen(log_ratio: Tensor, seen: int) -> Tensor:
    """Nats by which log Z may be too low because `seen` chains have not reached A, `(*replicas,)`.

    With 95% confidence q(A) is at most 3 / seen (the rule of three), so p(A) is at most 3 / seen times p(A) / q(A).
    """
    p = torch.exp(log_ratio + math.log(RULE_OF_THREE / seen)).clamp(max=LARGEST_UNSEEN)
    return -torch.log1p(-p)
