"""log Z: unbiased, with error bars that cover, and bounded from both sides; against sums over all states.

Comparisons are at 5 standard errors (false-alarm rate 6e-7 each); coverage is counted over repeated runs, which are
replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from samplers.laws import (
    BOLTZMANNS,
    exact_draws,
    probabilities,
    repeated,
    small_graph,
    small_rbm,
    states,
    true_log_z,
    two_modes,
)
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.distributions.enumeration import LARGEST
from softspin.errors import DeviceError, ShapeError, SupportError, TooLargeError, UnknownNameError
from softspin.kernels import Implementation
from softspin.random import KeyDomain
from softspin.samplers import (
    SandwichWarning,
    anneal_population,
    gibbs,
    guards,
    linear_schedule,
    log_z,
    population,
    sigmoid_schedule,
    tempering,
)
from softspin.samplers.log_z import ais, estimate, exact, reverse_ais, sandwich
from softspin.samplers.primitives import anneal, base_biases, replica_rng_states
from softspin.samplers.result import LogZ, log_mean_error, log_mean_exp, weight_ess


def medium_rbm(dtype: torch.dtype = torch.float64) -> BipartiteBoltzmann:
    """6 x 8 units with couplings of size 1.5: 10 temperatures leave noisy weights."""
    g = torch.Generator().manual_seed(0)
    bias = 0.5 * torch.randn(14, generator=g, dtype=torch.float64)
    return BipartiteBoltzmann(bias.to(dtype), (1.5 * torch.randn(6, 8, generator=g, dtype=torch.float64)).to(dtype))


def strong_graph() -> GraphBoltzmann:
    """A full graph of 5 units: five colours, each a single unit."""
    g = torch.Generator().manual_seed(1)
    upper = torch.triu(2 * torch.randn(5, 5, generator=g, dtype=torch.float64), 1)
    return GraphBoltzmann(torch.randn(5, generator=g, dtype=torch.float64), upper + upper.mT)


ALL = {**BOLTZMANNS, "medium": medium_rbm(), "strong": strong_graph()}


# Unbiased --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("base", ["centred", "bias", "uniform"])
def test_the_mean_forward_weight_is_z(name: str, base: str) -> None:
    boltzmann = ALL[name]
    biases, schedule = base_biases(boltzmann, base), torch.tensor([0.0, 0.2, 0.5, 1.0])
    log_weights, z = anneal(
        boltzmann, biases, schedule, 40_000, replica_rng_states(boltzmann, 0, KeyDomain.FORWARD_AIS)
    )
    log_base = (1 + biases.exp()).log().sum()
    weights = (log_weights + log_base - true_log_z(boltzmann)).exp()
    assert weights.std() > 0.1, "three temperatures must leave noise, or nothing is tested"
    assert abs(weights.mean() - 1) < 5 * weights.std() / math.sqrt(len(weights))
    # The final chains, weighted, are samples of the Boltzmann machine.
    mean = probabilities(boltzmann) @ states(boltzmann.units)
    error = (weights[:, None] * (z - mean)).mean(0)
    assert bool((error.abs() < 5 * (weights[:, None] * (z - mean)).std(0) / math.sqrt(len(weights))).all())


@pytest.mark.parametrize("name", ALL)
def test_the_mean_reverse_weight_is_one_over_z(name: str) -> None:
    boltzmann = ALL[name]
    biases, schedule = base_biases(boltzmann, "uniform"), torch.tensor([1.0, 0.5, 0.2, 0.0])
    start = exact_draws(boltzmann, (200_000,), seed=0)
    log_weights, z = anneal(
        boltzmann, biases, schedule, len(start), replica_rng_states(boltzmann, 0, KeyDomain.FORWARD_AIS), start
    )
    weights = (log_weights - boltzmann.units * math.log(2) + true_log_z(boltzmann)).exp()
    assert weights.std() > 0.1
    assert abs(weights.mean() - 1) < 5 * weights.std() / math.sqrt(len(weights))
    # The sweep at temperature 0 ends at the base: fair coins.
    assert bool(((z.mean(0) - 0.5).abs() < 5 * 0.5 / math.sqrt(len(z))).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", ["centred", "bias"])
def test_without_couplings_the_base_is_exact(dtype: torch.dtype, base: str) -> None:
    bias = torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    for boltzmann in (BipartiteBoltzmann(bias, bias.new_zeros(10, 20)), GraphBoltzmann(bias, bias.new_zeros(30, 30))):
        result = ais(boltzmann, seed=0, temperatures=50, chains=20, base=base)
        assert result.value.item() == pytest.approx((1 + bias.double().exp()).log().sum().item(), abs=1e-12)
        assert result.standard_error.item() == 0
        assert result.effective_sample_size.item() == pytest.approx(20)


# Error bars ------------------------------------------------------------------------------------------------------


def run_ais(boltzmann: Boltzmann) -> LogZ:
    return ais(boltzmann, seed=1, temperatures=8, chains=100)


def run_few(boltzmann: Boltzmann) -> LogZ:
    return ais(boltzmann, seed=2, temperatures=20, chains=40)


def run_sigmoid(boltzmann: Boltzmann) -> LogZ:
    return ais(boltzmann, seed=3, schedule=sigmoid_schedule(10), chains=100, base="uniform")


def run_population(boltzmann: Boltzmann) -> LogZ:
    return anneal_population(boltzmann, 100, seed=4)[0]


@pytest.mark.parametrize("name", ["rbm", "graph", "medium", "strong"])
@pytest.mark.parametrize(
    ("run", "most"), [(run_ais, 0.99), (run_few, 0.99), (run_sigmoid, 0.99), (run_population, 1.0)]
)
def test_standard_errors_cover(run: Callable[[Boltzmann], LogZ], most: float, name: str) -> None:
    """400 runs: 95% coverage is 380 +- 4.4, so 89% to 99% is 5.5 and 3.7 standard deviations.

    A population's error is computed from its families. It counts the rounding of systematic resampling as noise,
    although this averages out, so the error is slightly too large and may cover more.
    """
    boltzmann = ALL[name]
    result = run(repeated(boltzmann, 400))
    covered = (result.value - true_log_z(boltzmann)).abs() < 1.96 * result.standard_error
    assert 0.89 <= covered.double().mean() <= most
    spread, claimed = result.value.std(), result.standard_error.mean()
    assert 0.85 < claimed / spread < (1.8 if most == 1 else 1.2)


@pytest.mark.parametrize("name", ["rbm", "graph", "medium", "strong"])
def test_standard_errors_of_reverse_annealing_cover(name: str) -> None:
    """400 runs, as above."""
    boltzmann = ALL[name]
    samples = exact_draws(boltzmann, (400, 100), seed=0)
    result = reverse_ais(repeated(boltzmann, 400), samples, seed=0, temperatures=8)
    covered = (result.value - true_log_z(boltzmann)).abs() < 1.96 * result.standard_error
    assert 0.89 <= covered.double().mean() <= 0.99


def test_a_few_dominant_weights_have_an_infinite_error() -> None:
    """Log weights with standard deviation 8: one to three of 100 dominate. The delta method gives at most 1 nat."""
    g = torch.Generator().manual_seed(0)
    log_weights = 8 * torch.randn(500, 100, generator=g, dtype=torch.float64)
    error = (log_mean_exp(log_weights) - 32).abs()  # log E[w] = 8**2 / 2
    assert (error > 1.96).double().mean() > 0.99, "almost no run is within 1.96 times 1 nat"
    claimed = log_mean_error(weight_ess(log_weights), 100)
    assert claimed.isinf().double().mean() > 0.6
    assert not log_mean_error(torch.tensor([100.0, 99.9999]), 100)[0]
    assert log_mean_error(torch.tensor([1.0]), 1).isinf()


def test_log_mean_and_effective_sample_size_match_naive_formulas() -> None:
    log_weights = torch.tensor([[0.0, 1.0, -2.0], [700.0, 701.0, 698.0]], dtype=torch.float64)
    w = log_weights[0].exp()
    naive = w.mean().log().item(), (w.sum() ** 2 / (w**2).sum()).item()
    assert log_mean_exp(log_weights).tolist() == pytest.approx([naive[0], naive[0] + 700])
    assert weight_ess(log_weights).tolist() == pytest.approx([naive[1]] * 2)


# Bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boltzmann", [medium_rbm(), strong_graph()], ids=["rbm", "graph"])
def test_forward_is_below_and_reverse_above(boltzmann: Boltzmann) -> None:
    """1,000 runs of 4 chains and 2 steps, so that the difference shows: by more than 5 standard errors each."""
    truth, many = true_log_z(boltzmann), repeated(boltzmann, 1000)
    schedule = torch.tensor([0.0, 0.5, 1.0])
    below = ais(many, seed=0, schedule=schedule, chains=4).value - truth
    samples = exact_draws(boltzmann, (1000, 4), seed=1)
    above = reverse_ais(many, samples, seed=0, schedule=schedule).value - truth
    assert below.mean() < -5 * below.std() / math.sqrt(1000)
    assert above.mean() > 5 * above.std() / math.sqrt(1000)


@pytest.mark.filterwarnings("ignore::softspin.samplers.SandwichWarning")  # by chance, one run of 400
@pytest.mark.parametrize("name", ALL)
def test_the_sandwich_covers_the_exact_value(name: str) -> None:
    """400 runs of each: 95% and more, so 89% is 5.5 standard deviations away; above it, 2.5%, and 6.4% is 5."""
    boltzmann, truth = ALL[name], true_log_z(ALL[name])
    result = sandwich(repeated(boltzmann, 400), seed=0, temperatures=10, chains=100)
    inside = (result.lower < truth) & (truth < result.upper)
    assert inside.double().mean() >= 0.89
    assert (truth >= result.upper).double().mean() <= 0.064
    assert bool((result.lower < result.value).all())
    assert bool((result.value < result.upper).all())
    assert (result.method, result.kind) == ("sandwich", "estimate")
    assert (result.upper - result.lower).mean() < 0.5


def off_samples(runs: int, chains: int) -> Tensor:
    """Samples of the Boltzmann machine with two modes that are all in the first, A: no unit is on."""
    return torch.zeros(runs, chains, 16, dtype=torch.float64)


@pytest.mark.parametrize("shift", [0.0, -0.2])
def test_the_bias_of_samples_that_miss_a_mode_follows_the_annealing(shift: float) -> None:
    """20 runs: log p(A) / q(A), with q(A) counted over the forward chains, within 5 standard errors.

    From the centred base, q(A) is p(A) within a tenth, so a sandwich cannot detect the missing mode.
    """
    boltzmann, runs = two_modes(), 20
    many, base = repeated(boltzmann, runs), base_biases(boltzmann, "centred") + shift
    p = probabilities(boltzmann)[states(16).mean(-1) < 0.5].sum()
    _, ends = anneal(
        many, base.expand(runs, 16), linear_schedule(60), 250, replica_rng_states(many, 0, KeyDomain.FORWARD_AIS)
    )
    q = (ends.mean(-1) < 0.5).double().mean(-1)
    assert bool(q.mean() < 1.1 * p) is (shift == 0)
    error = reverse_ais(many, off_samples(runs, 250), seed=0, temperatures=60, base=base).value - true_log_z(boltzmann)
    noise = ((error.var() + (q / q.mean()).var()) / runs).sqrt()
    assert noise < 0.03
    assert abs(error.mean() - (p / q.mean()).log()) < 5 * noise


def test_samples_that_miss_a_mode_are_detected_if_annealing_prefers_theirs() -> None:
    """A base shifted towards A: the reverse run is 0.57 too low, the forward one is right, with errors 0.03 and 0.05.

    The gap of 0.57 - 1.96 * 0.08 has a standard deviation of 0.06, so in none of 10 replicas does it close (8 standard
    deviations).
    """
    boltzmann = two_modes()
    many, base = repeated(boltzmann, 10), base_biases(boltzmann, "centred") - 0.2
    with pytest.warns(SandwichWarning, match="the samples are not from this Boltzmann machine"):
        result = sandwich(many, off_samples(10, 500), seed=0, temperatures=100, chains=500, base=base)
    truth = true_log_z(boltzmann)
    assert bool((result.value - truth).abs().max() < 5 * result.standard_error.max())
    reverse = reverse_ais(many, off_samples(10, 500), seed=0, temperatures=100, base=base)
    assert bool((reverse.upper < result.value - 1.96 * result.standard_error).all())
    assert bool((result.lower < reverse.value).all()), "if the two contradict each other, the interval covers both"
    assert bool((truth < result.upper).all())


def crossing(forward: list[float], reverse: list[float], monkeypatch: pytest.MonkeyPatch) -> LogZ:
    """A sandwich of made-up estimates `(*replicas,)` with standard errors of 0.01."""

    def made_up(values: list[float]) -> tuple[LogZ, None]:
        value = torch.tensor(values, dtype=torch.float64)
        error = torch.full_like(value, 0.01)
        return LogZ(value, error, error, value - 0.0196, value + 0.0196, "", ""), None

    monkeypatch.setattr(log_z, "forward_chains", lambda *a, **k: made_up(forward))
    monkeypatch.setattr(log_z, "reverse_chains", lambda *a, **k: made_up(reverse))
    return sandwich(small_rbm(), torch.zeros(1, 5), seed=0, guarded=False)


@pytest.mark.filterwarnings("error")
def test_rounding_alone_does_not_warn() -> None:
    """Two units that agree: the weights of all chains are equal, and their spread is below the rounding of float32."""
    boltzmann = BipartiteBoltzmann(torch.full((2,), -8.0), torch.full((1, 1), 16.0))
    for seed in range(20):
        sandwich(boltzmann, seed=seed, temperatures=100, chains=100)


def test_the_warning_names_the_worst_replica_and_its_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, reverse = [1.0, 52.0, 130.0], [1.0, 50.0, 129.5]
    with pytest.warns(SandwichWarning, match=r"^replica 1: reverse AIS gives log Z below 50.02, .* above 51.98;"):
        result = crossing(forward, reverse, monkeypatch)
    assert result.lower.tolist() == pytest.approx([1 - 0.0196, 50 - 0.0196, 129.5 - 0.0196], abs=1e-6)
    nested: Any = [[1.0, 2.0], [9.0, 4.0]]
    with pytest.warns(SandwichWarning, match=r"^replica \(1, 0\): reverse AIS gives log Z below 1.02"):
        crossing(nested, [[1.0, 2.0], [1.0, 4.0]], monkeypatch)  # type: ignore[list-item]
    single: Any = 9.0
    with pytest.warns(SandwichWarning, match=r"^reverse AIS gives log Z below 1.02, forward AIS above 8.98;"):
        crossing(single, 1.0, monkeypatch)  # type: ignore[arg-type]


def test_a_reverse_run_without_error_bar_does_not_widen_the_lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples have an infinite error, 500 forward chains do not. A replica that crosses does not widen another."""
    boltzmann = medium_rbm()
    result = sandwich(boltzmann, exact_draws(boltzmann, (2,), seed=0), seed=0, temperatures=20, chains=500)
    assert result.lower == result.value - 1.959964 * result.standard_error
    assert result.lower.isfinite()
    assert result.upper.isposinf()
    with pytest.warns(SandwichWarning, match="replica 1"):
        both = crossing([1.0, 9.0], [0.99, 1.0], monkeypatch)
    assert both.lower.tolist() == pytest.approx([1 - 0.0196, 1 - 0.0196], abs=1e-6)


