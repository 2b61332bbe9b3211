"""Compare the GPU kernels with `plain`: on a GPU if there is one, else under Triton's interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from softspin import kernels
from softspin.errors import TooLargeError
from softspin.kernels import plain
from softspin.random import init_rng_state

triton = pytest.importorskip("triton", reason="Triton is not installed")
gpu = pytest.importorskip("softspin.kernels.gpu", reason="Triton is not installed")
OutOfResources = triton.runtime.errors.OutOfResources

INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(
        not INTERPRETED and not torch.cuda.is_available(),
        reason="no GPU, and the interpreter is off: set TRITON_INTERPRET=1",
    ),
    # The interpreter converts one-element arrays to numbers, which NumPy deprecates.
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]


def boltzmann(replicas: int, n: int, m: int, seed: int = 0, scale: float = 0.3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    bias, weight = torch.randn(replicas, n + m, generator=g), scale * torch.randn(replicas, n, m, generator=g)
    return bias.to(DEVICE), weight.to(DEVICE)


def bits(*shape: int, seed: int = 1) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5).float().to(DEVICE)


def philox(key: int, counter: list[Tensor], rounds: int) -> list[Tensor]:
    """Compute Philox4x32 as published (Salmon et al., 2011), on int64 tensors."""
    low = 0xFFFFFFFF
    k0, k1 = key & low, (key >> 32) & low
    c0, c1, c2, c3 = counter
    for _ in range(rounds):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((b >> 32) & low) ^ c1 ^ k0, b & low, ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return [c0, c1, c2, c3]


def test_the_published_philox_vector() -> None:
    """Compare with the known answer of the reference implementation for ten rounds, all bits set."""
    ones = torch.tensor(0xFFFFFFFF)
    words = philox(-1, [ones] * 4, rounds=10)
    assert [hex(int(w)) for w in words] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def uniforms(rng_state: Tensor, sweep: int, chains: int, n: int, m: int) -> Tensor:
    """Compute the uniforms that the documentation of the kernel specifies, `(R, chains, n + m)`."""
    rows = []
    for key, counter in rng_state.tolist():
        words = []
        for side, units in ((1, n), (0, m)):
            unit = torch.arange(units).expand(chains, units)
            chain = torch.arange(chains)[:, None].expand(chains, units)
            now = torch.full_like(unit, 2 * (counter + sweep) + side)
            place = [now & 0xFFFFFFFF, 8 * (unit // 16) + unit % 8, now >> 32, chain // 2]
            words.append(
                torch.stack(philox(key, place, rounds=7)).gather(0, (2 * (chain % 2) + unit // 8 % 2)[None])[0]
            )
        rows.append(((torch.cat(words, -1) >> 9).float() + 0.5) * 2.0**-23)
    return torch.stack(rows).to(DEVICE)


def rounded(weight: Tensor) -> Tensor:
    unit = gpu.quantum(weight)[:, None, None].double()
    return torch.floor(weight.double() / unit + 0.5) * unit


def differ_only_in_ties(got: Tensor, reference: Tensor, u: Tensor, field: Tensor) -> None:
    """Decisions may differ if uniform and probability agree to 1e-6, where the rounding of e^x decides."""
    apart = (u.double() - torch.sigmoid(field)).abs()
    assert bool((apart[got != reference] < 1e-6).all())
    assert (got != reference).sum() <= 2


SHAPES = [(7, 13, 1), (13, 7, 130), (33, 100, 9), (100, 100, 16), (150, 150, 3), (190, 64, 3), (200, 200, 17)]


@pytest.mark.parametrize(
    ("n", "m", "chains"),
    [*SHAPES[:-1], pytest.param(*SHAPES[-1], marks=pytest.mark.slow)],  # slow to interpret
)
@pytest.mark.parametrize("tempered", [False, True])
def test_one_sweep_equals_the_reference_on_the_same_random_bits(n: int, m: int, chains: int, tempered: bool) -> None:
    bias, weight = boltzmann(2, n, m)
    rng_state = init_rng_state(3, 2, device=DEVICE)
    rng_state[:, 1] = torch.tensor([5, (1 << 33) + 1])
    z = bits(2, chains, n + m)
    t = torch.linspace(0, 1, chains).expand(2, chains).to(DEVICE) if tempered else None
    base = torch.flip(bias, (-1,)) if tempered else None
    got, after = gpu.gibbs_sweeps(z, bias, weight, rng_state, 1, t, base)
    assert after[:, 1].tolist() == [6, (1 << 33) + 2]
    assert ((got == 0) | (got == 1)).all()
    u = uniforms(rng_state.cpu(), 0, chains, n, m)
    heat = 1.0 if t is None else t[..., None].double()
    ground = torch.zeros_like(bias) if base is None else base
    exact = rounded(weight)
    for side, driven in (
        (slice(n, None), z[..., :n].double() @ exact),
        (slice(0, n), got[..., n:].double() @ exact.mT),
    ):
        own, away = ground[:, None, side].double(), bias[:, None, side].double() - ground[:, None, side].double()
        field = own + heat * (away + driven)
        differ_only_in_ties(got[..., side], (u[..., side] < torch.sigmoid(field)).float(), u[..., side], field)


def test_many_sweeps_equal_single_sweeps() -> None:
    bias, weight = boltzmann(2, 33, 20)
    rng_state = init_rng_state(0, 2, device=DEVICE)
    z = bits(2, 11, 53)
    together, end = gpu.gibbs_sweeps(z, bias, weight, rng_state, 5)
    for _ in range(5):
        z, rng_state = gpu.gibbs_sweeps(z, bias, weight, rng_state, 1)
    assert torch.equal(together, z)
    assert torch.equal(end, rng_state)


PLANS = {
    "narrow 16": lambda chains: [gpu.LaunchPlan(False, 16, 4, chains)],
    "narrow 32": lambda chains: [gpu.LaunchPlan(False, 32, 8, chains)],
    "wide": lambda chains: [gpu.LaunchPlan(True, 64, 4, chains)],
    "two waves": lambda chains: [
        gpu.LaunchPlan(True, 128, 8, min(chains, 128)),
        gpu.LaunchPlan(True, 64, 4, max(chains - 128, 1)),
    ],
}


# Few cases, because the interpreter is slow: replicas and sweeps, chains of several blocks, units of several tiles.
@pytest.mark.parametrize(
    ("replicas", "n", "m", "chains", "sweeps"), [(2, 7, 13, 1, 2), (1, 13, 7, 130, 1), (1, 40, 200, 3, 1)]
)
def test_results_do_not_depend_on_kernel_or_block_size(
    replicas: int, n: int, m: int, chains: int, sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bias, weight = boltzmann(replicas, n, m)
    rng_state = init_rng_state(0, replicas, device=DEVICE)
    rng_state[-1, 1] = (1 << 32) - 1
    z = bits(replicas, chains, n + m)
    expected, end = gpu.gibbs_sweeps(z, bias, weight, rng_state, sweeps)
    for name, make in PLANS.items():
        monkeypatch.setattr(gpu, "plan", lambda size, replicas, chains, processors, tempered, make=make: make(chains))
        got, after = gpu.gibbs_sweeps(z, bias, weight, rng_state, sweeps)
        assert torch.equal(got, expected), name
        assert torch.equal(after, end), name


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 10, 20, 33, 100])
def test_waves_cover_every_chain_once(replicas: int) -> None:
    for chains in (1, 100, 1000, 1001):
        plans = gpu.plan(224, replicas, chains, 132, tempered=False)
        assert sum(launch.chains for launch in plans) == chains
        # Program 0 of a later launch starts at an even chain, because pairs share their random words.
        assert all(launch.chains % 2 == 0 for launch in plans[:-1])


def test_replicas_and_chains_do_not_depend_on_their_neighbours() -> None:
    bias, weight = boltzmann(3, 20, 30)
    rng_state = init_rng_state(0, 3, device=DEVICE)
    z = bits(3, 13, 50)
    together, _ = gpu.gibbs_sweeps(z, bias, weight, rng_state, 2)
    alone, _ = gpu.gibbs_sweeps(z[1:2], bias[1:2], weight[1:2], rng_state[1:2], 2)
    fewer, _ = gpu.gibbs_sweeps(z[:, :5], bias, weight, rng_state, 2)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(together[:, :5], fewer)


def test_zero_weights_and_saturated_biases() -> None:
    bias = torch.tensor([[60.0] * 5 + [-60.0] * 5], device=DEVICE)
    z, _ = gpu.gibbs_sweeps(
        bits(1, 9, 10), bias, torch.zeros(1, 5, 5, device=DEVICE), init_rng_state(0, 1, device=DEVICE), 2
    )
    assert z[0].mean(0).tolist() == [1.0] * 5 + [0.0] * 5


def test_too_many_units_raise() -> None:
    bias, weight = boltzmann(1, 3, gpu.LARGEST + 1)
    rng_state = init_rng_state(0, 1, device=DEVICE)
    with pytest.raises(TooLargeError, match="3 x 225 units do not fit on the chip; at most 224"):
        gpu.gibbs_sweeps(bits(1, 2, 228), bias, weight, rng_state, 1)
    with pytest.raises(TooLargeError):
        gpu.anneal(bias, weight, bias, torch.linspace(0, 1, 3, device=DEVICE), 2, rng_state)


@pytest.mark.parametrize("wide", [False, True])
def test_too_little_shared_memory_raises_and_auto_falls_back(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton reports that shared memory is too small. With "auto", `plain` runs instead."""

    class NoRoom:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            def launch(*args: object, **kwargs: object) -> None:
                raise OutOfResources(217088, 101376, "shared memory")

            return launch

    monkeypatch.setattr(gpu.gpu_wide if wide else gpu.gpu_narrow, "sweep", NoRoom())
    monkeypatch.setattr(gpu, "plan", lambda *shape, tempered: [gpu.LaunchPlan(wide, 64 if wide else 8, 4, 7)])
    monkeypatch.setattr(kernels, "choose", lambda implementation, device, dtype: gpu)
    bias, weight = boltzmann(1, 3, 4)
    z, rng_state = bits(1, 7, 7), init_rng_state(0, 1, device=DEVICE)
    with pytest.raises(TooLargeError, match="3 x 4 units do not fit on this chip: out of resource: shared memory"):
        kernels.gibbs_sweeps(z, bias, weight, rng_state, 2, implementation="gpu")
    got, _ = kernels.gibbs_sweeps(z, bias, weight, rng_state, 2)
    assert torch.equal(got, plain.gibbs_sweeps(z, bias, weight, rng_state, 2)[0])


