"""Compare the plain kernels with loops over single units and sums over all states, and test the dispatcher."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from softspin import kernels
from softspin.errors import DeviceError, MissingExtraError, ShapeError, SupportError, UnknownNameError
from softspin.kernels import choose, plain
from softspin.random import advance, init_rng_state

SIZES = [(1, 1, 1), (3, 2, 5), (7, 13, 4), (4, 1, 33)]


def boltzmann(
    n: int, m: int, replicas: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Make bias, weight, and another set of biases for the base."""
    g = torch.Generator().manual_seed(seed)
    bias, weight, base = (torch.randn(replicas, *s, dtype=dtype, generator=g) for s in ((n + m,), (n, m), (n + m,)))
    return bias, weight, base


def bits(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(9)) < 0.5).to(dtype)


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))


def one_by_one(z: Tensor, bias: Tensor, weight: Tensor, u: Tensor, t: Tensor, base: Tensor) -> Tensor:
    """Sweep unit by unit from the definition: a unit is on if u < sigmoid(field), right side first."""
    sweeps, replicas, chains, _ = u.shape
    n, m = weight.shape[1:]
    z = z.clone()
    for k, r, c in itertools.product(range(sweeps), range(replicas), range(chains)):
        for unit in [*range(n, n + m), *range(n)]:
            if unit >= n:
                driven = sum(z[r, c, i].item() * weight[r, i, unit - n].item() for i in range(n))
            else:
                driven = sum(z[r, c, n + j].item() * weight[r, unit, j].item() for j in range(m))
            temperature = t[r, c].item()
            x = (1 - temperature) * base[r, unit].item() + temperature * (bias[r, unit].item() + driven)
            z[r, c, unit] = float(u[k, r, c, unit].item() < 1 / (1 + math.exp(-x)))
    return z


