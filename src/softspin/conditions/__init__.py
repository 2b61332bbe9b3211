"""Conditional models p(x | c): the condition as an input of the networks, and its fields in the prior."""

from softspin.conditions.given import Given
from softspin.conditions.module import Condition

__all__ = ["Condition", "Given"]
