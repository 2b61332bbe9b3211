"""Every number that keeps random draws apart, in one list.

There are two kinds of domains, and a number may stand in both.

- A :class:`KeyDomain` is part of the key. `init_rng_state(seed, replicas, domain=...)` hashes seed, domain and replica,
  so one seed gives unrelated keys to a sampler, to training and to an evaluation.
- A :class:`DrawDomain` separates draws that share a key and a counter: `uniforms`, `one_uniform` and
  `softspin.kernels.noise.noise` take one.

The numbers are plain integers, because compiled code and GPU kernels take them. Every stored result depends on them:
none may change, and a new domain takes a number that its own list does not have yet. `softspin.data.seeded` has a
generator and a list of its own, because its draws are part of the data sets.
"""

from __future__ import annotations

from typing import Final, final


@final
class KeyDomain:
    """Domains that derive a key from a seed."""

    DEFAULT: Final = 0
    """Nothing to be kept apart from: examples, benchmarks, tests of kernels."""
    GIBBS: Final = 1
    POPULATION: Final = 2
    TEMPERING: Final = 3
    FORWARD_AIS: Final = 4
    REVERSE_AIS: Final = 5
    DIMOD: Final = 6
    AIS_SAMPLES: Final = 7
    """The second forward run of a sandwich, which makes the samples for its reverse run."""
    TRAINING: Final = 101
    """One key for all draws of a training step; :class:`DrawDomain` keeps them apart."""
    EVALUATION: Final = 111
    FIGURES: Final = 111
    """What Fig. 2 measures during training. By mistake the number of EVALUATION: with equal seeds both have the same
    key. They never share a draw, because the figures draw by Philox (or the GPU's own) and evaluations by SplitMix64,
    and a figure evaluates nothing. The stored arrays of Fig. 2 depend on this number, so it stays."""


@final
class DrawDomain:
    """Domains that separate draws under one key and counter."""

    SWEEP: Final = 0
    """Gibbs sweeps and annealing; one counter for each sweep."""
    START: Final = 1
    """Initial states of chains and populations."""
    RESAMPLE: Final = 2
    EXCHANGE: Final = 3
    """Exchanges of parallel tempering."""
    DIMOD_SEED: Final = 4
    """The seed that a dimod sampler is given."""
    POSTERIOR: Final = 101
    """Training: uniforms of the posterior's soft bits."""
    BINARIZATION: Final = 102
    """Training: uniforms that binarize grey images."""
    SHUFFLE: Final = 103
    """Training: the order of the images; its counter is the epoch."""
    FIGURE_IMAGES: Final = 111
    """Fig. 2: which training images."""
    FIGURE_BINARIZATION: Final = 112
    FIGURE_POSTERIOR: Final = 113


def domains(kind: type[KeyDomain] | type[DrawDomain]) -> dict[str, int]:
    """All domains of one kind by name.

    >>> domains(DrawDomain)["START"]
    1
    """
    return {name: number for name, number in vars(kind).items() if name.isupper()}
