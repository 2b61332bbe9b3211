"""Wrong arguments end in one line of an error of this package; what a PyTorch user expects to work does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from samplers.laws import small_rbm, states

import softspin
from softspin.distributions import (
    BipartiteBoltzmann,
    GaussianIntegralRelaxation,
    OverlapRelaxation,
    SmoothedBernoulli,
    safe_beta,
)
from softspin.errors import (
    ConfigError,
    DataError,
    NoClosedFormError,
    RunError,
    ShapeError,
    SoftspinError,
    SupportError,
)
from softspin.formatting import distinct, interval_text, with_error
from softspin.objectives import discrete_kl, elbo, importance_bound, log_weights
from softspin.samplers import Gibbs, LogZ, ParallelTempering, PopulationAnnealing, anneal_population, gibbs
from softspin.samplers.log_z import ais, estimate, exact, reverse_ais, sandwich
from softspin.smoothing import Gaussian, Power, Smoothing, SpikeExponential
from truth import CASES, mean_difference, quadrature

RBM = BipartiteBoltzmann(torch.zeros(4), torch.ones(2, 2))
POSTERIOR = SmoothedBernoulli(torch.zeros(3, 4), Power(9.0))
ZETA = torch.full((3, 4), 0.2)

BOLTZMANN = "expected a BipartiteBoltzmann or a GraphBoltzmann, not"
NUMBERS = "must be a tensor, an array or a list of numbers, not"

MISTAKES: list[tuple[Callable[[Any], object], object, type[SoftspinError], str]] = [
    (lambda v: SmoothedBernoulli(torch.zeros(4), v), 30.0, SupportError, r"smoothing must be one such as .*, not 30.0"),
    (lambda v: SmoothedBernoulli(v, Power(9.0)), "a", SupportError, f"logits {NUMBERS} str"),
    (Power, "9", SupportError, f"beta {NUMBERS} str"),
    (
        lambda v: v.entropy(),
        POSTERIOR,
        NoClosedFormError,
        r"the entropy .* has no closed form; bit_entropy\(\) is that",
    ),
    (lambda v: v.variance, POSTERIOR, NoClosedFormError, r"the variance .* is not implemented; use rsample\(\(n,\)\)"),
    (OverlapRelaxation(RBM).log_prob, ZETA, SupportError, r"takes SoftBits, not Tensor: .*posterior.draw\(\)"),
    (OverlapRelaxation(RBM).mean_field, ZETA, SupportError, "takes SoftBits, not Tensor"),
    (OverlapRelaxation, RBM.weight, SupportError, f"{BOLTZMANN} Parameter|{BOLTZMANN} Tensor"),
    (lambda v: OverlapRelaxation(RBM, v), "5", SupportError, "'5' mean-field steps; it must be a whole number from 1"),
    (softspin.data.load, 3, DataError, "a data set is loaded by its name or path, not by a int; images in memory are"),
    (POSTERIOR.rsample, "a", ShapeError, "the shape of draws must be a number or a tuple of numbers, not 'a'"),
    (lambda v: GaussianIntegralRelaxation(v, 9.0), 3, SupportError, f"{BOLTZMANN} int"),
    (lambda v: GaussianIntegralRelaxation(RBM, v), "x", SupportError, f"beta {NUMBERS} str"),
    (lambda v: discrete_kl(RBM, [v], [POSTERIOR.draw()]), ZETA, ShapeError, "one SmoothedBernoulli for each group"),
    (lambda v: discrete_kl(RBM, POSTERIOR, v), ZETA, ShapeError, "bits must have one SoftBits for each group"),
    (exact, ZETA, SupportError, f"{BOLTZMANN} Tensor"),
    (lambda v: ais(v, seed=0), None, SupportError, f"{BOLTZMANN} NoneType"),
    (lambda v: sandwich(RBM, v, seed=0, temperatures=2), "samples", SupportError, f"the samples {NUMBERS} str"),
    (lambda v: sandwich(RBM, v, seed=0, temperatures=2), np.zeros((9, 5)), ShapeError, r"samples have shape \(9, 5\)"),
    (lambda v: gibbs.init(v, 3, 0), ZETA, SupportError, f"{BOLTZMANN} Tensor"),
    (lambda v: anneal_population(v, 9, 0), ZETA, SupportError, f"{BOLTZMANN} Tensor"),
    (lambda v: gibbs.step(gibbs.GibbsState(v, ZETA), RBM, 1), [0], SupportError, "must be a tensor of .*, not list"),
    (
        lambda v: gibbs.step(v, RBM, 1),
        3,
        SupportError,
        "the state must be a GibbsState from this sampler's init, not int",
    ),
    (lambda v: PopulationAnnealing().step(v, RBM, 1), gibbs.init(RBM, 3, 0), SupportError, "not GibbsState"),
    (lambda v: ParallelTempering().step(v, RBM, 1), gibbs.init(RBM, 3, 0), SupportError, "not GibbsState"),
    (lambda v: gibbs.step(gibbs.init(RBM, 3, 0), v, 1), 3, SupportError, f"{BOLTZMANN} int"),
    (lambda v: gibbs.init(RBM, 3, v), "a", SupportError, "seed = 'a'; it must be a whole number"),
    (lambda v: gibbs.init(RBM, v, 0), "a", SupportError, "'a' chains; it must be a whole number"),
    (lambda v: ais(RBM, seed=0, base=v), [0, 0], ShapeError, r"base of shape \(2,\); the biases have shape \(4,\)"),
    (lambda v: ais(RBM, seed=0, schedule=v), [0, 2], SupportError, "a schedule starts at 0 and ends at 1"),
    (RBM.energy, torch.zeros(2, 3), ShapeError, r"states of shape \(2, 3\); the last dimension must be the 4 units"),
    (RBM.field, torch.zeros(2, 3), ShapeError, r"states of shape \(2, 3\); the last dimension must be the 4 units"),
    (RBM.with_fields, [0, 1], ShapeError, r"states of shape \(2,\); the last dimension must be the 4 units"),
    (RBM.sample, "a", ShapeError, "the shape of draws must be a number or a tuple of numbers, not 'a'"),
    (RBM.sample, -1, ShapeError, "the shape of draws must consist of whole numbers from 0 on, not -1"),
    (
        POSTERIOR.draw,
        (2, 0.5),
        ShapeError,
        r"the shape of draws must consist of whole numbers from 0 on, not \(2, 0.5\)",
    ),
    (lambda v: v.mode, RBM, NoClosedFormError, "the most probable state of a Boltzmann machine is not implemented"),
    (POSTERIOR.log_ratio, ZETA, SupportError, "log_ratio takes SoftBits, not Tensor"),
    (POSTERIOR.bit_logits, ZETA, SupportError, "bit_logits takes SoftBits, not Tensor"),
    (lambda v: safe_beta(v, 3.0), 3, SupportError, f"{BOLTZMANN} int"),
    (lambda v: safe_beta(RBM, v), "a", SupportError, f"beta {NUMBERS} str"),
    (elbo, "a", SupportError, f"log_weights {NUMBERS} str"),
    (lambda v: discrete_kl(RBM, v, v), 3, ShapeError, "posterior must have one SmoothedBernoulli for each group"),
    (softspin.load, 3, RunError, "the path of a model must be a string or a Path, not int"),
    (lambda v: softspin.data.load("digits8x8", split=v), "test", DataError, "split = 'test' must be True or False; a"),
    (lambda v: softspin.Config(data=v), np.zeros((9, 9)), ConfigError, "is not possible; it must be a name or a path"),
]


@pytest.mark.parametrize(("call", "value", "error", "text"), MISTAKES)
def test_a_mistake_ends_in_one_line(
    call: Callable[[Any], object], value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        call(value)
    assert len(str(caught.value).splitlines()) == 1


def test_dimod_mistakes_end_in_one_line() -> None:
    dwave = pytest.importorskip("softspin.dwave", reason="needs dimod")
    with pytest.raises(SupportError, match=r"bqm must be a dimod.BinaryQuadraticModel, as by .*, not dict"):
        dwave.from_bqm({(0, 1): 1.0})
    with pytest.raises(SupportError, match=r"sampler must be a dimod sampler, such as .*, not 3"):
        dwave.check_temperature(3)
    with pytest.raises(SupportError, match=f"{BOLTZMANN} Tensor"):
        dwave.to_bqm(torch.zeros(3))


@pytest.mark.parametrize("logits", [[0, 1], np.array([0.0, 1.0]), torch.tensor([0, 1]), torch.tensor([0.0, 1.0])])
def test_logits_may_be_lists_arrays_or_integers(logits: Any) -> None:
    found = SmoothedBernoulli(logits, Power(9)).log_prob([0.2, 0.7])  # type: ignore[arg-type]
    truth = SmoothedBernoulli(torch.tensor([0.0, 1.0]), Power(9.0)).log_prob(torch.tensor([0.2, 0.7]))
    torch.testing.assert_close(found.float(), truth)


def test_beta_may_be_a_list_or_an_array() -> None:
    for beta in ([4.0, 9.0], np.array([4.0, 9.0])):
        found = SmoothedBernoulli(torch.zeros(2), Power(beta)).log_prob(torch.full((2,), 0.3))  # type: ignore[arg-type]
        assert found.dtype == torch.float32
        torch.testing.assert_close(
            found[1], SmoothedBernoulli(torch.zeros(1), Power(9.0)).log_prob(torch.full((1,), 0.3))[0]
        )


def test_samples_may_be_arrays() -> None:
    boltzmann = small_rbm(torch.float32)
    z = states(5)
    truth = reverse_ais(boltzmann, z.float(), seed=0, temperatures=5)
    for samples in (z, z.numpy(), z.bool(), z.tolist()):
        assert torch.equal(reverse_ais(boltzmann, samples, seed=0, temperatures=5).value, truth.value)  # type: ignore[arg-type]
        found = estimate(boltzmann, "sandwich", samples=samples, seed=0, temperatures=5, chains=9)  # type: ignore[arg-type]
        assert found.method == "sandwich"
    started = gibbs.init(boltzmann, 32, 0, start=z.numpy())  # type: ignore[arg-type]
    assert torch.equal(started.z, z.float())


def test_weights_and_schedules_may_be_lists() -> None:
    assert log_weights([1.0], [2.0], [0.5]).tolist() == [2.5]  # type: ignore[arg-type]
    assert importance_bound([[0.0], [2.0]]).item() == pytest.approx(1.4338, abs=1e-4)  # type: ignore[arg-type]
    truth = ais(RBM, seed=0, schedule=torch.tensor([0.0, 0.5, 1.0]), chains=9, base=torch.zeros(4)).value
    assert ais(RBM, seed=0, schedule=[0, 0.5, 1], chains=9, base=[0] * 4).value == truth  # type: ignore[arg-type]


def test_a_boltzmann_machine_can_be_expanded() -> None:
    pair = RBM.expand((2,))
    assert torch.equal(pair.log_z, RBM.log_z.expand(2))
    assert torch.equal(RBM.with_log_z(3.0).expand((2,)).log_z, torch.full((2,), 3.0))


def test_soft_bits_of_another_precision_are_converted() -> None:
    bits = SmoothedBernoulli(torch.zeros(4, dtype=torch.float64), Gaussian(9.0)).soft_bits(ZETA.double())
    single = type(bits)(*(part.float() for part in bits))
    for relaxation in (OverlapRelaxation(RBM), GaussianIntegralRelaxation(RBM, 9.0)):
        assert torch.equal(relaxation.log_prob(bits), relaxation.log_prob(single))
    assert torch.equal(OverlapRelaxation(RBM).exact_log_prob(bits), OverlapRelaxation(RBM).exact_log_prob(single))


def test_a_single_posterior_is_the_only_group() -> None:
    bits = POSTERIOR.draw(generator=torch.Generator().manual_seed(0))
    assert torch.equal(discrete_kl(RBM, POSTERIOR, bits), discrete_kl(RBM, [POSTERIOR], [bits]))


@pytest.mark.parametrize("make", [make for _, make in CASES], ids=[name for name, _ in CASES])
def test_the_mean_of_a_smoothed_bit_equals_the_integral(make: Callable[[], Smoothing]) -> None:
    """E[zeta] by quadrature over the density; the spike at 0 contributes nothing."""
    smoothing = make()
    logits = torch.tensor([-1.5, 0.3, 2.0], dtype=torch.float64)
    posterior = SmoothedBernoulli(logits, smoothing)
    location, log_weight = quadrature(smoothing)
    bits = smoothing.to_soft_bits(location)
    log_density = posterior.log_prob(type(bits)(*(part[:, None] for part in bits)))
    truth = (torch.exp(log_density + log_weight[:, None]) * bits.zeta[:, None]).sum(0)
    torch.testing.assert_close(posterior.mean, truth, atol=1e-6, rtol=0)
    mean0, mean1 = smoothing.component_means()
    assert (mean1 - mean0).item() == pytest.approx(mean_difference(smoothing), abs=1e-9)


def test_a_smoothing_without_a_mean_says_so() -> None:
    class NoMean(Power):
        def mean_distance(self) -> torch.Tensor:
            return super(Power, self).mean_distance()

    with pytest.raises(NoClosedFormError, match=r"the power smoothing does not implement its mean; average draws"):
        _ = SmoothedBernoulli(torch.zeros(2), NoMean(9.0)).mean


def test_representations_say_what_a_thing_is() -> None:
    assert repr(POSTERIOR) == "SmoothedBernoulli(logits (3, 4), Power(beta=9))"
    assert repr(SpikeExponential(3.0)) == "SpikeExponential(beta=3)"
    assert repr(OverlapRelaxation(RBM)) == (
        "OverlapRelaxation(BipartiteBoltzmann(2 + 2 units), 5 mean-field steps, lower bound)"
    )
    assert repr(GaussianIntegralRelaxation(RBM, 9.0)) == (
        "GaussianIntegralRelaxation(BipartiteBoltzmann(2 + 2 units), beta=9, exact)"
    )
    assert repr(POSTERIOR.draw()) == "SoftBits(zeta (3, 4), with log r(zeta|0) and log r(zeta|1))"
    assert repr(PopulationAnnealing()) == "PopulationAnnealing(compiled=False)"
    assert repr(Gibbs()) == "Gibbs(compiled=False)"
    assert repr(ParallelTempering(8)) == "ParallelTempering(temperatures=8)"
    assert repr(exact(RBM)) == f"LogZ({exact(RBM).value.item():.6g}, exact)"
    rough = log_z(torch.tensor([22.193, 0.0003, 900.0, 22.1924, 22.1936]), "ais")
    assert repr(rough) == "LogZ(22.19300 +- 0.00030 in [22.192, 22.194], estimate, by ais)"
    two = log_z(torch.tensor([[2.0, 2.0], [0.5, 0.5], [9.0, 9.0], [1.0, 1.0], [3.0, 3.0]]), "sandwich")
    assert repr(two) == "LogZ([2.00 +- 0.50 in [1.00, 3.00], 2.00 +- 0.50 in [1.00, 3.00]], estimate, by sandwich)"


def log_z(numbers: torch.Tensor, method: str) -> LogZ:
    value, error, size, lower, upper = numbers
    return LogZ(value, error, size, lower, upper, method=method, kind="estimate")


def test_small_differences_are_shown() -> None:
    assert distinct(22.19301, 22.19342) == ["22.1930", "22.1934"]
    assert interval_text(-float("inf"), 2.0) == "[-inf, 2.00]"
    assert with_error(22.1934, 0.0003) == "22.19340 +- 0.00030"
    assert with_error(84.2, 0.05) == "84.20 +- 0.05"
    assert with_error(84.2, float("inf")) == "84.20 +- inf"


def test_the_sandwich_warning_tells_its_two_limits_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reverse value that is too low by a thousandth of a nat, as by samples that are not quite right."""
    forward = ais(RBM, seed=0, temperatures=10, chains=100)
    low = forward._replace(upper=forward.lower - 0.0004, value=forward.lower - 0.001)
    monkeypatch.setattr("softspin.samplers.log_z.reverse_chains", lambda *args, **options: (low, None))
    with pytest.warns(softspin.samplers.SandwichWarning) as caught:
        sandwich(RBM, seed=0, temperatures=10, chains=100, guarded=False)
    numbers = [word.strip(",;") for word in str(caught[0].message).split() if word[0].isdigit()]
    assert len(numbers) == 2
    assert float(numbers[0]) < float(numbers[1])
