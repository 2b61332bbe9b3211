"""Properties of all samplers: state in, state out, inputs unchanged; replicas and resumed runs agree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from samplers.laws import small_graph, small_rbm
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, Boltzmann, GraphBoltzmann
from softspin.errors import DeviceError, ShapeError, SupportError, UnknownNameError
from softspin.parts import SAMPLERS as REGISTRY
from softspin.samplers import Gibbs, ParallelTempering, PopulationAnnealing, gibbs, population, tempering
from softspin.samplers import Sampler as TrainingSampler


class Sampler(NamedTuple):
    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Any]]


SAMPLERS = {
    "gibbs": Sampler(gibbs.init, gibbs.step),
    "population": Sampler(population.init, population.step),
    "population, single step": Sampler(population.init, partial(population.step, single_step=True)),
    "tempering": Sampler(tempering.init, tempering.step),
}
samplers = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=list(SAMPLERS))
BOLTZMANNS: dict[str, Callable[..., Boltzmann]] = {"rbm": small_rbm, "graph": small_graph}
boltzmanns = pytest.mark.parametrize("make", BOLTZMANNS.values(), ids=list(BOLTZMANNS))


def same(first: Any, second: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@samplers
@boltzmanns
@pytest.mark.parametrize("replicas", [(), (2,), (2, 3)])
def test_a_step_returns_a_new_state_of_the_same_shape(
    sampler: Sampler, make: Callable[..., Boltzmann], replicas: tuple[int, ...]
) -> None:
    boltzmann = make(replicas=replicas)
    state = sampler.init(boltzmann, 7, seed=0)
    before = [x.clone() for x in state]
    new, info = sampler.step(state, boltzmann, sweeps=3)
    assert same(state, before), "the input state has changed"
    assert type(new) is type(state)
    for name, old in state._asdict().items():
        assert getattr(new, name).shape == old.shape, name
        assert getattr(new, name).dtype == old.dtype, name
    assert not torch.equal(new.z, state.z)
    assert bool(((new.z == 0) | (new.z == 1)).all())
    assert state.z.shape[: len(replicas)] == replicas
    assert (new.rng_state - state.rng_state)[..., 1].min() >= 3
    for name, value in info._asdict().items():
        assert value.shape[: len(replicas)] == replicas, name


@samplers
@boltzmanns
def test_the_info_does_not_share_memory_with_the_input_state(sampler: Sampler, make: Callable[..., Boltzmann]) -> None:
    """A replayed CUDA graph overwrites the old state with the new one."""
    boltzmann = make()
    state = sampler.init(boltzmann, 20, seed=0)
    _, info = sampler.step(state, boltzmann, sweeps=1)
    before = [x.clone() for x in info]
    for tensor in state:
        tensor.fill_(0)
    assert same(info, before)


@samplers
@boltzmanns
def test_runs_depend_on_the_seed_alone(sampler: Sampler, make: Callable[..., Boltzmann]) -> None:
    boltzmann = make()
    runs = [sampler.step(sampler.init(boltzmann, 50, seed=s), boltzmann, sweeps=2)[0] for s in (0, 0, 1)]
    assert same(runs[0], runs[1])
    assert not torch.equal(runs[0].z, runs[2].z)


@samplers
@boltzmanns
def test_a_resumed_run_equals_an_uninterrupted_one(sampler: Sampler, make: Callable[..., Boltzmann]) -> None:
    """The parameters change at every step; the second half starts from a copy of the tensors, as from a checkpoint."""
    one, two = make(seed=1), make(seed=2)

    def run(state: Any, updates: range) -> Any:
        for k in updates:
            bias = torch.lerp(one.bias, two.bias, k / 10)
            if isinstance(one, BipartiteBoltzmann):
                state, _ = sampler.step(state, BipartiteBoltzmann(bias, one.weight), sweeps=2)
            else:
                state, _ = sampler.step(state, GraphBoltzmann(bias, one.coupling), sweeps=2)
        return state

    start = sampler.init(one, 40, seed=3)
    whole = run(start, range(10))
    half = run(start, range(5))
    resumed = type(half)(*[x.clone() for x in half])
    assert same(run(resumed, range(5, 10)), whole)


@samplers
@boltzmanns
def test_replicas_are_independent_runs(sampler: Sampler, make: Callable[..., Boltzmann]) -> None:
    """Replicas need different numbers of tempering steps in population annealing; none may affect another."""
    many = make(replicas=(3,))
    scale = torch.tensor([0.1, 4.0, 12.0], dtype=torch.float64)
    bias = many.bias * scale[:, None]
    kind: type[BipartiteBoltzmann] | type[GraphBoltzmann]
    if isinstance(many, BipartiteBoltzmann):
        kind, coupling = BipartiteBoltzmann, many.weight * scale[:, None, None]
    else:
        kind, coupling = GraphBoltzmann, many.coupling * scale[:, None, None]
    boltzmann = kind(bias, coupling)
    start = sampler.init(boltzmann, 60, seed=0)
    together, info = sampler.step(start, boltzmann, sweeps=3)
    assert sampler.step is not population.step or len(info.tempering_steps.unique()) > 1
    for r in range(3):
        alone, its_info = sampler.step(type(start)(*[x[r] for x in start]), kind(bias[r], coupling[r]), sweeps=3)
        for name, value in alone._asdict().items():
            torch.testing.assert_close(getattr(together, name)[r], value, rtol=0, atol=1e-10, msg=name)
        for name, value in its_info._asdict().items():
            torch.testing.assert_close(getattr(info, name)[r], value, rtol=0, atol=1e-10, msg=name)


@samplers
def test_a_graph_with_the_couplings_of_an_rbm_has_the_same_samples(sampler: Sampler) -> None:
    """2 x 3 units: the graph's largest colour class is the right side, so even the order of the draws is the same."""
    rbm = small_rbm()
    graph = GraphBoltzmann(rbm.bias, rbm.coupling)
    base = torch.zeros(5)
    keywords = {} if sampler.init is gibbs.init else {"base": base}
    runs = [sampler.step(sampler.init(m, 60, seed=0, **keywords), m, sweeps=4)[0] for m in (rbm, graph)]
    assert torch.equal(runs[0].z, runs[1].z)