def test_correlated_samples_have_wider_limits() -> None:
    """40 exact draws, each ten times, 100 runs from a shifted base, whose weights differ between the modes.

    Counted as 400 independent draws, their error covers in 64 +- 5 runs; by their families, in at least 84 (95% is 95
    +- 2.2, so 5 standard deviations; counting members of a family as equal is conservative).
    """
    boltzmann, runs = two_modes(), 100
    samples = exact_draws(boltzmann, (runs, 40), seed=0).repeat_interleave(10, dim=1)
    truth, many = true_log_z(boltzmann), repeated(boltzmann, runs)
    base = base_biases(boltzmann, "centred") - 0.4
    options: dict[str, Any] = {"seed": 0, "temperatures": 50, "base": base}
    independent, families = (
        reverse_ais(many, samples, family_correlation=family_correlation, **options)
        for family_correlation in (1.0, 10.0)
    )
    covered = [((r.value - truth).abs() < 1.96 * r.standard_error).sum() for r in (independent, families)]
    assert covered[0] < 84
    assert covered[1] >= 84
    torch.testing.assert_close(families.effective_sample_size, independent.effective_sample_size / 10)


def test_the_sandwich_counts_the_families_of_its_own_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chains of an annealing, resampled by their weights: recovered here from the start of the reverse run."""
    g = torch.Generator().manual_seed(0)
    bias, weight = torch.randn(60, generator=g), 0.5 * torch.randn(30, 30, generator=g)
    boltzmann = BipartiteBoltzmann(bias.double(), weight.double())
    ends: list[tuple[Tensor, Tensor]] = []
    starts: list[Tensor] = []

    def record(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
        starts.extend(args[5:6])
        ends.append(anneal(*args, **keywords))
        return ends[-1]

    monkeypatch.setattr("softspin.samplers.ais.anneal", record)
    result = sandwich(boltzmann, seed=0, temperatures=4, chains=100)
    (log_weights, z), (samples,) = ends[1], starts
    expected = 100 * torch.softmax(log_weights, -1)
    children = torch.tensor([(samples == one).all(-1).sum() for one in z])
    assert len(z.unique(dim=0)) == 100, "all final chains differ, so each child identifies its parent"
    assert bool(((children - expected).abs() < 1).all()), "floor or ceil of the expected number"
    family_correlation = (children.double() ** 2).sum() / 100
    assert family_correlation > 1.5
    reverse = reverse_ais(boltzmann, samples, seed=0, temperatures=4, family_correlation=family_correlation)
    assert result.upper == reverse.upper
    assert reverse.upper > reverse_ais(boltzmann, samples, seed=0, temperatures=4).upper


def test_a_base_that_prefers_one_mode_misses_the_other_and_the_centred_one_does_not() -> None:
    """From "bias", forward AIS finds one mode only, and its own numbers do not show it; samples of both modes do."""
    boltzmann = two_modes()
    truth = exact(boltzmann).value
    one = ais(boltzmann, seed=0, temperatures=200, chains=500, base="bias")
    assert truth - one.value > 0.8
    assert one.effective_sample_size > 490
    both = ais(boltzmann, seed=0, temperatures=200, chains=500)
    assert (both.value - truth).abs() < 5 * both.standard_error
    caught = sandwich(
        boltzmann, exact_draws(boltzmann, (500,), seed=0), seed=0, temperatures=200, chains=500, base="bias"
    )
    assert caught.upper > truth


def test_the_centred_base_is_symmetric_in_zeros_and_ones() -> None:
    """z -> 1 - z changes the biases to -(a + W 1) and keeps the couplings; the base must change sign."""
    boltzmann = strong_graph()
    flipped = GraphBoltzmann(-boltzmann.bias - boltzmann.coupling.sum(-1), boltzmann.coupling)
    torch.testing.assert_close(
        base_biases(flipped, "centred"), -base_biases(boltzmann, "centred"), atol=1e-14, rtol=1e-14
    )


def test_all_estimators_use_different_random_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed for all: with the same random numbers their errors would be correlated."""
    keys = [
        population.init(small_rbm(), 3, seed=0).rng_state[0].item(),
        gibbs.init(small_rbm(), 3, seed=0).rng_state[0].item(),
    ]
    keys.append(tempering.init(small_rbm(), 3, seed=0).rng_state[0].item())

    def record(*args: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
        keys.append(args[4][0].item())
        return anneal(*args, **keywords)

    monkeypatch.setattr("softspin.samplers.ais.anneal", record)
    monkeypatch.setattr(guards, "anneal", record)
    sandwich(small_rbm(), seed=0, temperatures=2, chains=3)
    assert len(keys) == 8
    assert len(set(keys)) == 8


# One result type -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [(), (2,), (2, 3)])
def test_every_method_returns_the_same_type_and_shapes(replicas: tuple[int, ...]) -> None:
    boltzmann = small_rbm(replicas=replicas)
    samples = torch.zeros(*replicas, 50, 5, dtype=torch.float64)
    results = {
        m: estimate(boltzmann, m, seed=0, temperatures=5, chains=50) for m in ("exact", "ais", "population", "sandwich")
    }
    results["reverse ais"] = reverse_ais(boltzmann, samples, seed=0, temperatures=5)
    kinds = {"exact": "exact", "ais": "lower bound", "population": "lower bound", "reverse ais": "upper bound"}
    for method, result in results.items():
        assert result.method == method
        assert result.kind == kinds.get(method, "estimate")
        for tensor in result[:5]:
            assert tensor.shape == replicas
            assert tensor.dtype == torch.float64
        assert bool((result.lower <= result.value).all() & (result.value <= result.upper).all())
    assert bool(results["ais"].upper.isinf().all())
    assert bool(results["reverse ais"].lower.isneginf().all())


def test_each_replica_has_its_own_log_z() -> None:
    boltzmann = small_rbm(replicas=(2, 3))
    result = ais(boltzmann, seed=0, temperatures=20, chains=1000)
    for i in range(2):
        for j in range(3):
            alone = BipartiteBoltzmann(boltzmann.bias[i, j], boltzmann.weight[i, j])
            assert exact(boltzmann).value[i, j].item() == pytest.approx(true_log_z(alone), abs=1e-12)
            assert abs(result.value[i, j].item() - true_log_z(alone)) < 5 * result.standard_error[i, j].item()


def test_auto_is_exact_if_possible() -> None:
    wide = BipartiteBoltzmann(torch.zeros(74), 1e-30 * torch.ones(24, 50))
    too_wide = BipartiteBoltzmann(torch.zeros(75), 1e-30 * torch.ones(25, 50))
    assert wide.enumerated_units == LARGEST
    assert too_wide.enumerated_units == LARGEST + 1
    assert estimate(small_rbm(), seed=0).kind == "exact"
    result = estimate(too_wide, seed=0, temperatures=3, chains=10)
    assert result.method == "sandwich"
    assert result.value.item() == pytest.approx(75 * math.log(2), abs=1e-9)
    with pytest.raises(TooLargeError, match="enumeration over 25 units"):
        estimate(too_wide, "exact", seed=0)


@pytest.mark.parametrize("implementation", ["plain", "auto"])
def test_single_precision_keeps_the_digits_over_many_temperatures(implementation: Implementation) -> None:
    """1,000 temperatures in float32 on 6 x 8 units: the error stays within 5 standard errors of about 0.01."""
    boltzmann = medium_rbm(torch.float32)
    result = ais(boltzmann, seed=0, temperatures=1000, chains=200, implementation=implementation)
    assert result.standard_error < 0.015
    assert (result.value - true_log_z(boltzmann)).abs() < 5 * result.standard_error
    assert exact(boltzmann).value.item() == pytest.approx(true_log_z(boltzmann), abs=1e-12)


def test_the_result_does_not_depend_on_the_base_or_the_schedule() -> None:
    boltzmann = medium_rbm()
    for base in ("centred", "bias", "uniform", torch.linspace(-1, 1, 14)):
        for schedule in (linear_schedule(60), sigmoid_schedule(60), linear_schedule(60) ** 2):
            result = ais(boltzmann, seed=0, schedule=schedule, chains=500, base=base)
            assert (result.value - true_log_z(boltzmann)).abs() < 5 * result.standard_error


# Bad input -------------------------------------------------------------------------------------------------------


def scheduled(values: list[float]) -> Callable[[], object]:
    return lambda: ais(small_rbm(), seed=0, schedule=torch.tensor(values))


def single_precision_graph() -> GraphBoltzmann:
    graph = small_graph()
    return GraphBoltzmann(graph.bias.float(), graph.coupling.float())


def not_finite() -> BipartiteBoltzmann:
    return BipartiteBoltzmann(torch.full((2,), torch.nan), torch.zeros(1, 1), validate_args=False)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (scheduled([0.1, 0.5, 1.0]), SupportError, r"a schedule starts at 0 and ends at 1, not 0.1 .. 1"),
        (scheduled([0.0, 0.5, 0.9]), SupportError, r"a schedule starts at 0 and ends at 1, not 0 .. 0.9"),
        (scheduled([1.0, 0.5, 0.0]), SupportError, "starts at 0 and ends at 1, not 1 .. 0"),
        (scheduled([0.0, 0.5, 0.5, 1.0]), SupportError, "a schedule must increase from each temperature to the next"),
        (scheduled([0.0, torch.nan, 1.0]), SupportError, "a schedule must increase"),
        (scheduled([1.0]), ShapeError, r"a schedule has shape \(T \+ 1,\) with T >= 1, not \(1,\)"),
        (
            lambda: ais(small_rbm(), seed=0, schedule=torch.zeros(2, 3)),
            ShapeError,
            r"a schedule has shape \(T \+ 1,\) with T >= 1, not \(2, 3\)",
        ),
        (lambda: ais(small_rbm(), seed=0, temperatures=0), SupportError, "a schedule of 0 steps; at least 1 is needed"),
        (lambda: sigmoid_schedule(5, steepness=0.0), SupportError, "steepness = 0.0; it must be positive and finite"),
        (lambda: ais(small_rbm(), seed=0, chains=0), SupportError, "0 chains; at least 1 is needed"),
        (lambda: ais(not_finite(), seed=0), SupportError, "bias of a Boltzmann machine .* NaN or infinity"),
        (lambda: exact(not_finite()), SupportError, "bias of a Boltzmann machine .* NaN or infinity"),
        (
            lambda: ais(small_rbm(), seed=0, base="biass"),
            UnknownNameError,
            "unknown base 'biass'; did you mean 'bias'?",
        ),
        (
            lambda: estimate(small_rbm(), "aiss", seed=0),  # type: ignore[arg-type]
            UnknownNameError,
            "unknown method 'aiss'; did you mean 'ais'?",
        ),
        (
            lambda: estimate(small_rbm(), "population", seed=0, schedule=linear_schedule(3)),
            SupportError,
            "method 'population' takes no schedule; leave it out or use ais or sandwich",
        ),
        (
            lambda: estimate(small_rbm(), "ais", seed=0, samples=exact_draws(small_rbm(), (9,), 0)),
            SupportError,
            "method 'ais' takes no samples; leave it out or use sandwich",
        ),
        (lambda: estimate(small_rbm(), seed=0, chains=0), SupportError, "0 chains; at least 2 are needed"),
        (lambda: estimate(small_rbm(), seed=0, temperatures=0), SupportError, "a schedule of 0 steps"),
        (
            lambda: estimate(small_rbm(), seed=0, temperatures=2.5),  # type: ignore[arg-type]
            SupportError,
            "a schedule of 2.5 steps; it must be a whole number",
        ),
        (lambda: estimate(small_rbm(), seed=0, schedule=torch.ones(3)), SupportError, "starts at 0 and ends at 1"),
        (lambda: estimate(small_rbm(), seed=0, base="biass"), UnknownNameError, "did you mean 'bias'"),
        (
            lambda: estimate(small_rbm(), seed=0, implementation="plane"),  # type: ignore[arg-type]
            UnknownNameError,
            "did you mean 'plain'",
        ),
        (
            lambda: estimate(small_rbm(), seed=0, samples=torch.full((3, 5), 7.0, dtype=torch.float64)),
            SupportError,
            "the samples contain values other than 0 and 1",
        ),
        (lambda: sandwich(small_rbm(), seed=0, chains=1), SupportError, "1 chains; at least 2 are needed"),
        (lambda: estimate(small_rbm(), "population", seed=0, chains=1), SupportError, "1 chains; at least 2 are"),
        (
            lambda: reverse_ais(small_rbm(), torch.full((3, 5), 0.3, dtype=torch.float64), seed=0),
            SupportError,
            "the samples contain values other than 0 and 1; the units of a Boltzmann machine are bits",
        ),
        (
            lambda: ais(BOLTZMANNS["graph"], seed=0, implementation="cpu"),
            SupportError,
            "computes in float32",
        ),
        (
            lambda: ais(single_precision_graph(), seed=0, implementation="cpu"),
            SupportError,
            "implementation 'cpu' supports bipartite graphs only; use 'auto' or 'plain'",
        ),
        (
            lambda: reverse_ais(small_rbm(), torch.zeros(3, 4, dtype=torch.float64), seed=0),
            ShapeError,
            r"the samples have shape \(3, 4\); this Boltzmann machine needs \(at least 1, 5\)",
        ),
    ],
)
def test_bad_input_raises_a_clear_error(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"implementation 'gpu' .*torch finds no GPU"):
        ais(small_rbm(torch.float32), seed=0, implementation="gpu")