ANNEALED = [(9, 21, 7, 5), (33, 100, 2, 3), (200, 200, 2, 3)]


@pytest.mark.parametrize(("n", "m", "chains", "temperatures"), ANNEALED)
@pytest.mark.parametrize("reverse", [False, True])
def test_annealing_equals_the_reference_on_the_same_random_bits(
    n: int, m: int, chains: int, temperatures: int, reverse: bool
) -> None:
    """The reference computes in float64, the kernel in float32."""
    bias, weight = boltzmann(2, n, m, scale=4 / (n + m) ** 0.5)
    weight = rounded(weight).float()  # on the grid of the kernel, so that both follow the same path
    base = 0.5 * bias
    rng_state = init_rng_state(2, 2, device=DEVICE)
    schedule = torch.linspace(0, 1, 2 * temperatures - 1, device=DEVICE)[::2]  # with a stride
    schedule = schedule.flip(0) if reverse else schedule
    start = bits(2, chains, n + m) if reverse else None
    log_weight, z, after = gpu.anneal(bias, weight, base, schedule, chains, rng_state, start)
    expected_weight, expected_z, expected_after = plain.anneal(
        bias.double(), weight.double(), base.double(), schedule.double(), chains, rng_state,
        None if start is None else start.double(),
        uniforms=lambda k: uniforms(rng_state.cpu(), k, chains, n, m).double(),
    )  # fmt: skip
    assert torch.equal(z.double(), expected_z)
    assert torch.equal(after, expected_after)
    torch.testing.assert_close(log_weight, expected_weight, atol=5e-6 if n + m < 100 else 1e-4, rtol=0)