@samplers
def test_no_gradient_is_recorded(sampler: Sampler) -> None:
    rbm = small_rbm()
    boltzmann = BipartiteBoltzmann(rbm.bias.clone().requires_grad_(), rbm.weight.clone().requires_grad_())
    state, info = sampler.step(sampler.init(boltzmann, 5, seed=0), boltzmann, sweeps=1)
    assert not any(x.requires_grad for x in (*state, *info))


OBJECTS: dict[str, tuple[TrainingSampler, Sampler]] = {
    "pcd": (Gibbs(), SAMPLERS["gibbs"]),
    "pa": (PopulationAnnealing(), SAMPLERS["population, single step"]),
    "pt": (ParallelTempering(16), SAMPLERS["tempering"]),
}


@boltzmanns
@pytest.mark.parametrize("name", OBJECTS)
def test_the_sampler_classes_call_these_functions(name: str, make: Callable[..., Boltzmann]) -> None:
    sampler, functions = OBJECTS[name]
    assert REGISTRY.get(name) is type(sampler)
    boltzmann = make(replicas=(3,))
    state = sampler.init(boltzmann, 50, seed=4)
    assert same(state, functions.init(boltzmann, 50, seed=4))
    new, info = sampler.step(state, boltzmann, 2)
    expected, its_info = functions.step(state, boltzmann, sweeps=2)
    assert same(new, expected)
    assert same(info, its_info)
    z = new.z[..., -1, :] if name == "pt" else new.z
    assert torch.equal(sampler.samples(new), z)
    rates = {"pcd": "flip_rate", "pa": "effective_sample_size", "pt": "exchange_rate"}
    rate = getattr(info, rates[name])
    rate = rate / 50 if name == "pa" else rate.mean(-1) if name == "pt" else rate
    torch.testing.assert_close(sampler.quality(info), rate.to(sampler.quality(info)))
    assert sampler.quality(info).shape == (3,)
    assert bool(((sampler.quality(info) > 0) & (sampler.quality(info) <= 1)).all())


@pytest.mark.parametrize("name", OBJECTS)
def test_only_the_population_has_a_log_z(name: str) -> None:
    sampler, _ = OBJECTS[name]
    boltzmann = small_rbm(replicas=(2,))
    state, _ = sampler.step(sampler.init(boltzmann, 50, seed=0), boltzmann, 2)
    better = sampler.set_log_z(state, torch.tensor([3.0, 4.0]))
    if name != "pa":
        assert sampler.log_z(state) is sampler.log_z(better) is None
        assert same(better, state)
        return
    assert torch.equal(sampler.log_z(state), state.log_z)  # type: ignore[arg-type]
    assert better.log_z.tolist() == [3.0, 4.0]
    assert better.log_z.dtype == state.log_z.dtype
    assert same(better, population.reset_ancestors(state._replace(log_z=better.log_z)))


