"""Claims about many comparisons of cells. A verdict is final once missing comparisons cannot change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from softspin.report.welch import as_normal, degrees_of_freedom

Verdict = Literal["reproduced", "reproduced so far", "not reproduced", "not reproduced so far", "not yet tested"]
Outcome = Literal["supports", "inconclusive", "contradicts"]
OUTCOMES: tuple[Outcome, ...] = ("supports", "inconclusive", "contradicts")

MOST = Fraction(1, 2)
"""More than this fraction of comparisons must support a claim that says "most", "usually" or "generally"."""
PLAIN = Fraction(3, 4)
"""At least this fraction must support any other claim."""
CLEARLY = 2.0
"""A difference counts if its absolute z-score (of equal p-value by Welch's t) is above this."""


class Measured(NamedTuple):
    """A likelihood with the standard error of its mean over training runs."""

    nll: float
    error: float
    runs: int
    source: str
    """Fingerprint of the data. Values from different data are not compared."""


Measurements = Mapping[str, Measured]
"""Measured values by id of the cell."""


class Difference(NamedTuple):
    """A signed sum of likelihoods, its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    degrees_of_freedom: float

    @property
    def apart(self) -> float:
        """Distance from zero as a z-score: the t statistic converted to the z-score of equal p-value."""
        if not self.error:
            return math.copysign(math.inf, self.value)
        return as_normal(self.value / self.error, self.degrees_of_freedom)


class Case(NamedTuple):
    """One comparison: its cells, and the quantity that the claim expects below zero."""

    text: str
    cells: tuple[str, ...]
    combine: Callable[[Sequence[Measured]], Difference]

    def measure(self, measurements: Measurements) -> Difference | None:
        """The difference; None if a cell has no value or the data differ."""
        found = [measurements[cell] for cell in self.cells if cell in measurements]
        if len(found) < len(self.cells) or len({one.source for one in found}) > 1:
            return None
        return self.combine(found)


class Finding(NamedTuple):
    """The outcome of a comparison."""

    case: Case
    difference: Difference
    outcome: Outcome


class Tally(NamedTuple):
    """The comparisons of a claim that could be made, and how many the claim needs."""

    findings: list[Finding]
    cases: int
    share: Fraction

    @property
    def needed(self) -> int:
        """Number of comparisons that must support the claim."""
        return enough(self.share, self.cases)

    def count(self, outcome: Outcome) -> int:
        """Number of comparisons with this outcome."""
        return sum(finding.outcome == outcome for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """The verdict, with "so far" while missing comparisons could still change it."""
        made, positive = len(self.findings), self.count("supports")
        if positive >= self.needed:
            return "reproduced"
        if positive + self.cases - made < self.needed:
            return "not reproduced"
        if not made:
            return "not yet tested"
        return "reproduced so far" if positive >= enough(self.share, made) else "not reproduced so far"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about its table, as a count of comparisons.

    A comparison supports the claim if its difference is below zero by more than two standard errors (`CLEARLY`),
    contradicts it if above by as much, and is inconclusive otherwise. With `within`, it supports the claim if the
    difference is at most that many nats in absolute value, and contradicts it otherwise.
    """

    text: str
    rule: str
    """Description of the comparisons."""
    cases: tuple[Case, ...]
    share: Fraction
    within: float | None = None

    def judge(self, measurements: Measurements) -> Tally:
        """Count the comparisons that can be made."""
        made = [(case, case.measure(measurements)) for case in self.cases]
        findings = [Finding(case, found, self._outcome(found)) for case, found in made if found is not None]
        return Tally(findings, len(self.cases), self.share)

    def _outcome(self, found: Difference) -> Outcome:
        if self.within is not None:
            return "supports" if abs(found.value) <= self.within + 1e-9 else "contradicts"
        if found.value == 0 or abs(found.apart) <= CLEARLY:
            return "inconclusive"
        return "supports" if found.value < 0 else "contradicts"


@dataclass(frozen=True)
class Observation:
    """One of the paper's observations: reproduced if all of its claims are, not reproduced if one of them is not.

    "So far" is added while missing comparisons could still change the verdict.
    """

    name: str
    text: str
    claims: tuple[Claim, ...]

    def judge(self, measurements: Measurements) -> tuple[Verdict, list[Tally]]:
        """The verdict, and the tally of each claim."""
        tallies = [claim.judge(measurements) for claim in self.claims]
        verdicts = {tally.verdict for tally in tallies}
        worst_first: tuple[Verdict, ...] = (
            "not reproduced",
            "not yet tested",
            "not reproduced so far",
            "reproduced so far",
            "reproduced",
        )
        return next(verdict for verdict in worst_first if verdict in verdicts), tallies


def enough(share: Fraction, cases: int) -> int:
    """Number of `cases` comparisons that must support a claim: more than half, or at least three quarters.

    >>> enough(MOST, 8), enough(PLAIN, 6)
    (5, 5)
    """
    return cases // 2 + 1 if share == MOST else math.ceil(share * cases)


def weighted(*weights: float) -> Callable[[Sequence[Measured]], Difference]:
    """Return a function that computes Σ weight × NLL with its standard error.

    >>> weighted(1, -1)([Measured(84.0, 0.03, 5, ""), Measured(85.0, 0.03, 5, "")])
    Difference(value=-1.0, error=0.0424..., degrees_of_freedom=8.0)
    """

    def combine(found: Sequence[Measured]) -> Difference:
        pairs = list(zip(weights, found, strict=True))
        means = [(abs(weight) * one.error, one.runs) for weight, one in pairs]
        return Difference(
            math.fsum(weight * one.nll for weight, one in pairs),
            math.hypot(*(error for error, _ in means)),
            degrees_of_freedom(means),
        )

    return combine


def against_the_lowest(found: Sequence[Measured]) -> Difference:
    """First NLL minus the lowest of the others."""
    return weighted(1, -1)((found[0], min(found[1:], key=lambda one: one.nll)))


def near_each_other(found: Sequence[Measured]) -> Difference:
    """Distance between the first two NLLs, minus the difference between the lower of them and the third."""
    low, high = sorted(found[:2], key=lambda one: one.nll)
    return weighted(1, -2, 1)((high, low, found[2]))