@pytest.mark.parametrize("reverse", [False, True])
def test_annealing_corrects_the_rounded_weights(reverse: bool) -> None:
    """One weight of 60 makes the grid coarse. The reference sums the right side out by enumeration, in float64."""
    n, m, chains = 3, 5, 6
    bias, weight = boltzmann(1, n, m)
    weight[0, 1, 2] = 60.0
    rng_state = init_rng_state(2, 1, device=DEVICE)
    schedule = torch.tensor([0.0, 0.5, 1.0], device=DEVICE)
    schedule = schedule.flip(0) if reverse else schedule
    start = bits(1, chains, n + m) if reverse else None
    log_weight, z, _ = gpu.anneal(bias, weight, bias, schedule, chains, rng_state, start)
    around, _, _ = gpu.anneal(bias, rounded(weight).float(), bias, schedule, chains, rng_state, start)
    left = (z if start is None else start)[0, :, :n].double()
    right = torch.tensor(list(itertools.product([0.0, 1.0], repeat=m)), dtype=torch.float64, device=DEVICE)

    def log_f(w: Tensor) -> Tensor:
        return (left @ w @ right.T + right @ bias[0, n:].double()).logsumexp(-1)

    step = log_f(weight[0].double()) - log_f(rounded(weight)[0])
    assert step.abs().max() > 1e-4
    torch.testing.assert_close((log_weight - around)[0], -step if reverse else step, atol=5e-6, rtol=0)


def test_no_variance_without_coupling_if_the_base_has_the_same_biases() -> None:
    bias, _ = boltzmann(1, 6, 5)
    weight = torch.zeros(1, 6, 5, device=DEVICE)
    schedule = torch.linspace(0, 1, 4, device=DEVICE)
    log_weight, _, _ = gpu.anneal(bias, weight, bias, schedule, 10, init_rng_state(0, 1, device=DEVICE))
    assert log_weight.abs().max().item() == 0
