"""Counter-based random numbers: states of key and counter, random domains, and SplitMix64."""

from softspin.random.domains import DrawDomain, KeyDomain
from softspin.random.state import advance, init_rng_state, one_uniform, uniforms

__all__ = ["DrawDomain", "KeyDomain", "advance", "init_rng_state", "one_uniform", "uniforms"]
