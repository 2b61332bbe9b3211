"""The GPU kernels against the plain twin: on a GPU where there is one, else under Triton's interpreter."""

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

triton = pytest.importorskip("triton", reason="Triton is not installed here")
gpu = pytest.importorskip("softspin.kernels.gpu", reason="Triton is not installed here")
OutOfResources = triton.runtime.errors.OutOfResources

INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(
        not INTERPRETED and not torch.cuda.is_available(),
        reason="no GPU here, and the interpreter is off: set TRITON_INTERPRET=1",
    ),
    # The interpreter turns one-element arrays into numbers, which NumPy now advises against.
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]


def boltzmann(replicas: int, n: int, m: int, seed: int = 0, scale: float = 0.3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    bias, weight = torch.randn(replicas, n + m, generator=g), scale * torch.randn(replicas, n, m, generator=g)
    return bias.to(DEVICE), weight.to(DEVICE)


def bits(*shape: int, seed: int = 1) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5).float().to(DEVICE)


def philox(key: int, counter: list[Tensor], rounds: int) -> list[Tensor]:
    """Philox4x32 as published (Salmon et al., 2011), on int64 tensors."""
    low = 0xFFFFFFFF
    k0, k1 = key & low, (key >> 32) & low
    c0, c1, c2, c3 = counter
    for _ in range(rounds):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((b >> 32) & low) ^ c1 ^ k0, b & low, ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return [c0, c1, c2, c3]


def test_the_published_philox_vector() -> None:
    """The reference implementation's known answer for ten rounds, all bits set."""
    ones = torch.tensor(0xFFFFFFFF)
    words = philox(-1, [ones] * 4, rounds=10)
    assert [hex(int(w)) for w in words] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def uniforms(rng_state: Tensor, sweep: int, chains: int, n: int, m: int) -> Tensor:
    """The uniforms that the kernel's documentation promises, `(R, chains, n + m)`."""
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


def differ_only_in_ties(got: Tensor, twin: Tensor, u: Tensor, field: Tensor) -> None:
    """Decisions may differ where the uniform and the probability agree to 1e-6: rounding of e^x decides there."""
    apart = (u.double() - torch.sigmoid(field)).abs()
    assert bool((apart[got != twin] < 1e-6).all())
    assert (got != twin).sum() <= 2


SHAPES = [(7, 13, 1), (13, 7, 130), (33, 100, 9), (100, 100, 16), (150, 150, 3), (190, 64, 3), (200, 200, 17)]


@pytest.mark.parametrize(("n", "m", "chains"), SHAPES)
@pytest.mark.parametrize("tempered", [False, True])
def test_one_sweep_is_the_twin_on_the_same_random_bits(n: int, m: int, chains: int, tempered: bool) -> None:
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


def test_many_sweeps_are_one_sweep_many_times() -> None:
    bias, weight = boltzmann(2, 33, 20)
    rng_state = init_rng_state(0, 2, device=DEVICE)
    z = bits(2, 11, 53)
    single_step, end = gpu.gibbs_sweeps(z, bias, weight, rng_state, 5)
    for _ in range(5):
        z, rng_state = gpu.gibbs_sweeps(z, bias, weight, rng_state, 1)
    assert torch.equal(single_step, z)
    assert torch.equal(end, rng_state)


CUTS = {
    "narrow 16": lambda chains: [gpu.LaunchPlan(False, 16, 4, chains)],
    "narrow 32": lambda chains: [gpu.LaunchPlan(False, 32, 8, chains)],
    "wide": lambda chains: [gpu.LaunchPlan(True, 64, 4, chains)],
    "two waves": lambda chains: [
        gpu.LaunchPlan(True, 128, 8, min(chains, 128)),
        gpu.LaunchPlan(True, 64, 4, max(chains - 128, 1)),
    ],
}


# Few of each, as the interpreter is slow: replicas and sweeps, chains of several blocks, units of several tiles.
@pytest.mark.parametrize(
    ("replicas", "n", "m", "chains", "sweeps"), [(2, 7, 13, 1, 2), (1, 13, 7, 130, 1), (1, 40, 200, 3, 1)]
)
def test_neither_the_kernel_nor_the_block_size_changes_anything(
    replicas: int, n: int, m: int, chains: int, sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bias, weight = boltzmann(replicas, n, m)
    rng_state = init_rng_state(0, replicas, device=DEVICE)
    rng_state[-1, 1] = (1 << 32) - 1
    z = bits(replicas, chains, n + m)
    expected, end = gpu.gibbs_sweeps(z, bias, weight, rng_state, sweeps)
    for name, cut in CUTS.items():
        monkeypatch.setattr(gpu, "plan", lambda size, replicas, chains, processors, tempered, cut=cut: cut(chains))
        got, after = gpu.gibbs_sweeps(z, bias, weight, rng_state, sweeps)
        assert torch.equal(got, expected), name
        assert torch.equal(after, end), name


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 10, 20, 33, 100])
def test_waves_cover_every_chain_once(replicas: int) -> None:
    for chains in (1, 100, 1000, 1001):
        plans = gpu.plan(224, replicas, chains, 132, tempered=False)
        assert sum(cut.chains for cut in plans) == chains
        # Program 0 of a later cut starts at an even chain: pairs share their random words.
        assert all(cut.chains % 2 == 0 for cut in plans[:-1])


