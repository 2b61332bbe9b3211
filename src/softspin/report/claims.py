"""Claims about many comparisons of cells: judged so far, and for good once those that are missing cannot change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from softspin.report.welch import as_normal, freedom

Verdict = Literal["seen", "seen so far", "not seen", "not seen so far", "not yet run"]
Outcome = Literal["for", "level", "against"]
OUTCOMES: tuple[Outcome, ...] = ("for", "level", "against")

MOST = Fraction(1, 2)
"""More than this share of comparisons must be for a claim that says "most", "usually" or "generally"."""
PLAIN = Fraction(3, 4)
"""At least this share for a claim that is made without such a word."""
CLEARLY = 2.0
"""Standard errors by which a difference counts as one; as many as if the spreads were known."""


class Measured(NamedTuple):
    """A likelihood with the standard error of its mean over training runs."""

    nll: float
    error: float
    runs: int
    source: str
    """Of which data; what was measured on different data is not compared."""


Measurements = Mapping[str, Measured]
"""By the ids of cells."""


class Difference(NamedTuple):
    """A sum of likelihoods with signs, its standard error, and how many degrees of freedom that has."""

    value: float
    error: float
    freedom: float

    @property
    def apart(self) -> float:
        """From zero, in standard errors, as if those were known."""
        return as_normal(self.value / self.error, self.freedom) if self.error else math.copysign(math.inf, self.value)


class Case(NamedTuple):
    """One comparison: of which cells, and what is to be below zero."""

    text: str
    cells: tuple[str, ...]
    combine: Callable[[Sequence[Measured]], Difference]

    def measure(self, measurements: Measurements) -> Difference | None:
        """None unless all cells are there, and of the same data."""
        found = [measurements[cell] for cell in self.cells if cell in measurements]
        if len(found) < len(self.cells) or len({one.source for one in found}) > 1:
            return None
        return self.combine(found)


class Finding(NamedTuple):
    """What came out of a comparison."""

    case: Case
    difference: Difference
    outcome: Outcome


class Tally(NamedTuple):
    """The comparisons of a claim that could be made, and how many it takes."""

    findings: list[Finding]
    cases: int
    share: Fraction

    @property
    def needed(self) -> int:
        """How many of all comparisons must be for the claim."""
        return enough(self.share, self.cases)

    def count(self, outcome: Outcome) -> int:
        """Comparisons that came out so."""
        return sum(finding.outcome == outcome for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """With "so far" as long as comparisons that are missing could decide otherwise."""
        made, positive = len(self.findings), self.count("for")
        if positive >= self.needed:
            return "seen"
        if positive + self.cases - made < self.needed:
            return "not seen"
        if not made:
            return "not yet run"
        return "seen so far" if positive >= enough(self.share, made) else "not seen so far"


@dataclass(frozen=True)
class Claim:
    """Something that the paper says of its table, as a count of comparisons.

    A comparison is for the claim if its difference is below zero by more than two standard errors (`CLEARLY`), against
    it if above by as much, and level otherwise. With `within`, it is for the claim if the difference is at most so
    many nats either way, and against it otherwise.
    """

    text: str
    rule: str
    """What is compared, in words."""
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
            return "for" if abs(found.value) <= self.within + 1e-9 else "against"
        if found.value == 0 or abs(found.apart) <= CLEARLY:
            return "level"
        return "for" if found.value < 0 else "against"


@dataclass(frozen=True)
class Observation:
    """One of the paper's observations: seen if all of its claims are, not seen if one of them is not.

    So far: where that is not settled, but each of its claims has some comparison.
    """

    name: str
    text: str
    claims: tuple[Claim, ...]

    def judge(self, measurements: Measurements) -> tuple[Verdict, list[Tally]]:
        """The verdict, and the tally of each claim."""
        tallies = [claim.judge(measurements) for claim in self.claims]
        verdicts = {tally.verdict for tally in tallies}
        worst_first: tuple[Verdict, ...] = ("not seen", "not yet run", "not seen so far", "seen so far", "seen")
        return next(verdict for verdict in worst_first if verdict in verdicts), tallies


def enough(share: Fraction, cases: int) -> int:
    """How many of so many comparisons must be for a claim: more than half, or at least three quarters.

    >>> enough(MOST, 8), enough(PLAIN, 6)
    (5, 5)
    """
    return cases // 2 + 1 if share == MOST else math.ceil(share * cases)


def weighted(*weights: float) -> Callable[[Sequence[Measured]], Difference]:
    """Σ weight × NLL.

    >>> weighted(1, -1)([Measured(84.0, 0.03, 5, ""), Measured(85.0, 0.03, 5, "")])
    Difference(value=-1.0, error=0.0424..., freedom=8.0)
    """

    def combine(found: Sequence[Measured]) -> Difference:
        pairs = list(zip(weights, found, strict=True))
        means = [(abs(weight) * one.error, one.runs) for weight, one in pairs]
        return Difference(
            math.fsum(weight * one.nll for weight, one in pairs),
            math.hypot(*(error for error, _ in means)),
            freedom(means),
        )

    return combine


def against_the_lowest(found: Sequence[Measured]) -> Difference:
    """The first less the lowest of the others."""
    return weighted(1, -1)((found[0], min(found[1:], key=lambda one: one.nll)))


def near_each_other(found: Sequence[Measured]) -> Difference:
    """How far the first two are apart, less how far the lower of them is above the third."""
    low, high = sorted(found[:2], key=lambda one: one.nll)
    return weighted(1, -2, 1)((high, low, found[2]))