@pytest.mark.parametrize("name", OBJECTS)
def test_the_state_of_a_replica_depends_on_its_seed_alone(name: str) -> None:
    sampler, _ = OBJECTS[name]
    boltzmanns: list[Boltzmann] = [small_rbm(seed=1), small_rbm(seed=2)]
    together = sampler.init_replicas(boltzmanns, 20, [5, 9])
    for r, (boltzmann, seed) in enumerate(zip(boltzmanns, (5, 9), strict=True)):
        alone = sampler.init(boltzmann, 20, seed)
        assert type(alone) is type(together)
        assert same([x[r] for x in together], alone)


def test_gibbs_starts_at_the_given_states() -> None:
    start = torch.ones(6, 5, dtype=torch.float64)
    state = gibbs.init(small_rbm(), 6, seed=0, start=start)
    assert torch.equal(state.z, start)
    assert state.z is not start


# Bad input -------------------------------------------------------------------------------------------------------


def broken(value: float) -> BipartiteBoltzmann:
    weight = torch.zeros(2, 3, dtype=torch.float64)
    weight[1, 2] = value
    return BipartiteBoltzmann(torch.zeros(5, dtype=torch.float64), weight, validate_args=False)


@samplers
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_parameters_raise(sampler: Sampler, value: float) -> None:
    with pytest.raises(SupportError, match=r"weight of a Boltzmann machine .* NaN or infinity"):
        sampler.init(broken(value), 10, seed=0)


def test_a_population_raises_if_parameters_become_nan() -> None:
    state = population.init(small_rbm(), 10, seed=0)
    with pytest.raises(SupportError, match="the weights of the population are not finite; every parameter must be"):
        population.step(state, broken(torch.nan), sweeps=1)


@boltzmanns
@samplers
def test_the_next_step_raises_if_parameters_become_nan(sampler: Sampler, make: Callable[..., Boltzmann]) -> None:
    """An optimizer may write NaN into a Boltzmann machine that was built with finite parameters."""
    boltzmann = make()
    state = sampler.init(boltzmann, 10, seed=0)
    boltzmann.bias[2] = torch.nan
    with pytest.raises(SupportError, match=r"bias of a Boltzmann machine .* NaN or infinity"):
        sampler.step(state, boltzmann, sweeps=1)
    unseen = boltzmann.with_parameters(boltzmann.bias, boltzmann.couplings)
    assert not unseen.validates
    if sampler.step is not population.step:  # it checks its weights
        sampler.step(state, unseen, sweeps=1)


@samplers
def test_chains_that_are_not_bits_raise(sampler: Sampler) -> None:
    boltzmann = small_rbm()
    state = sampler.init(boltzmann, 4, seed=0)
    with pytest.raises(
        SupportError, match="contain values other than 0 and 1; the units of a Boltzmann machine are bits"
    ):
        sampler.step(state._replace(z=state.z + 0.3), boltzmann, sweeps=1)


@samplers
def test_zero_chains_or_sweeps_raise(sampler: Sampler) -> None:
    boltzmann = small_rbm()
    with pytest.raises(SupportError, match=r"0 (chains|members); at least [12] (is|are) needed"):
        sampler.init(boltzmann, 0, seed=0)
    with pytest.raises(SupportError, match="0 sweeps; at least 1 is needed"):
        sampler.step(sampler.init(boltzmann, 3, seed=0), boltzmann, sweeps=0)
    with pytest.raises(SupportError, match=r"2.5 (chains|members); it must be a whole number"):
        sampler.init(boltzmann, 2.5, seed=0)
    with pytest.raises(SupportError, match=r"1.5 sweeps; it must be a whole number"):
        sampler.step(sampler.init(boltzmann, 3, seed=0), boltzmann, sweeps=1.5)


