"""All random domains, in one list. Draws of different domains are independent.

There are two kinds of domains. A number may occur in both.

- A :class:`KeyDomain` is part of the key. `init_rng_state(seed, replicas, domain=...)` hashes seed, domain and replica,
  so one seed gives unrelated keys to a sampler, to training and to an evaluation.
- A :class:`DrawDomain` separates draws that share a key and a counter. `uniforms`, `one_uniform` and
  `softspin.kernels.noise.noise` take one.

Domains are plain integers, because compiled code and GPU kernels take them. Every stored result depends on their
values: none may change, and a new domain needs an unused number of its kind. `softspin.data.seeded` has a separate
generator and list, because its draws are part of the data sets.
"""

from __future__ import annotations

from typing import Final, final


@final
class KeyDomain:
    """Domains that derive a key from a seed."""

    DEFAULT: Final = 0
    """No separation needed: examples, benchmarks, tests of kernels."""
    GIBBS: Final = 1
    POPULATION: Final = 2
    TEMPERING: Final = 3
    FORWARD_AIS: Final = 4
    REVERSE_AIS: Final = 5
    DIMOD: Final = 6
    AIS_SAMPLES: Final = 7
    """The second forward run of sandwich AIS, which draws the samples for its reverse run."""
    SEARCH: Final = 8
    """The search for states that annealing may miss."""
    GUARD_FORWARD: Final = 9
    """Annealing from another base, as a check."""
    GUARD_REVERSE: Final = 10
    """Reverse annealing from found states, as a check."""
    TRAINING: Final = 101
    """One key for all draws of a training step, which a :class:`DrawDomain` separates."""
    AVERAGING: Final = 102
    """Batches that give averaged parameters their statistics of batch norm."""
    EVALUATION: Final = 111
    FIGURES: Final = 111
    """Measurements of Fig. 2 during training. By mistake this is the number of EVALUATION: with equal seeds both have
    the same key. They never share a draw, because the figures use Philox (or the generator of the GPU), evaluations use
    SplitMix64, and a figure evaluates nothing. The stored arrays of Fig. 2 depend on this number, so it stays."""


@final
class DrawDomain:
    """Domains that separate draws under one key and counter."""

    SWEEP: Final = 0
    """Gibbs sweeps and annealing, with one counter value per sweep."""
    START: Final = 1
    """Initial states of chains and populations."""
    RESAMPLE: Final = 2
    EXCHANGE: Final = 3
    """Replica exchanges of parallel tempering."""
    DIMOD_SEED: Final = 4
    """The seed passed to a dimod sampler."""
    POSTERIOR: Final = 101
    """Training: uniforms for the soft bits of the posterior."""
    BINARIZATION: Final = 102
    """Training: uniforms that binarize gray images."""
    SHUFFLE: Final = 103
    """Training: the order of the images. The counter is the epoch."""
    DROPOUT: Final = 104
    """Training: uniforms for the dropout of the decoder."""
    FLIPS: Final = 105
    """Training: uniforms that flip bits of the encoder's input."""
    FIGURE_IMAGES: Final = 111
    """Fig. 2: the choice of training images."""
    FIGURE_BINARIZATION: Final = 112
    FIGURE_POSTERIOR: Final = 113