@pytest.mark.parametrize(("n", "m", "chains"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sweeps_draw_from_the_conditionals_of_each_unit(n: int, m: int, chains: int, dtype: torch.dtype) -> None:
    bias, weight, base = boltzmann(n, m, 2, dtype)
    z, u, t = bits(2, chains, n + m, dtype=dtype), rand(3, 2, chains, n + m).to(dtype), rand(2, chains).to(dtype)
    rng_state = init_rng_state(0, 2)
    got, later = plain.gibbs_sweeps(z, bias, weight, rng_state, 3, t, base, uniforms=u)
    assert got.dtype == dtype
    assert torch.equal(got, one_by_one(z, bias, weight, u, t, base))
    assert torch.equal(later, advance(rng_state, 3))
    cold, _ = plain.gibbs_sweeps(z, bias, weight, rng_state, 3, uniforms=lambda k: u[k])
    assert torch.equal(cold, one_by_one(z, bias, weight, u, torch.ones(2, chains), torch.zeros_like(bias)))
    based, _ = plain.gibbs_sweeps(z, bias, weight, rng_state, 3, t, uniforms=u)
    assert torch.equal(based, one_by_one(z, bias, weight, u, t, torch.zeros_like(bias)))


def naive_log_f(left: Tensor, bias: Tensor, weight: Tensor, base: Tensor, t: float) -> Tensor:
    """Compute the log of the sum over all right sides of e^(-E_t) for one replica: left `(C, n)` to `(C,)`."""
    m = weight.shape[1]
    total = []
    for state in itertools.product([0.0, 1.0], repeat=m):
        right = torch.tensor(state, dtype=torch.float64)
        z = torch.cat([left, right.expand(len(left), m)], -1)
        total.append((1 - t) * z @ base + t * (z @ bias + left @ weight @ right))
    return torch.logsumexp(torch.stack(total), 0)


@pytest.mark.parametrize("reverse", [False, True])
def test_annealing_has_the_log_weights_of_enumeration(reverse: bool) -> None:
    """The reference uses single sweeps on the same uniforms, and sums over all right sides for the weights."""
    bias, weight, base = boltzmann(4, 5, 2)
    schedule = torch.tensor([0.0, 0.1, 0.35, 0.8, 1.0], dtype=torch.float64)
    schedule = schedule.flip(0) if reverse else schedule
    chains, u = 6, rand(5, 2, 6, 9)
    start = bits(2, chains, 9) if reverse else None
    log_weight, z, later = plain.anneal(bias, weight, base, schedule, chains, init_rng_state(0, 2), start, uniforms=u)

    walk = torch.zeros(2, chains, 9, dtype=torch.float64) if start is None else start
    truth = torch.zeros(2, chains, dtype=torch.float64)
    for k, t in enumerate(schedule.tolist()):
        for r in range(2):
            if k > 0:
                left, before = walk[r, :, :4], schedule[k - 1].item()
                parameters = bias[r], weight[r], base[r]
                truth[r] += naive_log_f(left, *parameters, t) - naive_log_f(left, *parameters, before)
        walk = one_by_one(walk, bias, weight, u[k : k + 1], torch.full((2, chains), t), base)
    torch.testing.assert_close(log_weight, truth, atol=1e-12, rtol=1e-12)
    assert torch.equal(z, walk)
    assert later[:, 1].tolist() == [5, 5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_incoming_right_side_is_not_read(dtype: torch.dtype) -> None:
    bias, weight, base = boltzmann(3, 4, 1, dtype)
    z = bits(1, 50, 7, dtype=dtype)
    other = torch.cat([z[..., :3], 1 - z[..., 3:]], -1)
    results = [plain.gibbs_sweeps(x, bias, weight, init_rng_state(0, 1), 1)[0] for x in (z, other)]
    assert torch.equal(*results)
    schedule = torch.tensor([1.0, 0.4, 0.0])
    weights = [plain.anneal(bias, weight, base, schedule, 50, init_rng_state(0, 1), x)[0] for x in (z, other)]
    assert torch.equal(*weights)


def test_a_forward_run_does_not_depend_on_its_start() -> None:
    bias, weight, base = boltzmann(3, 4, 1)
    schedule = torch.tensor([0.0, 0.4, 1.0])
    from_zeros = plain.anneal(bias, weight, base, schedule, 50, init_rng_state(0, 1))
    from_bits = plain.anneal(bias, weight, base, schedule, 50, init_rng_state(0, 1), bits(1, 50, 7))
    assert torch.equal(from_zeros[0], from_bits[0])


def test_every_weight_is_one_without_coupling_if_the_base_has_the_same_biases() -> None:
    for dtype in (torch.float64, torch.float32):
        bias, weight, _ = boltzmann(30, 40, 3, dtype)
        schedule = torch.linspace(0, 1, 101)
        log_weight, _, _ = plain.anneal(bias, torch.zeros_like(weight), bias, schedule, 20, init_rng_state(0, 3))
        assert not log_weight.any()


def test_fields_in_single_precision_do_not_depend_on_the_order_of_summation() -> None:
    """Shuffling the left units changes only the order of the sum. The fields must agree in every bit."""
    bias, weight, _ = boltzmann(300, 5, 1, torch.float32)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    left = bits(1, 200, 300, dtype=torch.float32)
    fields, shuffled = (plain._Fields(bias, w, None) for w in (weight, weight[:, order]))
    assert torch.equal(fields.driven(left), shuffled.driven(left[..., order]))


def test_fixed_point_is_within_its_bound() -> None:
    weight = (
        torch.randn(3, 40, 50, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1e-6, 1.0, 1e5])[:, None, None]
    )
    unit, whole = plain.FixedPoint.of(weight)
    error = (whole * unit.double() - weight.double()).abs().amax((-2, -1))
    bound = weight.abs().amax((-2, -1)).double() * 2**-22
    assert bool((error <= bound * 1.001).all())  # the unit itself is rounded
    assert torch.equal(whole, whole.round())
    zero = plain.FixedPoint.of(torch.zeros(1, 2, 2))
    assert not zero.whole.any()
    assert torch.equal(zero.unit, torch.ones(1, 1, 1))


# Random states ---------------------------------------------------------------------------------------------------


def test_five_sweeps_and_five_more_equal_ten() -> None:
    bias, weight, _ = boltzmann(7, 13, 3)
    z, rng_state = bits(3, 33, 20), init_rng_state(5, 3)
    whole, end = plain.gibbs_sweeps(z, bias, weight, rng_state, 10)
    half, middle = plain.gibbs_sweeps(z, bias, weight, rng_state, 5)
    again, last = plain.gibbs_sweeps(half, bias, weight, middle, 5)
    assert torch.equal(whole, again)
    assert torch.equal(end, last)
    assert not torch.equal(half, whole)


def test_a_replica_does_not_depend_on_its_neighbours() -> None:
    bias, weight, base = boltzmann(7, 13, 3)
    z, rng_state, schedule = bits(3, 33, 20), init_rng_state(5, 3), torch.tensor([0.0, 0.2, 1.0])
    together, _ = plain.gibbs_sweeps(z, bias, weight, rng_state, 4)
    weights, _, _ = plain.anneal(bias, weight, base, schedule, 33, rng_state)
    for r in range(3):
        one = slice(r, r + 1)
        alone, _ = plain.gibbs_sweeps(z[one], bias[one], weight[one], rng_state[one], 4)
        assert torch.equal(together[one], alone)
        alone_weights, _, _ = plain.anneal(bias[one], weight[one], base[one], schedule, 33, rng_state[one])
        torch.testing.assert_close(weights[one], alone_weights, atol=1e-12, rtol=0)


# The dispatcher --------------------------------------------------------------------------------------------------


def test_plain_runs_where_no_other_implementation_can() -> None:
    cpu = torch.device("cpu")
    assert choose("auto", cpu, torch.float64) is plain
    assert choose("auto", cpu, torch.bfloat16) is plain
    assert choose("plain", cpu, torch.float32) is plain
    assert choose("auto", torch.device("meta"), torch.float32) is plain


def test_auto_takes_the_installed_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"cpu": None, "gpu": None}
    monkeypatch.setattr(kernels, "_fast", found.get)
    assert choose("auto", torch.device("cpu"), torch.float32) is plain
    with pytest.raises(
        MissingExtraError, match=r"implementation 'cpu' needs the package numba, or use 'auto'; in a clone .*\[fast\]'$"
    ):
        choose("cpu", torch.device("cpu"), torch.float32)
    monkeypatch.setattr(kernels, "_fast", lambda name: f"the {name} kernels")
    assert str(choose("auto", torch.device("cpu"), torch.float32)) == "the cpu kernels"
    assert str(choose("auto", torch.device("cuda"), torch.float32)) == "the gpu kernels"
    assert choose("auto", torch.device("cuda"), torch.float64) is plain


def test_a_missing_kernel_is_no_error_for_auto() -> None:
    assert kernels._fast("no_such_file") is None


def test_the_chosen_implementation_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher passes its arguments in the order of `plain`."""
    bias, weight, base = boltzmann(3, 4, 2)
    z, rng_state, t = bits(2, 5, 7), init_rng_state(0, 2), rand(2, 5)
    got = kernels.gibbs_sweeps(z, bias, weight, rng_state, 3, t, base)
    want = plain.gibbs_sweeps(z, bias, weight, rng_state, 3, t, base)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
    schedule = torch.tensor([1.0, 0.5, 0.0])
    got_anneal = kernels.anneal(bias, weight, base, schedule, 5, rng_state, z)
    want_anneal = plain.anneal(bias, weight, base, schedule, 5, rng_state, z)
    assert all(torch.equal(g, w) for g, w in zip(got_anneal, want_anneal, strict=True))


BIAS, WEIGHT, BASE = boltzmann(2, 3, 1)
Z, RNG_STATE = bits(1, 4, 5), init_rng_state(0, 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: kernels.gibbs_sweeps(Z[0], BIAS, WEIGHT, RNG_STATE, 1),
            ShapeError,
            r"chains of shape \(4, 5\); they must be \(1, at least 1, 5\)",
        ),
        (lambda: kernels.gibbs_sweeps(Z[:, :0], BIAS, WEIGHT, RNG_STATE, 1), ShapeError, "at least 1, 5"),
        (
            lambda: kernels.gibbs_sweeps(Z, BIAS, WEIGHT[0], RNG_STATE, 1),
            ShapeError,
            r"kernels take bias \(R, n \+ m\) and weight \(R, n, m\)",
        ),
        (lambda: kernels.gibbs_sweeps(Z, BIAS, WEIGHT, RNG_STATE, 0), SupportError, "0 sweeps; at least 1 is needed"),
        (
            lambda: kernels.gibbs_sweeps(Z, BIAS, WEIGHT, RNG_STATE, 1, t=torch.ones(4)),
            ShapeError,
            r"temperatures of shape \(4,\); one per chain is \(1, 4\)",
        ),
        (
            lambda: kernels.gibbs_sweeps(Z, BIAS, WEIGHT, RNG_STATE, 1, base=BASE[0]),
            ShapeError,
            r"base of shape \(5,\); like the biases it must be \(1, 5\)",
        ),
        (
            lambda: kernels.gibbs_sweeps(Z, BIAS, WEIGHT, RNG_STATE.float(), 1),
            ShapeError,
            r"rng_state \(1, 2\) of torch.float32; it must be \(1, 2\) of torch.int64",
        ),
        (
            lambda: kernels.anneal(BIAS, WEIGHT, BASE, torch.tensor([0.0, 1.0]), 0, RNG_STATE),
            SupportError,
            "0 chains; at least 1 is needed",
        ),
        (
            lambda: kernels.anneal(BIAS, WEIGHT, BASE, torch.tensor([1.0, 0.0]), 3, RNG_STATE, Z),
            ShapeError,
            "start has 4 chains, but chains = 3; they must be equal",
        ),
        (
            lambda: choose("gpi", torch.device("cpu"), torch.float32),
            UnknownNameError,
            "unknown implementation 'gpi'; did",
        ),
        (
            lambda: choose("cpu", torch.device("cpu"), torch.float64),
            SupportError,
            "implementation 'cpu' computes in float32, not torch.float64; use 'auto' or 'plain'",
        ),
        (
            lambda: choose("cpu", torch.device("cuda"), torch.float32),
            DeviceError,
            "implementation 'cpu' was requested, but the parameters are on cuda; move them to 'cpu'",
        ),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_missing_gpu_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="implementation 'gpu' was requested, but torch finds no GPU"):
        kernels.gibbs_sweeps(Z, BIAS, WEIGHT, RNG_STATE, 1, implementation="gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(DeviceError, match="the parameters are on cpu; move them to 'cuda'"):
        kernels.anneal(BIAS, WEIGHT, BASE, torch.tensor([0.0, 1.0]), 1, RNG_STATE, implementation="gpu")
