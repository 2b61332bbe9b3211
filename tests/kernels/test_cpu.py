"""Compiled CPU kernels: compared with a naive reference on the same uniforms and with exact distributions."""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import os
import platform
import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from softspin.errors import MissingExtraError, ShapeError, SupportError, TooLargeError
from softspin.numerics import all_states, softplus
from softspin.random import init_rng_state

cpu = pytest.importorskip("softspin.kernels.cpu", reason="needs the extra fast")

SIZES = [(7, 13), (33, 100), (100, 100), (200, 200)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def boltzmann(n: int, m: int, replicas: int = 1, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Make bias, weight and base, with weights such that fields are of order `scale`."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(replicas, n, m, generator=g) * (2 * scale / math.sqrt(max(n, m)))
    return torch.randn(replicas, n + m, generator=g) * scale, weight, torch.randn(replicas, n + m, generator=g)


def states(replicas: int, chains: int, units: int, seed: int = 1) -> Tensor:
    return (torch.rand(replicas, chains, units, generator=torch.Generator().manual_seed(seed)) < 0.5).float()


# -- the same decisions as a reference -----------------------------------------------------------------------------


def reference_side(
    given: Tensor, weight: Tensor, bias: Tensor, base: Tensor, t: Tensor, u: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw one side given the other by exact integer sums, then float32. Returns bits and distances from a tie."""
    unit = weight.abs().amax((1, 2), keepdim=True) / 2**21
    sums = given.long().double() @ torch.round(weight / unit).double()
    x = base[:, None] + t[..., None] * ((bias - base)[:, None] + sums.float() * unit)
    return (u * (1 + torch.exp(-x)) < 1).float(), (u - torch.sigmoid(x.double())).abs()


def assert_is_sweep(new: Tensor, z: Tensor, bias: Tensor, weight: Tensor, base: Tensor, t: Tensor, u: Tensor) -> None:
    """Check one sweep, each half from the state of the kernel, so that a tie does not propagate."""
    n = weight.shape[1]
    left, right = slice(0, n), slice(n, None)
    expected, distance = reference_side(z[..., left], weight, bias[:, right], base[:, right], t, u[..., right])
    assert (distance[new[..., right] != expected] < 1e-6).all()
    expected, distance = reference_side(new[..., right], weight.mT, bias[:, left], base[:, left], t, u[..., left])
    assert (distance[new[..., left] != expected] < 1e-6).all()


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("chains", [1, 2, 128, 129, 257])
def test_a_sweep_equals_the_reference_on_the_same_uniforms(n: int, m: int, chains: int, replicas: int) -> None:
    bias, weight, base = boltzmann(n, m, replicas)
    z, rng_state = states(replicas, chains, n + m), init_rng_state(3, replicas)
    t = torch.rand(replicas, chains, generator=torch.Generator().manual_seed(2))
    t[:, 0] = 0
    for sweep in range(2):
        u = cpu.uniforms(rng_state, 0, chains, (n, m))
        assert torch.equal(u, cpu.uniforms(init_rng_state(3, replicas), sweep, chains, (n, m)))
        new, _ = cpu.gibbs_sweeps(z, bias, weight, rng_state, 1, t, base)
        assert_is_sweep(new, z, bias, weight, base, t, u)
        new, rng_state = cpu.gibbs_sweeps(z, bias, weight, rng_state, 1)
        assert_is_sweep(new, z, bias, weight, torch.zeros_like(base), torch.ones(replicas, chains), u)
        z = new


def test_ties_of_the_first_16_bits_are_decided_by_the_rest() -> None:
    """Place fields at the boundary of the next uniforms, so that half of all decisions need the last bits."""
    n, m, chains = 64, 64, 1
    rng_state = init_rng_state(5, 512)
    u = cpu.uniforms(rng_state, 0, chains, (n, m)).double()
    edge = (u * 2**16).floor() / 2**16 + 2.0**-17  # the middle of the interval given by 16 bits
    bias = torch.logit(edge[:, 0]).float()
    weight = torch.zeros(512, n, m)
    z = torch.zeros(512, chains, n + m)
    new, _ = cpu.gibbs_sweeps(z, bias, weight, rng_state, 1)
    expected = (u.float() * (1 + torch.exp(-bias[:, None])) < 1).float()
    unsure = (u - torch.sigmoid(bias[:, None].double())).abs() < 1e-7
    assert torch.equal(new[~unsure], expected[~unsure])
    assert 0.45 < new.mean() < 0.55


MASKED = """
import re
from softspin.kernels import cpu_compile, cpu_jit
code = "".join(compiled._library.get_llvm_str() for compiled in cpu_compile._kept)
print(len(re.findall("<[0-9]+ x float>", code)))
print(*(int(n) * int(bits) for n, bits in re.findall(r"@llvm.masked.(?:load|store).v([0-9]+)[a-z]+([0-9]+)", code)))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX-512 exists only on x86")
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "AVX512", reason="the tests above run this code here")
def test_code_for_avx_512_masks_no_narrow_vector(tmp_path: Path) -> None:
    """LLVM 20 widens a masked store of 8 bytes to 16 and leaves the new half of the mask on.

    Chains with a tie in their first 16 bits lost units. This test only compiles for such a processor.
    """
    processor = {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", MASKED], env=os.environ | processor, capture_output=True, text=True, check=True
    )
    vectors, *masked = map(int, run.stdout.split())
    assert vectors > 100
    assert all(width >= 128 for width in masked)


def test_no_step_of_annealing_is_lost_at_the_edge_of_the_series() -> None:
    """Compare steps around a field change of 1/4 with the closed form.

    Fixed point rounds 200 weights up, and all their units are on, so the field changes by slightly more than their sum.
    """
    weight = torch.full((1, 200, 1), (2**20 + 0.625) / 2**21)
    weight[0, 0, 0] = 1.0
    bias = torch.cat([torch.full((1, 200), 60.0), torch.zeros(1, 1)], dim=1)
    total = weight.double().sum()
    for ulps in range(-40, 41):
        step = 0.25 / total * (1 + 2e-8 * ulps)
        log_weight, _, _ = cpu.anneal(bias, weight, bias, torch.stack([0 * step, step]), 2, torch.tensor([[5, 0]]))
        assert (log_weight - (softplus(step * total) - math.log(2))).abs().max() < 1e-5


def test_uniforms_look_uniform() -> None:
    u = cpu.uniforms(init_rng_state(0, 2), 0, 1000, (100, 101)).double()
    assert 0 < u.min() < 1e-4
    assert 1 - 1e-4 < u.max() <= 1
    count = u.numel()
    assert abs(u.mean() - 0.5) < 5 * math.sqrt(1 / 12 / count)
    for other in (u.roll(1, 0), u.roll(1, 1), u.roll(1, 2), cpu.uniforms(init_rng_state(0, 2), 1, 1000, (100, 101))):
        assert abs(((u - 0.5) * (other - 0.5)).mean()) < 5 / 12 / math.sqrt(count)
    bits = (u * 2**24).long()[..., None] >> torch.arange(1, 24) & 1  # float32 rounds the last one away
    assert (abs(bits.double().mean((0, 1, 2)) - 0.5) < 6 * 0.5 / math.sqrt(count)).all()


def test_many_sweeps_equal_single_sweeps() -> None:
    bias, weight, base = boltzmann(33, 100, 3)
    z, rng_state, t = states(3, 130, 133), init_rng_state(0, 3), torch.full((3, 130), 0.7)
    together, end = cpu.gibbs_sweeps(z, bias, weight, rng_state, 5, t, base)
    for _ in range(5):
        z, rng_state = cpu.gibbs_sweeps(z, bias, weight, rng_state, 1, t, base)
    assert torch.equal(together, z)
    assert torch.equal(end, rng_state)
    assert end[:, 1].tolist() == [5, 5, 5]


def test_incoming_right_side_is_not_read() -> None:
    bias, weight, _ = boltzmann(7, 13)
    z = states(1, 20, 20)
    other = z.clone()
    other[..., 7:] = math.nan
    assert torch.equal(*(cpu.gibbs_sweeps(x, bias, weight, init_rng_state(0, 1), 2)[0] for x in (z, other)))


# -- independence of threads, blocks and neighbours ----------------------------------------------------------------


def both(bias: Tensor, weight: Tensor, base: Tensor, chains: int, rng_state: Tensor, z: Tensor) -> list[Tensor]:
    schedule = torch.linspace(0, 1, 21)
    return [
        cpu.gibbs_sweeps(z, bias, weight, rng_state, 10)[0],
        *cpu.anneal(bias, weight, base, schedule, chains, rng_state),
    ]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("openmp", [True, False])
def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, openmp: bool) -> None:
    args = (*boltzmann(33, 100, 3), 257, init_rng_state(0, 3), states(3, 257, 133))
    torch.set_num_threads(1)
    expected = both(*args)
    if not openmp:
        monkeypatch.setattr(cpu, "_openmp", lambda: None)
    for count, block in ((2, 128), (3, 10), (2, 1)):
        torch.set_num_threads(count)
        monkeypatch.setattr(cpu, "BLOCK", block)
        assert all(torch.equal(a, b) for a, b in zip(expected, both(*args), strict=True))


def test_replicas_and_chains_do_not_depend_on_their_neighbours() -> None:
    bias, weight, base = boltzmann(33, 100, 3)
    z, rng_state = states(3, 140, 133), init_rng_state(0, 3)
    together = both(bias, weight, base, 140, rng_state, z)
    alone = both(bias[1:2], weight[1:2], base[1:2], 140, rng_state[1:2], z[1:2])
    assert all(torch.equal(a[1:2], b) for a, b in zip(together, alone, strict=True))
    fewer = both(bias, weight, base, 31, rng_state, z[:, :31])
    assert all(torch.equal(a[:, :31], b) for a, b in zip(together[:-1], fewer[:-1], strict=True))


def test_calls_from_several_python_threads() -> None:
    args = (*boltzmann(33, 100, 2), 100, init_rng_state(0, 2), states(2, 100, 133))
    expected = both(*args)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: both(*args), range(12)):
            assert all(torch.equal(a, b) for a, b in zip(expected, result, strict=True))