def test_a_replica_does_not_see_its_neighbours_nor_a_chain_the_others() -> None:
    bias, weight = boltzmann(3, 20, 30)
    rng_state = init_rng_state(0, 3, device=DEVICE)
    z = bits(3, 13, 50)
    together, _ = gpu.gibbs_sweeps(z, bias, weight, rng_state, 2)
    alone, _ = gpu.gibbs_sweeps(z[1:2], bias[1:2], weight[1:2], rng_state[1:2], 2)
    fewer, _ = gpu.gibbs_sweeps(z[:, :5], bias, weight, rng_state, 2)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(together[:, :5], fewer)


def test_a_machine_without_weights_and_saturated_biases() -> None:
    bias = torch.tensor([[60.0] * 5 + [-60.0] * 5], device=DEVICE)
    z, _ = gpu.gibbs_sweeps(
        bits(1, 9, 10), bias, torch.zeros(1, 5, 5, device=DEVICE), init_rng_state(0, 1, device=DEVICE), 2
    )
    assert z[0].mean(0).tolist() == [1.0] * 5 + [0.0] * 5


def test_a_machine_too_large_for_the_chip_is_refused() -> None:
    bias, weight = boltzmann(1, 3, gpu.LARGEST + 1)
    rng_state = init_rng_state(0, 1, device=DEVICE)
    with pytest.raises(TooLargeError, match="3 x 225 units do not fit on the chip; at most 224"):
        gpu.gibbs_sweeps(bits(1, 2, 228), bias, weight, rng_state, 1)
    with pytest.raises(TooLargeError):
        gpu.anneal(bias, weight, bias, torch.linspace(0, 1, 3, device=DEVICE), 2, rng_state)


@pytest.mark.parametrize("wide", [False, True])
def test_a_chip_too_small_for_a_machine_says_so(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton knows how much shared memory there is; who asks for any kernel then gets plain torch."""

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
def test_annealing_is_the_twin_on_the_same_random_bits(
    n: int, m: int, chains: int, temperatures: int, reverse: bool
) -> None:
    """In float64 the twin, in float32 the kernel."""
    bias, weight = boltzmann(2, n, m, scale=4 / (n + m) ** 0.5)
    weight = rounded(weight).float()  # on the kernel's own grid, so that both walk the same path
    base = 0.5 * bias
    rng_state = init_rng_state(2, 2, device=DEVICE)
    schedule = torch.linspace(0, 1, temperatures, device=DEVICE)
    schedule = schedule.flip(0) if reverse else schedule
    start = bits(2, chains, n + m) if reverse else None
    log_weight, z, after = gpu.anneal(bias, weight, base, schedule, chains, rng_state, start)
    twin_weight, twin_z, twin_after = plain.anneal(
        bias.double(), weight.double(), base.double(), schedule.double(), chains, rng_state,
        None if start is None else start.double(),
        uniforms=lambda k: uniforms(rng_state.cpu(), k, chains, n, m).double(),
    )  # fmt: skip
    assert torch.equal(z.double(), twin_z)
    assert torch.equal(after, twin_after)
    torch.testing.assert_close(log_weight, twin_weight, atol=5e-6 if n + m < 100 else 1e-4, rtol=0)


@pytest.mark.parametrize("reverse", [False, True])
def test_annealing_corrects_the_rounded_weights(reverse: bool) -> None:
    """One weight of 60 makes the grid coarse. The right side summed out by enumeration, in float64."""
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


def test_annealing_with_the_machine_as_its_own_base_has_no_variance() -> None:
    bias, _ = boltzmann(1, 6, 5)
    weight = torch.zeros(1, 6, 5, device=DEVICE)
    schedule = torch.linspace(0, 1, 4, device=DEVICE)
    log_weight, _, _ = gpu.anneal(bias, weight, bias, schedule, 10, init_rng_state(0, 1, device=DEVICE))
    assert log_weight.abs().max().item() == 0
