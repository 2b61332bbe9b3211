"""Random states: the dependence of draws on key and counter, and their distribution."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from softspin.random import advance, init_rng_state, one_uniform, uniforms
from truth import ks_distance, ks_limit


def test_states_differ_by_seed_replica_domain_and_counter() -> None:
    keys = [
        init_rng_state(seed, 3, domain=p)[:, 0].tolist() for seed, p in itertools.product((0, 1, -1, 2**63), (0, 1))
    ]
    assert len({key for row in keys for key in row}) == 4 * 3 * 2
    assert torch.equal(init_rng_state(7, 5)[:2], init_rng_state(7, 2))
    rng_state = init_rng_state(0, 2)
    drawn = [uniforms(rng_state, k, (4,), torch.float64, domain=p) for k, p in ((0, 0), (1, 0), (0, 1))]
    values = torch.cat([d.flatten() for d in drawn])
    assert len(values.unique()) == len(values)
    assert torch.equal(uniforms(advance(rng_state, 1), 0, (4,), torch.float64), drawn[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniforms_are_uniform_and_inside(dtype: torch.dtype) -> None:
    """Test 200,000 draws by Kolmogorov-Smirnov (false-alarm rate 1e-6) and the correlation of neighbours."""
    u = torch.cat([uniforms(init_rng_state(3, 20), k, (50,), dtype).flatten() for k in range(200)])
    assert ks_distance(u.double()) < ks_limit(len(u))
    assert 0 < u.min() < u.max() < 1
    pairs = u[:-1] - 0.5, u[1:] - 0.5
    correlation = (pairs[0] * pairs[1]).mean().item() * 12
    assert abs(correlation) < 5 / math.sqrt(len(u))


def test_one_uniform_follows_its_definition_and_needs_no_host() -> None:
    """Compare with the top 31 bits of SplitMix64 in Python integers, for keys and counters at both ends of int64."""
    rows = [(0, 0), (-1, 3), (2**63 - 1, 2**40), (-(2**63), 1), *init_rng_state(1, 3).tolist()]
    for domain in (1, 2):
        got = one_uniform(torch.tensor(rows), domain)
        expected = [(_splitmix(k + c * 0xD1342543DE82EF95 + _splitmix(domain)) >> 33) + 0.5 for k, c in rows]
        # The sign bit is flipped, because int64 starts at -2**63.
        assert (got * 2.0**31).tolist() == [(x + 2.0**30) % 2.0**31 for x in expected]
    assert one_uniform(torch.zeros(2, 3, 2, dtype=torch.int64, device="meta"), 1).shape == (2, 3)


def _splitmix(word: int) -> int:
    """Compute SplitMix64 as published (Steele, Lea and Flood, 2014)."""
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def test_one_uniform_is_uniform_and_its_draws_are_uncorrelated() -> None:
    """Test 1,000 counters of 200 keys by Kolmogorov-Smirnov (false-alarm rate 1e-6) and correlations along both."""
    rng_state = init_rng_state(3, 200)
    u = torch.stack([one_uniform(advance(rng_state, k), 2) for k in range(1000)])
    assert ks_distance(u.flatten()) < ks_limit(u.numel())
    assert 0 < u.min() < u.max() < 1
    for other in (u.roll(1, 0), u.roll(40, 0), u.roll(1, 1), torch.stack([one_uniform(rng_state, 2)] * 1000)):
        correlation = ((u - 0.5) * (other - 0.5))[1:].mean().item() * 12
        assert abs(correlation) < 5 / math.sqrt(u.numel())