def _in_child(queue: Any) -> None:
    bias, weight, base = boltzmann(33, 100, 2)
    queue.put([x.numpy() for x in both(bias, weight, base, 100, init_rng_state(0, 2), states(2, 100, 133))])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of every fork with threads
def test_works_in_a_forked_child() -> None:
    expected = both(*boltzmann(33, 100, 2), 100, init_rng_state(0, 2), states(2, 100, 133))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    result = queue.get(timeout=60)
    child.join(timeout=60)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(expected, result, strict=True))


# -- the distribution ----------------------------------------------------------------------------------------------


def exact(bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the probabilities of all states of one RBM, unit 0 the lowest bit, and log Z; float64."""
    n, m = weight.shape
    z = torch.cat(list(all_states(n + m)))
    score = z @ bias.double() + ((z[:, :n] @ weight.double()) * z[:, n:]).sum(-1)
    return torch.softmax(score, 0), torch.logsumexp(score, 0)


def chi_square(z: Tensor, probability: Tensor) -> float:
    counts = torch.bincount((z.long() << torch.arange(z.shape[-1])).sum(-1).flatten(), minlength=len(probability))
    expected = probability * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(("off_by", "fits"), [(0.0, True), (0.1, False)])
def test_stationary_distribution(off_by: float, fits: bool) -> None:
    """Chi-square with 63 degrees of freedom exceeds 139.4 once in a million. A bias off by 0.1 is detected."""
    bias, weight, _ = boltzmann(3, 3, seed=4)
    probability, _ = exact(bias[0], weight[0])
    bias[0, 1] += off_by
    z, _ = cpu.gibbs_sweeps(states(1, 200_000, 6), bias, weight, init_rng_state(0, 1), 20)
    assert (chi_square(z, probability) < 139.4) == fits


def test_tempered_distribution() -> None:
    """At temperature t the parameters are interpolated. False-alarm rate 1e-6."""
    bias, weight, base = boltzmann(3, 3, seed=4)
    probability, _ = exact(0.6 * base[0] + 0.4 * bias[0], 0.4 * weight[0])
    t = torch.full((1, 200_000), 0.4)
    z, _ = cpu.gibbs_sweeps(states(1, 200_000, 6), bias, weight, init_rng_state(0, 1), 15, t, base)
    assert chi_square(z, probability) < 139.4


# -- annealing -----------------------------------------------------------------------------------------------------


def log_mean(log_weight: Tensor) -> tuple[float, float]:
    """Compute the log of the mean weight and its standard error."""
    weight = (log_weight - log_weight.max()).exp()
    error = weight.std() / weight.mean() / math.sqrt(len(weight))
    return float(weight.mean().log() + log_weight.max()), float(error)


@pytest.mark.parametrize("temperatures", [2, 5, 50])
@pytest.mark.parametrize(("n", "m"), [(4, 3), (6, 9)])
def test_weights_are_unbiased_forward_and_reverse(n: int, m: int, temperatures: int) -> None:
    bias, weight, base = boltzmann(n, m, seed=2)
    probability, log_z = exact(bias[0], weight[0])
    truth = float(log_z - softplus(base[0].double()).sum())
    path = torch.linspace(0, 1, temperatures, dtype=torch.float64)
    chains = 50_000
    forward, z, _ = cpu.anneal(bias, weight, base, path, chains, init_rng_state(0, 1))
    value, error = log_mean(forward[0])
    assert abs(value - truth) < 5 * error
    start = torch.multinomial(probability, chains, replacement=True, generator=torch.Generator().manual_seed(0))
    samples = (start[:, None] >> torch.arange(n + m) & 1).float()[None]
    reverse, _, _ = cpu.anneal(bias, weight, base, path.flip(0), chains, init_rng_state(1, 1), samples)
    value, error = log_mean(reverse[0])
    assert abs(-value - truth) < 5 * error
    lower, upper = forward.mean(), -reverse.mean()  # lower and upper bounds in expectation, by Jensen's inequality
    assert lower - 5 * forward.std() / math.sqrt(chains) < truth < upper + 5 * reverse.std() / math.sqrt(chains)
    assert z.shape == (1, chains, n + m)


def test_the_end_of_a_long_run_samples_the_boltzmann_machine() -> None:
    """False-alarm rate 1e-6."""
    bias, weight, base = boltzmann(3, 3, seed=4)
    _, z, _ = cpu.anneal(bias, weight, base, torch.linspace(0, 1, 200), 40_000, init_rng_state(0, 1))
    assert chi_square(z, exact(bias[0], weight[0])[0]) < 139.4


def test_no_variance_without_coupling_if_the_base_has_the_same_biases() -> None:
    bias, weight, _ = boltzmann(33, 100, 2)
    log_weight, _, _ = cpu.anneal(bias, 0 * weight, bias, torch.linspace(0, 1, 50), 100, init_rng_state(0, 2))
    assert torch.equal(log_weight, torch.zeros(2, 100, dtype=torch.float64))


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("scale", [0.3, 1.0, 8.0])
@pytest.mark.parametrize(("before", "after"), [(0.5, 0.501), (0.2, 0.19), (0.4, 0.45), (1.0, 0.0), (0.0, 1.0)])
def test_increment_against_float64(n: int, m: int, scale: float, before: float, after: float) -> None:
    """Compare one increment of the log weight, given the left side after the first sweep, to a relative 1e-6."""
    chains = 50
    bias, weight, base = boltzmann(n, m, scale=scale)
    start, path = states(1, chains, n + m), torch.tensor([before, after], dtype=torch.float64)
    log_weight, _, _ = cpu.anneal(bias, weight, base, path, chains, init_rng_state(0, 1), start)
    first = torch.full((1, chains), before)
    left = cpu.gibbs_sweeps(start, bias, weight, init_rng_state(0, 1), 1, first, base)[0][..., :n].double()

    unit = weight.abs().amax() / 2**21
    driven = left @ (torch.round(weight / unit).double() * unit.double())
    slope = bias.double() - base.double()
    rate = slope[:, None, n:] + driven

    def log_f(t: float) -> tuple[Tensor, Tensor]:
        return softplus(base.double()[:, None, n:] + t * rate), t * (left * slope[:, None, :n])

    change = torch.cat([new - old for new, old in zip(log_f(after), log_f(before), strict=True)], dim=-1)
    assert ((log_weight - change.sum(-1)).abs() < 1e-6 * change.abs().sum(-1) + 1e-12).all()


def test_anneal_agrees_with_plain_on_the_same_uniforms() -> None:
    """The same draws give the same chains and log weights, except for ties, of which this seed has none."""
    from softspin.kernels import plain

    bias, weight, base = boltzmann(33, 100, 2)
    path, rng_state = torch.linspace(0, 1, 9), init_rng_state(0, 2)

    def uniforms(sweep: int) -> Tensor:
        drawn: Tensor = cpu.uniforms(rng_state, sweep, 40, (33, 100))
        return drawn

    ours = cpu.anneal(bias, weight, base, path, 40, rng_state)
    theirs = plain.anneal(bias, weight, base, path, 40, rng_state, uniforms=uniforms)
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=2e-4)
    assert torch.equal(ours[1], theirs[1])
    assert torch.equal(ours[2], theirs[2])


# -- the optional package ------------------------------------------------------------------------------------------


def test_missing_numba_raises_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"need the package numba; in a clone .*\[fast\]'$"):
        runpy.run_path(cpu.__file__)


# -- bad input -----------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "z": torch.zeros(2, 4, 5),
    "bias": torch.zeros(2, 5),
    "weight": torch.zeros(2, 2, 3),
    "rng_state": torch.zeros(2, 2, dtype=torch.int64),
    "sweeps": 1,
}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"z": torch.zeros(2, 4, 6)},
            ShapeError,
            r"chains of shape \(2, 4, 6\); they must be \(2, at least 1, 5\)",
        ),
        ({"z": torch.zeros(2, 0, 5)}, ShapeError, r"chains of shape \(2, 0, 5\)"),
        ({"z": torch.full((2, 4, 5), 0.5)}, SupportError, r"left side of the chains has values other than 0 and 1"),
        ({"z": torch.full((2, 4, 5), math.nan)}, SupportError, r"other than 0 and 1"),
        (
            {"z": torch.zeros(2, 4, 5).double()},
            SupportError,
            r"chains of torch.float64 on cpu; .* torch.float32 on the cpu",
        ),
        ({"weight": torch.zeros(2, 2, 3).double()}, SupportError, r"weight of torch.float64"),
        ({"weight": torch.full((2, 2, 3), math.nan)}, SupportError, r"weight holds NaN or infinity; every entry must"),
        ({"weight": torch.full((2, 2, 3), -math.inf)}, SupportError, r"weight holds NaN or infinity"),
        ({"bias": torch.full((2, 5), math.inf)}, SupportError, r"bias holds NaN or infinity; every entry must be"),
        ({"base": torch.full((2, 5), math.nan), "t": torch.ones(2, 4)}, SupportError, r"base holds NaN or infinity"),
        ({"base": torch.zeros(5), "t": torch.ones(2, 4)}, ShapeError, r"base of shape \(5,\)"),
        ({"bias": torch.zeros(2, 6)}, ShapeError, r"bias \(2, 6\) and weight \(2, 2, 3\) do not fit; kernels take"),
        ({"rng_state": torch.zeros(2, 2)}, ShapeError, r"rng_state \(2, 2\) of torch.float32"),
        ({"sweeps": 0}, SupportError, r"0 sweeps; at least 1 is needed"),
        ({"t": torch.ones(2)}, ShapeError, r"temperatures of shape \(2,\); one per chain is \(2, 4\)"),
        ({"t": torch.full((2, 4), 1.5)}, SupportError, r"temperatures from 1.5 to 1.5; they must lie in \[0, 1\]"),
        ({"t": torch.full((2, 4), math.nan)}, SupportError, r"they must lie in \[0, 1\]"),
    ],
)
def test_bad_sweeps(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        cpu.gibbs_sweeps(**GOOD | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"chains": 0}, SupportError, r"0 chains; at least 1 is needed"),
        ({"start": torch.zeros(2, 3, 5)}, ShapeError, r"start has 3 chains, but chains = 4; they must be equal"),
        ({"base": torch.zeros(2, 4)}, ShapeError, r"base of shape \(2, 4\)"),
    ],
)
def test_bad_annealing(change: dict[str, Any], error: type[Exception], text: str) -> None:
    good = {name: GOOD[name] for name in ("bias", "weight", "rng_state")}
    good |= {"base": torch.zeros(2, 5), "schedule": torch.linspace(0, 1, 3), "chains": 4}
    with pytest.raises(error, match=text):
        cpu.anneal(**good | change)


def test_fields_beyond_32_bits_raise_and_do_not_wrap() -> None:
    n = 1200
    with pytest.raises(TooLargeError, match="do not fit into 32 bits; use implementation 'plain'"):
        cpu.gibbs_sweeps(torch.zeros(1, 1, n + 1), torch.zeros(1, n + 1), torch.ones(1, n, 1), init_rng_state(0, 1), 1)


def test_extreme_fields() -> None:
    bias = torch.tensor([[1e30, -1e30, 300.0, -300.0]])
    z, _ = cpu.gibbs_sweeps(torch.ones(1, 50, 4), bias, torch.zeros(1, 2, 2), init_rng_state(0, 1), 3)
    assert torch.equal(z, torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(1, 50, 4))


def test_parameters_with_gradients_are_accepted() -> None:
    bias, weight = torch.zeros(2, 5, requires_grad=True), torch.zeros(2, 2, 3, requires_grad=True)
    z, _ = cpu.gibbs_sweeps(**GOOD | {"bias": bias, "weight": weight})
    assert not z.requires_grad
