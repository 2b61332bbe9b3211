"""The training engine: every method on every structure, independent replicas, batches, schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from evaluation.models import smoothed_method
from gpu import with_torch_warnings
from torch import Tensor
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.data import Dataset
from softspin.errors import ConfigError
from softspin.methods.gaussian_integral import REFRESH_EVERY, GaussianIntegral
from softspin.model import build
from softspin.nets import BatchNorm
from softspin.paper import METHODS
from softspin.structures import STRUCTURES
from softspin.training.adam import Adam
from softspin.training.engine import Engine
from softspin.training.record import TERMS
from softspin.training.schedules import Schedules

# The four structures, narrow enough for 20 steps in a fifth of a second.
NARROW = {"1-linear": 4, "1-nonlinear": 4, "2-nonlinear": 2, "4-nonlinear": 2}


def run(made: Engine, steps: int) -> Engine:
    for _ in range(steps):
        made.step()
    return made


# One and two nonlinear groups of every method are in test_bit_for_bit.py.
TRAINED = [
    *((method, "1-linear", "pcd", 1) for method in METHODS),
    *(
        (method, "4-nonlinear", "pa", 3)
        if method in ("dvae++-exp", "dvae#-power")
        else pytest.param(method, "4-nonlinear", "pa", 3, marks=pytest.mark.slow)
        for method in METHODS
    ),
    *(("dvae#-power", structure, "pt", 2) for structure in STRUCTURES),
]


@pytest.mark.parametrize(("method", "structure", "sampler", "replicas"), TRAINED)
def test_twenty_steps(method: str, structure: str, sampler: str, replicas: int) -> None:
    shape = STRUCTURES[structure]
    config = small(
        method=method, structure=structure, sampler=sampler, seeds=tuple(range(replicas)), steps=20,
        groups=None, bits_per_group=NARROW[structure], layers=None, width=3, chains=6, importance_samples=2,
    )  # fmt: skip
    assert config.shape._replace(bits_per_group=0, width=0) == shape._replace(bits_per_group=0, width=0)
    made = engine(config)
    before = made.update.adam.value.clone()
    report = run(made, 20).report()
    assert made.update.step_counter == made.steps == 20
    assert (made.record.first_nonfinite == -1).all()
    for term in TERMS:
        assert report[term].shape == (replicas,)
        assert torch.isfinite(report[term]).all(), term
    assert torch.isfinite(made.update.adam.value).all()
    assert (made.update.adam.value != before).any(1).all()
    assert (report["sampler"] > 0).all()
    if replicas > 1:
        assert report["bound"].unique().numel() == replicas


# Replicas -------------------------------------------------------------------------------------------------------------


def replica_rows(made: Engine, replica: int) -> dict[str, Tensor]:
    """The tensors of one replica, by name."""
    shared = ("step_counter", "reported", "model.mean", "model.likelihood.base_logit")
    return {name: value[replica].clone() for name, value in made.state().items() if name not in shared}


@pytest.mark.parametrize("sampler", ["pcd", "pa", "pt"])
@pytest.mark.parametrize("method", ["dvae#-power", "dvae#-gauss_int", "dvae-spike_exp"])
def test_a_replica_does_not_depend_on_the_others(method: str, sampler: str) -> None:
    """Bit for bit, with as many replicas of other seeds and betas, at another position among them."""
    changes: dict[str, Any] = {"method": method, "sampler": sampler, "importance_samples": 2, "batch_size": 5}
    one = run(engine(small(seeds=(0, 5, 1), beta=8.0, **changes)), 6)
    other = run(engine(small(seeds=(5, 7, 9), beta=8.0, **changes)), 6)
    mine, theirs = replica_rows(one, 1), replica_rows(other, 0)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("sampler", ["pcd", "pa"])
def test_a_single_replica_is_equal_up_to_rounding(sampler: str) -> None:
    several = run(engine(small(sampler=sampler, seeds=(3, 4, 8))), 4)
    for replica, seed in enumerate((3, 4, 8)):
        alone = run(engine(small(sampler=sampler, seeds=(seed,))), 4)
        mine, theirs = replica_rows(alone, 0), replica_rows(several, replica)
        for name in (
            "adam.first",
            "model.prior_parameters.bias",
            "model.decoder.linears.1.weight",
            "model.encoder.1.norms.0.mean",
        ):
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-4, atol=1e-6)
        assert torch.equal(mine["sampler.z"], theirs["sampler.z"])


def test_replicas_of_one_seed_differ_only_in_beta() -> None:
    made = engine(small(betas=(5.0, 20.0), seeds=(0, 1)))
    assert smoothed_method(made.model).beta.tolist() == [5.0, 20.0, 5.0, 20.0]
    assert torch.equal(made.update.adam.value[0], made.update.adam.value[1])
    assert not torch.equal(made.update.adam.value[0], made.update.adam.value[2])
    run(made, 3)
    assert torch.equal(made.update.batches.order[0], made.update.batches.order[1])
    assert not torch.equal(made.update.adam.value[0], made.update.adam.value[1])


# Batches --------------------------------------------------------------------------------------------------------------


def numbered(count: int, binarization: str = "static") -> Dataset:
    """Images that hold their index in binary."""
    rows = (torch.arange(count)[:, None] >> torch.arange(8)) & 1
    train = rows.to(torch.uint8) if binarization == "static" else rows.to(torch.float32)
    held = rows[:4].to(torch.uint8)
    return Dataset("numbered", train, held, held, (8,), binarization, "a test")  # type: ignore[arg-type]


def seen(made: Engine, steps: int, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The images of the next steps, `(steps, R, batch, pixels)`."""
    batches: list[Tensor] = []
    objective = made.model.method.objective

    def watched(model: Any, x: Tensor, *rest: Any) -> Any:
        batches.append(x.clone())
        return objective(model, x, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(made.model.method, "objective", watched)
        run(made, steps)
    return torch.stack(batches)


def numbers(x: Tensor) -> Tensor:
    return (x * 2 ** torch.arange(8)).sum(-1).int()


@pytest.mark.parametrize(("count", "batch"), [(12, 4), (14, 4), (5, 8)])
def test_an_epoch_visits_each_image_once(count: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(small(batch_size=batch, seeds=(0, 1), steps=100), numbered(count))
    steps = max(count // batch, 1)
    orders = []
    for _ in range(3):
        visited = numbers(seen(made, steps, monkeypatch)).transpose(0, 1).reshape(2, -1)
        for row in visited:
            assert row.unique().numel() == row.numel() == min(steps * batch, count)
            orders.append(tuple(row.tolist()))
        if count % batch == 0 or batch > count:
            assert (visited.sort(-1).values == torch.arange(count)).all()
    assert len(set(orders)) == 6, "every epoch and replica has a different order"


def test_images_left_out_of_one_epoch_are_used_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(small(batch_size=4, steps=100), numbered(14))
    assert numbers(seen(made, 30, monkeypatch)).unique().numel() == 14


def test_grey_images_are_binarized_again_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pixel of grey level 1/4 is 1 in a quarter of the draws; levels 0 and 1 are deterministic."""
    grey = torch.tensor([[0.0, 1.0, 0.25, 0.5]]).repeat(50, 1)
    held = torch.zeros(2, 4, dtype=torch.uint8)
    data = Dataset("grey", grey, held, held, (4,), "per-batch", "a test")
    made = engine(small(batch_size=50, seeds=(0, 1), steps=100), data)
    x = seen(made, 40, monkeypatch)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert not x[..., 0].any()
    assert x[..., 1].all()
    for pixel, level in ((2, 0.25), (3, 0.5)):
        # Five standard errors of 2,000 draws.
        assert (x[..., pixel].mean((0, 2)) - level).abs().max() < 5 * (level * (1 - level) / 2000) ** 0.5
    assert not torch.equal(x[0], x[1])
    assert not torch.equal(x[:, 0], x[:, 1])


def test_posterior_draws_are_new_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Tensor] = []
    made = engine(small(seeds=(0, 1), importance_samples=3))
    objective = made.model.method.objective

    def watched(model: Any, x: Tensor, uniforms: Tensor, *rest: Any) -> Any:
        drawn.append(uniforms)
        return objective(model, x, uniforms, *rest)

    monkeypatch.setattr(made.model.method, "objective", watched)
    run(made, 3)
    assert drawn[0].shape == (2, 2, 3, 4, 6)
    everything = torch.stack(drawn)
    assert everything.unique().numel() > 0.999 * everything.numel()


# Schedules and Adam ---------------------------------------------------------------------------------------------------


def test_the_learning_rate_and_warm_up_of_the_recipe() -> None:
    made = Schedules(Config(steps=1_000_000), torch.device("cpu"))

    def rate(step: int) -> float:
        return made.learning_rate(torch.tensor(step)).item()

    pieces = {0: 0.1, 19_999: 0.1, 20_000: 1, 599_999: 1, 600_000: 1 / 3, 749_999: 1 / 3, 750_000: 0.1}
    pieces |= {949_999: 0.1, 950_000: 1 / 33, 999_999: 1 / 33}
    for step, factor in pieces.items():
        assert rate(step) == pytest.approx(3e-3 * factor, rel=1e-6), step
    for step, weight in {0: 0, 30_000: 0.1, 150_000: 0.5, 300_000: 1, 300_001: 1, 999_999: 1}.items():
        assert made.warmup(torch.tensor(step)).item() == pytest.approx(weight, abs=1e-7), step


def test_without_warm_up_the_kl_has_full_weight_from_the_first_step() -> None:
    made = Schedules(Config(warmup=0.0, steps=10), torch.device("cpu"))
    assert made.warmup(torch.tensor(0)) == made.warmup(torch.tensor(9)) == 1


def quadratic(parameter: Tensor, target: Tensor) -> Tensor:
    return (parameter - target).pow(4).sum() + parameter.sin().sum()


def test_adam_with_correction_equals_torch() -> None:
    """Over 50 steps with a changing learning rate and weight decay, which is a loss term in torch too."""
    g = torch.Generator().manual_seed(0)
    start = torch.randn(3, 4, 2, generator=g)
    mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    target = torch.randn(3, 4, 2, generator=g)
    adam = Adam([(mine, 0.1)], 3, epsilon=1e-3, corrected=True)
    reference = torch.optim.Adam([theirs], eps=1e-3, weight_decay=0.1)
    for step in range(1, 51):
        rate = 0.1 if step < 25 else 0.01
        quadratic(mine, target).backward()
        adam.step(adam.gradients()[0].reshape(3, -1), torch.tensor(rate), torch.tensor(step))
        reference.zero_grad()
        quadratic(theirs, target).backward()
        reference.param_groups[0]["lr"] = rate
        reference.step()
        torch.testing.assert_close(mine.data, theirs.data, rtol=1e-5, atol=1e-6)
    assert mine.grad is None


def test_adam_of_the_recipe_adds_epsilon_to_the_uncorrected_root() -> None:
    """As in TensorFlow: rate_t = rate sqrt(1 - b2^t) / (1 - b1^t); theta -= rate_t m / (sqrt(v) + epsilon)."""
    g = torch.Generator().manual_seed(0)
    mine = torch.nn.Parameter(torch.randn(2, 3, generator=g))
    theta = mine.detach().double().clone()
    target = torch.randn(2, 3, generator=g)
    adam = Adam([(mine, 0.0)], 2)
    m, v = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    for step in range(1, 31):
        quadratic(mine, target).backward()
        gradient = adam.gradients()[0]
        m = 0.9 * m + 0.1 * gradient.double()
        v = 0.999 * v + 0.001 * gradient.double() ** 2
        rate = 3e-2 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        theta = theta - rate * m / (v.sqrt() + 1e-3)
        adam.step(gradient, torch.tensor(3e-2), torch.tensor(step))
        torch.testing.assert_close(mine.data.double(), theta, rtol=1e-5, atol=1e-6)


def test_the_two_variants_of_adam_differ_in_early_steps() -> None:
    moved = []
    for corrected in (False, True):
        parameter = torch.nn.Parameter(torch.zeros(1, 1))
        adam = Adam([(parameter, 0.0)], corrected=corrected)
        adam.step(torch.full((1, 1), 0.01), torch.tensor(1.0), torch.tensor(1))
        moved.append(-parameter.item())
    # 0.01 / (0.01 + 1e-3) and 0.01 / (0.01 + 1e-3 / sqrt(0.001))
    assert moved == pytest.approx([0.01 / (0.01 + 1e-3 / 0.001**0.5), 0.01 / 0.011], rel=1e-4)


# Reports and state ----------------------------------------------------------------------------------------------------


def test_a_report_has_the_means_since_the_last_one() -> None:
    one, other = engine(small(seeds=(0, 1))), engine(small(seeds=(0, 1)))
    each = [run(one, 1).report() for _ in range(5)]
    both = run(other, 2).report(), run(other, 3).report()
    for term in TERMS:
        values = torch.stack([report[term] for report in each])
        torch.testing.assert_close(both[0][term], values[:2].mean(0))
        torch.testing.assert_close(both[1][term], values[2:].mean(0))


@pytest.mark.parametrize(
    ("name", "term"), [("decoder.linears.1.bias", "reconstruction"), ("encoder.0.linears.1.bias", "kl")]
)
def test_the_first_nonfinite_step_of_a_term_is_recorded(name: str, term: str) -> None:
    made = run(engine(small(seeds=(0, 1))), 3)
    with torch.no_grad():
        made.model.get_parameter(name)[1, 0] = torch.nan
    made.step()
    broken = made.record.first_nonfinite
    assert (broken[0] == -1).all()
    assert broken[1, TERMS.index(term)] == broken[1, TERMS.index("bound")] == 3
    assert broken[1, TERMS.index("sampler")] == -1


def test_the_gradient_norm_is_that_of_the_loss_without_decay() -> None:
    made = engine(small(seeds=(0, 1), adam_beta1=0.0, weight_decay=0.0))
    made.step()
    torch.testing.assert_close(made.report()["gradient"].float(), made.update.adam.first.norm(dim=-1))


def test_log_z_is_tracked_by_annealing_and_can_be_set() -> None:
    """The test changes the couplings, which moves log Z by several nats in 40 steps."""
    made = engine(small(sampler="pa", chains=500, sweeps=2, seeds=(0, 1)))
    for _ in range(40):
        with torch.no_grad():
            made.model.prior_parameters.weight.add_(0.05)
        made.step()
    exact = made.model.prior().exact_log_z().detach().double()
    torch.testing.assert_close(made.update.log_z.double(), exact, rtol=0, atol=0.5)
    assert (exact - made.model.units * 0.6931471805599453).min() > 3
    made.set_log_z(exact + 3)
    assert torch.equal(made.update.log_z, (exact + 3).float())
    made.step()
    torch.testing.assert_close(made.update.log_z.double(), exact + 3, rtol=0, atol=0.5)


@pytest.mark.parametrize(("method", "samples"), [("dvae#-power", 3), ("dvae++-exp", 1)])
@pytest.mark.parametrize(("set_at", "reported"), [(None, None), (2015, None), (None, 2020)])
def test_a_late_log_z_corrects_the_recorded_means(
    set_at: int | None, reported: int | None, method: str, samples: int
) -> None:
    """The test changes the biases, which moves log Z almost linearly; a twin engine gets the exact log Z at every step.
    Half way through the warm-up, the bound has about half of the error of the KL. Log Z may be set once between, or a
    report may be made without it."""
    truths: list[dict[str, Tensor]] = []
    late, twin = (
        engine(
            small(
                method=method,
                importance_samples=samples,
                seeds=(0, 1),
                sampler="pcd",
                steps=4000,
                warmup=1.0,
                learning_rate=1e-12,
            )
        )
        for _ in range(2)
    )
    for made in (late, twin):
        made.update.step_counter.fill_(2000)
        made.model.prior_parameters.bias.data.fill_(3.0)
        made.steps = made.record.reported = 2000
    for made in (late, twin):
        for _ in range(40):
            with torch.no_grad():
                made.model.prior_parameters.bias.add_(torch.tensor([0.01, 0.02])[:, None])
            if made is twin or made.steps == 2000:
                made.set_log_z(made.model.prior().exact_log_z().detach())
            made.step()
            if made is twin:
                truths.append(made.report())
            elif made.steps == set_at:
                made.correct_log_z(made.model.prior().exact_log_z().detach(), since=2000)
            elif made.steps == reported:
                made.report()
    exact = late.model.prior().exact_log_z().detach()
    assert (exact - late.update.log_z).min() > 0.4
    late.correct_log_z(exact, since=set_at or 2000)
    assert torch.equal(late.update.log_z, exact)
    right = late.report()
    for term in TERMS:
        truth = torch.stack([one[term] for one in truths[(reported or 2000) - 2000 :]]).mean(0)
        torch.testing.assert_close(right[term], truth, rtol=0, atol=0.04)


def test_the_beta_of_the_gaussian_integral_stays_above_its_bound() -> None:
    made = engine(small(method="dvae#-gauss_int", beta=3.0, steps=1000))
    with torch.no_grad():
        made.model.prior_parameters.weight.copy_(torch.eye(3) * -4)
    made.step()
    method = made.model.method
    assert isinstance(method, GaussianIntegral)
    assert method.prior_beta.item() == pytest.approx(9.0), "5 + 4"
    assert method.beta.item() == 3.0
    with torch.no_grad():
        made.model.prior_parameters.weight.copy_(torch.eye(3) * -6)
    run(made, REFRESH_EVERY - 1)
    assert method.prior_beta.item() == pytest.approx(9.0)
    largest = torch.linalg.matrix_norm(made.model.prior_parameters.weight.detach(), ord=2).item()
    made.step()
    assert method.prior_beta.item() == pytest.approx(5 + largest, rel=1e-5)


def test_batch_norm_moves_in_training_and_not_in_reports() -> None:
    made = engine(small())
    norms = [module for module in made.model.modules() if isinstance(module, BatchNorm)]
    assert len(norms) == 3
    before = [norm.mean.clone() for norm in norms]
    made.step()
    after = [norm.mean.clone() for norm in norms]
    assert all((a != b).any() for a, b in zip(after, before, strict=True))
    made.report()
    made.state()
    assert all(torch.equal(norm.mean, a) for norm, a in zip(norms, after, strict=True))


def test_the_engine_does_not_use_global_random_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    run(engine(small()), 2)
    assert torch.equal(torch.rand(3), expected)


def test_an_object_that_is_not_a_sampler_is_rejected() -> None:
    config, data = small(sampler="custom"), bars()
    text = "sampler = a int is not an instance of a subclass of softspin.samplers.Sampler"
    with pytest.raises(ConfigError, match=text):
        Engine(config, build(config, data.spec), data, torch.device("cpu"), 3)  # type: ignore[arg-type]


def test_the_batch_size_is_at_most_the_number_of_images() -> None:
    assert engine(small(batch_size=100)).update.batch_size == len(bars().train)


@with_torch_warnings
@pytest.mark.parametrize(  # one of each kind of prior
    "method",
    [
        pytest.param("dvae-spike_exp", marks=pytest.mark.slow),
        pytest.param("dvae#-gauss_int", marks=pytest.mark.slow),
        "dvae#-power",
    ],
)
def test_the_compiled_stages_are_single_graphs_and_equal_the_functions(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as for a GPU, but run by eager torch: real compilation takes minutes on a CPU.

    What a trace would miss (a branch on a value, a hidden change of state) is a graph break or another number.
    """
    compile_, compiled = torch.compile, list[str]()

    def traced_whole(part: Any, **_: Any) -> Any:
        compiled.append(part.__name__)
        return compile_(part, backend="eager", fullgraph=True)

    monkeypatch.setattr(torch, "compile", traced_whole)
    changes: dict[str, Any] = {
        "sampler": "pcd",
        "importance_samples": 2,
        "seeds": (0, 1),
        "groups": 1,
        "bits_per_group": 6,
        "method": method,
    }
    plain, traced = (run(engine(small(compile=how, **changes)), 4) for how in ("off", "on"))
    # A function of the sampler is compiled once in a process, so it may already be.
    assert [name for name in compiled if name != "flip_rate"] == ["moments", "next_batch", "bound", "descend"]
    for (name, one), other in zip(plain.state().items(), traced.state().values(), strict=True):
        assert torch.equal(one, other), name