@samplers
def test_a_state_of_another_boltzmann_machine_raises(sampler: Sampler) -> None:
    state = sampler.init(small_rbm(), 4, seed=0)
    larger = BipartiteBoltzmann(torch.zeros(7, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match=r"have shape \(4, .*5\); this Boltzmann machine needs \(at least 1, .*7\)"):
        sampler.step(state, larger, sweeps=1)
    with pytest.raises(ShapeError, match=r"this Boltzmann machine needs \(2, at least 1, .*5\)"):
        sampler.step(state, small_rbm(replicas=(2,)), sweeps=1)
    with pytest.raises(
        SupportError, match=r"are torch.float64, the Boltzmann machine is torch.float32; convert one of them"
    ):
        sampler.step(state, small_rbm(torch.float32), sweeps=1)
    meta = BipartiteBoltzmann(torch.zeros(5, device="meta"), torch.zeros(2, 3, device="meta"), validate_args=False)
    with pytest.raises(DeviceError, match="are on cpu, the Boltzmann machine on meta; move one of them"):
        sampler.step(state, meta, sweeps=1)


@samplers
def test_a_missing_gpu_is_reported(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    boltzmann = small_rbm(torch.float32)
    with pytest.raises(DeviceError, match=r"implementation 'gpu' .*torch finds no GPU"):
        sampler.step(sampler.init(boltzmann, 4, seed=0), boltzmann, sweeps=1, implementation="gpu")


@samplers
def test_an_implementation_for_rbms_rejects_a_graph(sampler: Sampler) -> None:
    precise = small_graph()
    graph = GraphBoltzmann(precise.bias.float(), precise.coupling.float())
    state = sampler.init(graph, 4, seed=0)
    text = "implementation 'cpu' supports bipartite graphs only; use 'auto' or 'plain'"
    with pytest.raises(SupportError, match=text):
        sampler.step(state, graph, sweeps=1, implementation="cpu")
    with pytest.raises(UnknownNameError, match="did you mean 'plain'"):
        sampler.step(state, graph, sweeps=1, implementation="plane")
    runs = [sampler.step(state, graph, sweeps=1, implementation=name)[0] for name in ("auto", "plain")]
    assert same(*runs)


@samplers
@boltzmanns
def test_no_random_bits_are_used_twice(
    sampler: Sampler, make: Callable[..., Boltzmann], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, exchanges and sweeps at the same counter: every block of uniforms has a different key."""
    used: list[tuple[int, ...]] = []
    philox = np.random.Philox

    def record(key: Any, counter: Any) -> Any:
        used.append((*key.tolist(), *counter.tolist()))
        return philox(key=key, counter=counter)

    monkeypatch.setattr(np.random, "Philox", record)
    boltzmann = make()
    state = sampler.init(boltzmann, 10, seed=0)
    for _ in range(2):
        state, _ = sampler.step(state, boltzmann, sweeps=2)
    assert len(used) >= 1 + 2 * 2
    assert len(set(used)) == len(used)


def a_base(value: Tensor) -> Callable[[], object]:
    return lambda: tempering.init(small_rbm(), 3, seed=0, base=value)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (a_base(torch.zeros(4)), ShapeError, r"base of shape \(4,\); the biases have shape \(5,\)"),
        (a_base(torch.zeros(2, 5)), ShapeError, r"base of shape \(2, 5\)"),
        (a_base(torch.full((5,), torch.nan)), SupportError, "base contains NaN or infinity"),
        (
            lambda: gibbs.init(small_rbm(), 3, seed=0, start=torch.zeros(3, 4)),
            ShapeError,
            r"the initial chains have shape \(3, 4\); this Boltzmann machine needs \(at least 1, 5\)",
        ),
        (
            lambda: gibbs.init(small_rbm(), 10, seed=0, start=torch.zeros(3, 5, dtype=torch.float64)),
            ShapeError,
            "start has 3 chains; it must have 10",
        ),
        (
            lambda: gibbs.init(small_rbm(), 3, seed=0, start=torch.full((3, 5), 0.3, dtype=torch.float64)),
            SupportError,
            "the initial chains contain values other than 0 and 1",
        ),
        (
            lambda: population.step(
                population.init(small_rbm(), 3, seed=0),
                BipartiteBoltzmann(torch.zeros(5, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)),
                sweeps=1,
            ),
            ShapeError,
            r"the population has a bias \(5,\) and couplings \(2, 3\), this Boltzmann machine has \(5,\) and \(1, 4\)",
        ),
        (
            lambda: population.step(population.init(small_rbm(), 3, seed=0), small_rbm(), sweeps=1, smallest_ess=1.5),
            SupportError,
            "smallest_ess = 1.5; it must be a fraction of the members, between 0 and 1",
        ),
        (
            lambda: population.step(
                population.init(small_rbm(), 3, seed=0), small_rbm(), sweeps=1, max_tempering_steps=0
            ),
            SupportError,
            "0 tempering steps; at least 1 is needed",
        ),
        (lambda: population.init(small_rbm(), 1, seed=0), SupportError, "1 members; at least 2 are needed"),
    ],
)
def test_bad_input_raises_a_clear_error(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
