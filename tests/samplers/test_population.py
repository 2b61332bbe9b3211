"""Population annealing: weights, resampling, families, divided steps and its estimate of log Z, against enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from samplers.laws import (
    MACHINES,
    chi_square,
    exact_draws,
    off_by,
    probabilities,
    repeated,
    small_rbm,
    states,
    true_log_z,
    two_modes,
)
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann
from softspin.random import KeyDomain
from softspin.samplers import CollapseWarning, anneal_population, gibbs, population, resampling
from softspin.samplers.population_state import PopulationInfo, PopulationState
from softspin.samplers.primitives import replica_rng_states
from softspin.samplers.resampling import max_tempering_step, systematic

boltzmanns = pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))


def exact_population(boltzmann: Boltzmann, runs: int, members: int, seed: int = 0) -> PopulationState:
    """`runs` populations in equilibrium at the machine."""
    many = repeated(boltzmann, runs)
    z = exact_draws(boltzmann, (runs, members), seed)
    log_z = torch.full((runs,), true_log_z(boltzmann), dtype=torch.float64)
    rng_state = replica_rng_states(many, seed, KeyDomain.POPULATION)
    return PopulationState(z, many.bias, many.couplings, log_z, everyone(z), rng_state)


def everyone(z: Tensor) -> Tensor:
    """Founders when every member is its own."""
    return torch.arange(z.shape[-2]).expand(z.shape[:-1])


def stretched(boltzmann: Boltzmann, factor: float) -> BipartiteBoltzmann:
    assert isinstance(boltzmann, BipartiteBoltzmann)
    return BipartiteBoltzmann(boltzmann.bias * factor, boltzmann.weight * factor)


@boltzmanns
@pytest.mark.parametrize("at_once", [False, True])
def test_unchanged_parameters_leave_weights_uniform_and_resample_nothing(
    boltzmann: Boltzmann, single_step: bool
) -> None:
    state = exact_population(boltzmann, runs=3, members=500)
    many = repeated(boltzmann, 3)
    new, info = population.step(state, many, sweeps=2, single_step=single_step)
    swept, _ = gibbs.step(gibbs.GibbsState(state.z, state.rng_state), many, sweeps=2)
    assert torch.equal(new.z, swept.z), "the members are where plain sweeps would have taken them"
    assert torch.equal(new.log_z, state.log_z)
    assert torch.equal(info.effective_sample_size, torch.full((3,), 500.0, dtype=torch.float64))
    assert info.families.tolist() == [500] * 3
    assert info.mean_square_family.tolist() == [1.0] * 3
    assert info.tempering_steps.tolist() == [1] * 3
    assert torch.equal(info.ancestors, torch.arange(500).expand(3, 500))
    assert not info.standard_error.any()
    assert not info.collapsed.any()


@boltzmanns
def test_increments_average_to_the_exact_ratio(boltzmann: Boltzmann) -> None:
    """4,000 populations of 10 members in equilibrium, one undivided step: mean e^increment within 5 standard errors."""
    target = off_by(off_by(boltzmann, 1.0, unit=0), -0.7, unit=4)
    state = exact_population(boltzmann, runs=4000, members=10)
    _, info = population.step(state, repeated(target, 4000), sweeps=1, max_tempering_steps=1)
    ratios = (info.log_z_increment - true_log_z(target) + true_log_z(boltzmann)).exp()
    assert ratios.std() > 0.05
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / math.sqrt(4000)


@boltzmanns
def test_weights_are_those_of_the_formula(boltzmann: Boltzmann) -> None:
    """exp(E_old - E_new) per member, from the table of energies; the effective sample size from the same weights."""
    target = off_by(boltzmann, 0.5, unit=2)
    state = exact_population(boltzmann, runs=1, members=50)
    new, info = population.step(state, repeated(target, 1), sweeps=1, max_tempering_steps=1)
    weights = (0.5 * state.z[0, :, 2]).exp()
    assert info.log_z_increment.item() == pytest.approx(weights.mean().log().item(), abs=1e-12)
    assert info.effective_sample_size.item() == pytest.approx((weights.sum() ** 2 / (weights**2).sum()).item())
    relative = weights.var().item() / 50 / weights.mean().item() ** 2
    assert info.standard_error.item() == pytest.approx(math.sqrt(relative), rel=0.05)  # the delta method, ess 47 of 50
    assert new.log_z.item() == pytest.approx(state.log_z.item() + weights.mean().log().item(), abs=1e-12)
    assert torch.equal(new.bias[0], target.bias)


def test_a_large_step_is_divided_and_the_estimate_improves() -> None:
    """100 populations from a fifth of all parameters to five times them: dividing at least halves the error."""
    boltzmann, target = (stretched(small_rbm(seed=5), factor) for factor in (0.2, 5.0))
    state = exact_population(boltzmann, runs=100, members=100)
    many, truth = repeated(target, 100), true_log_z(target)
    whole, whole_info = population.step(state, many, sweeps=4, max_tempering_steps=1)
    divided, info = population.step(state, many, sweeps=4, smallest_ess=0.9)
    assert whole_info.tempering_steps.tolist() == [1] * 100
    assert info.tempering_steps.min() >= 3
    assert info.tempering_steps.max() < 32
    assert info.effective_sample_size.min() >= 90 - 1e-6
    assert whole_info.effective_sample_size.mean() < 50
    errors = [(s.log_z - truth).square().mean().sqrt().item() for s in (whole, divided)]
    assert errors[1] < errors[0] / 2, errors
    assert (divided.log_z - truth).abs().max() < 5 * info.standard_error.max()


def test_the_number_of_parts_is_bounded() -> None:
    boltzmann = small_rbm()
    state = exact_population(boltzmann, runs=2, members=100)
    new, info = population.step(
        state, repeated(stretched(boltzmann, 8.0), 2), sweeps=1, smallest_ess=0.95, max_tempering_steps=3
    )
    assert info.tempering_steps.tolist() == [3, 3]
    assert torch.equal(new.bias, repeated(stretched(boltzmann, 8.0), 2).bias), "the last part goes all the way"
    assert (new.rng_state - state.rng_state)[:, 1].tolist() == [3, 3]


def test_parts_meet_the_effective_sample_size_that_was_asked_for() -> None:
    """All parts but the last are as long as the grid lets them.

    The next point on it, 2^(1/4) times as far, would take the log of the effective sample size, which falls with the
    square of the way, below its target: so the smallest of all parts lies between the target and its power 2^(-1/2).
    """
    boltzmann = small_rbm()
    state = exact_population(boltzmann, runs=5, members=1000)
    for target in (0.5, 0.8):
        _, info = population.step(state, repeated(stretched(boltzmann, 8.0), 5), sweeps=1, smallest_ess=target)
        assert info.tempering_steps.min() > 1
        assert info.effective_sample_size.min() >= 1000 * target
        assert info.effective_sample_size.max() < 1000 * target**0.5**0.5


def test_a_collapse_warns_and_says_so() -> None:
    """A bias of 60 on a unit that one of ten members has on: the others weigh e^-60. The second replica stays."""
    bias, weight = torch.zeros(2, 5, dtype=torch.float64), torch.zeros(2, 2, 3, dtype=torch.float64)
    z = torch.zeros(2, 10, 5, dtype=torch.float64)
    z[:, 4, 0] = 1
    boltzmann = BipartiteBoltzmann(bias, weight)
    rng_state = replica_rng_states(boltzmann, 0, KeyDomain.POPULATION)
    state = PopulationState(z, bias, weight, torch.zeros(2, dtype=torch.float64), everyone(z), rng_state)
    moved = bias.clone()
    moved[0, 0] = 60
    with pytest.warns(CollapseWarning, match="replica 0: the population collapsed: one of 10 members carried 100%"):
        _, info = population.step(state, BipartiteBoltzmann(moved, weight), sweeps=1, max_tempering_steps=1)
    assert info.collapsed.tolist() == [True, False]
    assert info.families.tolist() == [1, 10]
    assert info.largest_family.tolist() == [1.0, 0.1]
    assert info.mean_square_family.tolist() == [10.0, 1.0]
    assert info.standard_error[0].isinf()


def test_a_collapse_in_any_part_is_reported_with_its_replica() -> None:
    """The smallest part, 2^-15 of the way, leaves all weight to one of ten; in the second part all are alike."""
    bias, weight = torch.zeros(2, 5, dtype=torch.float64), torch.zeros(2, 2, 3, dtype=torch.float64)
    z = torch.zeros(2, 10, 5, dtype=torch.float64)
    z[:, 4, 0] = 1
    rng_state = replica_rng_states(BipartiteBoltzmann(bias, weight), 0, KeyDomain.POPULATION)
    state = PopulationState(z, bias, weight, torch.zeros(2, dtype=torch.float64), everyone(z), rng_state)
    raised = bias.clone()
    raised[1, 0] = 1e7
    with pytest.warns(CollapseWarning, match="replica 1: the population collapsed: one of 10 members carried 100%"):
        new, info = population.step(state, BipartiteBoltzmann(raised, weight), sweeps=1)
    assert info.tempering_steps.tolist() == [1, 2]
    assert info.collapsed.tolist() == [False, True]
    assert info.largest_weight.tolist() == pytest.approx([0.1, 1.0])
    again, later = population.step(population.reset_ancestors(new), BipartiteBoltzmann(raised, weight), sweeps=1)
    assert not later.collapsed.any(), "counted from here, nothing has happened yet"
    assert again.log_z.equal(new.log_z)


def test_a_collapse_over_several_parts_is_reported() -> None:
    """Ten members, parts that keep half of them each: no member ever carries 40%, but in the end two families do."""
    with pytest.warns(CollapseWarning, match=r"its families are worth 2.0 equal ones; take smaller parameter steps"):
        result, _, info = anneal_population(repeated(two_modes(), 5), 10, seed=0, smallest_ess=0.5)
    assert info.tempering_steps.min() >= 3
    assert info.largest_weight.max() < 0.4
    assert info.effective_sample_size.min() >= 5
    assert 0 < info.collapsed.sum() < 5
    assert torch.equal(info.collapsed, info.effective_families <= 2)
    assert torch.equal(info.collapsed, result.standard_error.isinf())


def test_families_are_counted_since_the_beginning() -> None:
    """Nine of ten members are equal, the tenth has the unit on that a bias of log 9 favours: it has 5 children."""
    bias, weight = torch.zeros(5, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    z = torch.zeros(10, 5, dtype=torch.float64)
    z[3, 1] = 1
    rng_state = replica_rng_states(BipartiteBoltzmann(bias, weight), 0, KeyDomain.POPULATION)
    moved = bias.clone()
    moved[1] = math.log(9)
    state = PopulationState(z, bias, weight, torch.zeros((), dtype=torch.float64), everyone(z), rng_state)
    _, info = population.step(state, BipartiteBoltzmann(moved, weight), sweeps=1, max_tempering_steps=1)
    assert info.families == 6  # it and five of the others
    assert info.largest_family.item() == 0.5
    assert info.mean_square_family.item() == pytest.approx((25 + 5) / 10)
    assert info.effective_sample_size.item() == pytest.approx(18**2 / (81 + 9))


# Resampling ------------------------------------------------------------------------------------------------------


def naive_systematic(weights: list[float], u: float) -> list[int]:
    total, count = sum(weights), len(weights)
    points = [(u + i) / count * total for i in range(count)]
    edges = [sum(weights[: i + 1]) for i in range(count)]
    return [next(i for i, edge in enumerate(edges) if point < edge) for point in points]


def test_systematic_resampling_is_that_of_the_definition() -> None:
    g = torch.Generator().manual_seed(0)
    log_weights = torch.randn(50, 7, generator=g, dtype=torch.float64)
    u = torch.rand(50, 1, generator=g, dtype=torch.float64)
    got = systematic(log_weights.exp(), u)
    for row in range(50):
        assert got[row].tolist() == naive_systematic(log_weights[row].exp().tolist(), u[row].item())


def test_children_are_as_many_as_the_weight_says_up_to_one_and_on_average_exactly() -> None:
    log_weights = torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64).expand(2000, 9)
    u = (torch.arange(2000, dtype=torch.float64)[:, None] + 0.5) / 2000
    parents = systematic(log_weights.exp(), u)
    children = torch.zeros(2000, 9, dtype=torch.float64).scatter_add(1, parents, torch.ones_like(log_weights))
    expected = 9 * torch.softmax(log_weights, -1)
    assert bool(((children - expected).abs() < 1).all())
    torch.testing.assert_close(children.mean(0), expected[0], atol=2e-3, rtol=0)


EXTREME = (2.0**-32, 0.5, 1 - 2.0**-32)
"""The smallest and largest uniforms of a stream."""


def test_equal_weights_resample_nobody_whatever_the_rounding() -> None:
    for count in (3, 10, 49, 1000, 1_000_000):
        for u in EXTREME:
            ones, uniform = (torch.full((2, n), x, dtype=torch.float64) for n, x in ((count, 1.0), (1, u)))
            assert torch.equal(systematic(ones, uniform), torch.arange(count).expand(2, count))


def test_extreme_weights_resample_without_leaving_the_population() -> None:
    weights = torch.tensor([[1e-300, 1.0, 0.0], [1.0, 1e-300, 0.0], [0.0, 0.0, 1e300]], dtype=torch.float64)
    for u in EXTREME:
        parents = systematic(weights, torch.full((3, 1), u, dtype=torch.float64))
        assert parents.tolist() == [[1] * 3, [0] * 3, [2] * 3]
    lost = systematic(torch.full((1, 3), torch.nan, dtype=torch.float64), torch.full((1, 1), 0.5, dtype=torch.float64))
    assert 0 <= lost.min() <= lost.max() < 3


# Following the parameters ----------------------------------------------------------------------------------------


def walk(boltzmann: Boltzmann, k: int) -> Boltzmann:
    return off_by(off_by(boltzmann, 0.1 * k, unit=k % 5), -0.05 * k, unit=(k + 2) % 5)


@boltzmanns
def test_a_population_follows_the_parameters(boltzmann: Boltzmann) -> None:
    """15 updates, 40 runs of 500: log Z stays with the exact one, and so do the marginals, within 5 standard errors."""
    runs, members = 40, 500
    state = population.init(repeated(boltzmann, runs), members, seed=0)
    for k in range(15):
        target = walk(boltzmann, k)
        state, info = population.step(state, repeated(target, runs), sweeps=3)
        error = state.log_z - true_log_z(target)
        assert abs(error.mean()) < 5 * error.std() / math.sqrt(runs) + 1e-9, k
        assert bool((error.abs() < 5 * info.standard_error).all())
    assert error.std() > 0.4 * info.standard_error.mean(), "the claimed error is not far too wide"
    marginal = probabilities(target) @ states(5)
    means = state.z.mean(1)
    spread = means.std(0) / math.sqrt(runs)
    assert bool(((means.mean(0) - marginal).abs() < 5 * spread).all())
    assert not info.collapsed.any()


@pytest.mark.parametrize("at_once", [False, True])
def test_the_error_of_log_z_covers_after_many_updates(single_step: bool) -> None:
    """Two modes that no chain leaves, annealed and then tilted to and fro, 100 runs of 300.

    95% coverage is 95 +- 2.2, so 84 is 5 standard deviations. A run keeps the share of the modes that it has found, and
    its error with it: counted from each step alone it would be a tenth of that.
    """
    runs = 100
    _, state, info = anneal_population(repeated(two_modes(), runs), 300, seed=0)
    for k in range(36):
        boltzmann = two_modes(tilt=0.05 + 0.1 * math.sin(k / 4))
        state, info = population.step(state, repeated(boltzmann, runs), sweeps=1, single_step=single_step)
        if k in (0, 5, 35):
            error = state.log_z - true_log_z(boltzmann)
            assert (error.abs() < 1.96 * info.standard_error).sum() >= 84, k
            assert 0.85 < info.standard_error.mean() / error.std() < 1.5, k
            assert bool((info.effective_families < 100).all()), "few families of 300 are left"
    assert torch.equal(info.ancestors, state.ancestors)
    fresh, later = population.step(
        population.reset_ancestors(state), repeated(boltzmann, runs), sweeps=1, single_step=single_step
    )
    assert not later.standard_error.any()
    assert torch.equal(fresh.log_z, state.log_z)
    assert torch.equal(fresh.ancestors, everyone(state.z))


# At once ---------------------------------------------------------------------------------------------------------


def moved(boltzmann: Boltzmann, size: float) -> Boltzmann:
    """All parameters other ones, `size` times as large and of the other sign."""
    return boltzmann.with_parameters(-size * boltzmann.bias, -size * boltzmann.couplings)


@boltzmanns
def test_at_once_is_the_whole_step_where_the_weights_carry_it(boltzmann: Boltzmann) -> None:
    """The same members, families and weights. Only log Z is told the other way."""
    start, near = exact_population(boltzmann, runs=3, members=300), repeated(moved(boltzmann, -1.1), 3)
    whole, whole_info = population.step(start, near, sweeps=2)
    assert whole_info.tempering_steps.tolist() == [1] * 3
    state, info = population.step(start, near, sweeps=2, single_step=True)
    assert all(torch.equal(a, b) for a, b in zip(state._replace(log_z=whole.log_z), whole, strict=True))
    told = info._replace(log_z_increment=whole_info.log_z_increment)
    assert all(torch.equal(a, b) for a, b in zip(told, whole_info, strict=True))
    assert not torch.equal(state.log_z, whole.log_z)


@boltzmanns
def test_at_once_the_members_are_at_the_machine_however_far_it_is(boltzmann: Boltzmann) -> None:
    """Too far for the weights, not for 30 sweeps: chi-square at the new machine, false-alarm rate 1e-6.

    Of the members at least half are worth keeping by the weights of a part of the way; by the whole way's, few.
    """
    start, far = exact_population(boltzmann, runs=1, members=200_000), moved(boltzmann, 2.5)
    state, info = population.step(start, repeated(far, 1), sweeps=30, single_step=True)
    assert torch.equal(state.bias[0], far.bias)
    assert torch.equal(state.coupling[0], far.couplings)
    assert info.effective_sample_size < 0.3 * 200_000
    assert info.mean_square_family < 2.25, "half of the members, and 1/4 by rounding"
    assert chi_square(state.z[0], probabilities(far)).passes
    assert not chi_square(state.z[0], probabilities(off_by(far))).passes


@boltzmanns
def test_at_once_the_parents_are_those_of_the_farthest_part_that_the_weights_carry(boltzmann: Boltzmann) -> None:
    """Against undivided steps to points of the way, 2^(-k/4) of it, of which the first is at k = 0."""
    start, far = exact_population(boltzmann, runs=1, members=500), repeated(moved(boltzmann, 2.5), 1)
    for k in range(40):
        share = 2.0 ** (-k / 4)
        near = far.with_parameters(
            torch.lerp(start.bias, far.bias, share), torch.lerp(start.coupling, far.couplings, share)
        )
        whole, info = population.step(start, near, sweeps=1)
        if info.tempering_steps == 1:
            break
    assert k > 2
    state, _ = population.step(start, far, sweeps=1, single_step=True)
    assert torch.equal(state.ancestors, whole.ancestors)
    assert len(state.ancestors.unique()) < 450


@boltzmanns
def test_the_way_back_averages_to_the_exact_ratio(boltzmann: Boltzmann) -> None:
    """4,000 populations of 20 members, and 30 sweeps to forget: mean e^-increment within 5 standard errors."""
    target = off_by(off_by(boltzmann, 1.0, unit=0), -0.7, unit=4)
    state = exact_population(boltzmann, runs=4000, members=20)
    _, info = population.step(state, repeated(target, 4000), sweeps=30, single_step=True, smallest_ess=0.01)
    ratios = (true_log_z(target) - true_log_z(boltzmann) - info.log_z_increment).exp()
    assert ratios.std() > 0.05
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / math.sqrt(4000)


def test_learning_in_steps_too_long_for_the_weights_does_not_run_away() -> None:
    """200 units without couplings, whose biases learn from the members with momentum: one sweep forgets all.

    Members that wait behind the parameters drive them on: so learned, biases end 50 off in root mean square, for three
    seeds. The noise of 500 members, carried on by momentum, makes it 0.10 +- 0.005; the bound is 20 of those off.
    """
    truth = torch.linspace(-2, 2, 200, dtype=torch.float64)
    bias, speed = torch.zeros_like(truth), torch.zeros_like(truth)
    weight = torch.zeros(100, 100, dtype=torch.float64)
    state = population.init(BipartiteBoltzmann(bias, weight), 500, seed=0, base="uniform")
    effective_sample_size = []
    for _ in range(100):
        speed = 0.9 * speed + (torch.sigmoid(truth) - state.z.mean(0))
        bias = bias + speed
        state, info = population.step(state, BipartiteBoltzmann(bias, weight), sweeps=1, single_step=True)
        effective_sample_size.append(info.effective_sample_size.item() / 500)
    assert min(effective_sample_size) < 0.1, "some steps were too long for the weights"
    assert (bias - truth).square().mean().sqrt() < 0.2


@boltzmanns
def test_log_z_does_not_drift_where_the_members_move_the_parameters(boltzmann: Boltzmann) -> None:
    """Learning from the members' moments: errors against enumeration, and those of the weights, which do drift.

    20 runs; the mean error within 6 of its standard errors of 0 (false-alarm rate 1e-5), the other below -15 of them.
    """
    runs = 20
    many = repeated(boltzmann, runs)
    state = start = exact_population(boltzmann, runs, members=30)
    data = exact_draws(boltzmann, (150, runs, 3), seed=5)
    forward = start.log_z
    bias = many.bias
    for seen in data:
        bias = bias + 0.1 * (seen.mean(-2) - state.z.mean(-2))
        target = many.with_parameters(bias, many.couplings)
        forward = forward + population.step(state, target, sweeps=1)[1].log_z_increment
        state, _ = population.step(state, target, sweeps=5, single_step=True)
    exact = torch.tensor(
        [true_log_z(boltzmann.with_parameters(b, w)) for b, w in zip(state.bias, state.coupling, strict=True)]
    )
    for error, drifts in ((state.log_z - exact, False), (forward - exact, True)):
        deviation = error.mean() / (error.std() / math.sqrt(runs))
        assert deviation < -15 if drifts else abs(deviation) < 6, (deviation, error.mean())


def test_what_a_long_way_forbids_is_not_forgotten() -> None:
    """A fair unit that is all but switched off: no member after the sweeps knows that it was ever on.

    400 runs of 500, |error| < 5 standard errors in each; told by the new members alone most would be 10 off.
    """
    runs, weight = 400, torch.zeros(2, 3, dtype=torch.float64)
    bias = torch.zeros(5, dtype=torch.float64)
    off = bias.clone()
    off[0] = -1000
    start, far = BipartiteBoltzmann(bias, weight), BipartiteBoltzmann(off, weight)
    state = population.init(repeated(start, runs), 500, seed=0, base="uniform")
    state, info = population.step(state, repeated(far, runs), sweeps=1, single_step=True)
    error = state.log_z - true_log_z(far)
    assert bool((error.abs() < 5 * info.standard_error).all())
    assert abs(error.mean()) < 5 * error.std() / math.sqrt(runs)


@boltzmanns
def test_a_replica_with_a_long_way_does_not_disturb_its_neighbours(boltzmann: Boltzmann) -> None:
    """Three ways of different length, four updates, together and alone: the same members, weights and log Z."""
    targets = [moved(boltzmann, size) for size in (-0.95, 0.5, 40.0)]
    many = boltzmann.with_parameters(
        torch.stack([t.bias for t in targets]), torch.stack([t.couplings for t in targets])
    )
    start = exact_population(boltzmann, runs=3, members=80)

    def run(state: PopulationState, target: Boltzmann) -> list[tuple[PopulationState, PopulationInfo]]:
        seen = [population.step(state, target, sweeps=2, single_step=True)]
        for _ in range(3):
            seen.append(population.step(seen[-1][0], target, sweeps=2, single_step=True))
        return seen

    together = run(start, many)
    first = together[0][1].effective_sample_size.tolist()
    assert first[0] > 60
    assert 40 > first[1] > first[2]
    for r, target in enumerate(targets):
        for (state, info), alone in zip(together, run(PopulationState(*[x[r] for x in start]), target), strict=True):
            for value, its in zip((*state, *info), (*alone[0], *alone[1]), strict=True):
                torch.testing.assert_close(value[r], its, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_share_of_the_way_is_the_farthest_of_the_grid(dtype: torch.dtype) -> None:
    """Against the definition of the effective sample size at 2^0, 2^(-1/4), ..., 2^-15, for weights of all spreads."""
    g = torch.Generator().manual_seed(0)
    gain = (
        torch.randn(60, 50, generator=g, dtype=torch.float64) * torch.logspace(-2, 6, 60, dtype=torch.float64)[:, None]
    )
    gain = gain - gain.amax(-1, keepdim=True)
    got = max_tempering_step(gain, 30.0, dtype)
    assert torch.equal(got, got.to(dtype).double()), "what the parameters move by is what the weights were made with"
    for row, share in zip(gain, got.tolist(), strict=True):
        weights = [(2.0 ** (-j / 4) * row).exp() for j in range(61)]
        enough = [j for j, w in enumerate(weights) if w.sum() ** 2 / (w**2).sum() >= 30]
        assert share == pytest.approx(2.0 ** (-min(enough, default=60) / 4), rel=1e-6)
    assert got[0] == 1
    assert got[-1] == 2.0**-15
    assert len(got.unique()) > 20


def test_members_beyond_what_the_grid_sees_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    boltzmann = small_rbm()
    start = population.init(boltzmann, 1000, seed=0)
    state, info = population.step(start, moved(boltzmann, 2.0), sweeps=1)
    assert info.tempering_steps > 1
    monkeypatch.setattr(resampling, "_AT_ONCE", 64)
    again, _ = population.step(start, moved(boltzmann, 2.0), sweeps=1)
    assert all(torch.equal(a, b) for a, b in zip(state, again, strict=True))


def test_at_once_a_way_too_long_for_the_grid_says_what_it_cost() -> None:
    """One member in ten has the unit on whose bias rises by 10^7: even 2^-15 of that leaves it all the weight."""
    bias, weight = torch.zeros(5, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    z = torch.zeros(10, 5, dtype=torch.float64)
    z[4, 0] = 1
    rng_state = replica_rng_states(BipartiteBoltzmann(bias, weight), 0, KeyDomain.POPULATION)
    state = PopulationState(z, bias, weight, torch.zeros((), dtype=torch.float64), everyone(z), rng_state)
    raised = bias.clone()
    raised[0] = 1e7
    new, info = population.step(state, BipartiteBoltzmann(raised, weight), sweeps=1, single_step=True)  # warns nobody
    assert torch.equal(new.bias, raised)
    assert info.collapsed
    assert info.families == 1


def test_parameters_that_are_not_numbers_are_seen_in_the_info_where_nothing_may_raise() -> None:
    boltzmann = small_rbm(replicas=(2,))
    weight = boltzmann.weight.clone()
    weight[0, 1, 2] = torch.nan
    broken = BipartiteBoltzmann(boltzmann.bias, weight, validate_args=False)
    start = population.init(boltzmann, 20, seed=0)
    state, info = population.step(start, broken, sweeps=1, single_step=True)
    assert state.log_z.isnan().tolist() == [True, False]
    assert info.collapsed.tolist() == [True, False]


# From temperature 0 to 1 -----------------------------------------------------------------------------------------


def test_annealing_starts_exactly_at_its_base() -> None:
    boltzmann = small_rbm()
    base = torch.linspace(-2, 2, 5, dtype=torch.float64)
    state = population.init(boltzmann, 100_000, seed=0, base=base)
    assert state.log_z.item() == pytest.approx((1 + base.exp()).log().sum().item(), abs=1e-12)
    p = torch.sigmoid(base)
    error = (p * (1 - p) / 100_000).sqrt()
    assert bool(((state.z.mean(0) - p).abs() < 5 * error).all())
    assert torch.equal(state.bias, base)
    assert not state.coupling.any()


@pytest.mark.parametrize("base", ["centred", "bias", "uniform", torch.linspace(-2, 2, 5)])
@boltzmanns
def test_stand_alone_annealing_finds_log_z(boltzmann: Boltzmann, base: str | Tensor) -> None:
    result, state, info = anneal_population(boltzmann, 3000, seed=0, base=base)
    assert abs(result.value.item() - true_log_z(boltzmann)) < 5 * result.standard_error.item()
    assert result.standard_error < 0.1
    assert result.effective_sample_size.item() == pytest.approx(3000 / info.mean_square_family.item())
    assert torch.equal(result.value, state.log_z)
    assert info.effective_sample_size >= 0.9 * 3000 - 1e-6
    finer = anneal_population(boltzmann, 3000, seed=0, base=base, smallest_ess=0.99)[2]
    assert finer.tempering_steps > info.tempering_steps
