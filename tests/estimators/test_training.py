"""Every estimator in training: resumed, with several replicas, compiled, captured, with batch norm."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from estimators.cases import BY_NAME, CASES, DATA, Case, images, many, small_config
from gpu import needs_gpu, with_torch_warnings
from kernels.test_gpu import INTERPRETED
from samplers.capture import NoHostData, unknown
from torch import Tensor
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.data import with_condition
from softspin.errors import ConfigError
from softspin.kernels import hidden, support
from softspin.methods import METHODS
from softspin.methods.binary import run
from softspin.methods.branches import Branch
from softspin.methods.muprop import mean_field
from softspin.methods.rebar import REBAR
from softspin.methods.reinforce import NVIL
from softspin.model import DiscreteVAE, build
from softspin.nets import BatchNorm
from softspin.numerics import open_uniform
from softspin.objectives import group_kls
from softspin.parts import SAMPLERS
from softspin.training import capture
from softspin.training.engine import Engine

estimators = pytest.mark.parametrize("case", CASES, ids=str)
LEARNED = [BY_NAME[name] for name in ("nvil", "rebar", "relax")]
COMPILABLE = [
    case if case.method in ("disarm", "gumbolt", "nvil") else pytest.param(case, marks=pytest.mark.slow)
    for case in CASES
    if METHODS.get(case.method).compilable and not METHODS.get(case.method).compiled_by_parts
]
WITH_KERNELS = [case if case.method == "rebar" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
PAPER = 8


def config_of(case: Case, samples: int = 2, **changes: Any) -> Config:
    values = {"method": case.method, "importance_samples": samples, "part_settings": dict(case.settings)}
    return small(**(values | changes))


def test_every_method_of_the_registry_has_a_case() -> None:
    others = {name for name in METHODS if not METHODS.get(name).__module__.startswith("softspin.")}
    assert {case.method for case in CASES} == {name for name in set(METHODS) - others if not name.startswith("dvae")}
    assert len(set(METHODS) - others) == len(CASES) + PAPER


@estimators
def test_a_resumed_run_is_equal_bit_for_bit(case: Case) -> None:
    config = config_of(case, seeds=(0, 3))
    whole = engine(config)
    for _ in range(3):
        whole.step()
    stored = {name: value.clone() for name, value in whole.state().items()}
    resumed = engine(config)
    resumed.load(stored)
    for made in (whole, resumed):
        for _ in range(3):
            made.step()
    ours, theirs = whole.state(), resumed.state()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    assert (whole.record.first_nonfinite == -1).all()


@estimators
def test_a_replica_does_not_depend_on_the_others(case: Case) -> None:
    one, other = (engine(config_of(case, seeds=seeds)) for seeds in ((0, 5, 1), (5, 7, 9)))
    for made in (one, other):
        for _ in range(4):
            made.step()
    shared = ("step_counter", "reported", "model.mean", "model.likelihood.base_logit")
    for name, value in one.state().items():
        if name not in shared:
            assert torch.equal(value[1], other.state()[name][0]), name


@pytest.mark.parametrize("case", LEARNED, ids=str)
def test_learned_baselines_and_temperatures_are_stored_parameters(case: Case) -> None:
    made = engine(config_of(case, samples=1))
    own = {name: value.clone() for name, value in made.state().items() if name.startswith("model.method.")}
    assert own
    for _ in range(5):
        made.step()
    for name, before in own.items():
        if not (case.method == "relax" and "hidden" in name):  # those of RELAX follow after its last layer
            assert not torch.equal(made.state()[name], before), name


@pytest.mark.parametrize("case", [case for case in CASES if case.fewest_samples > 1], ids=str)
def test_an_estimator_that_needs_several_samples_says_so(case: Case) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(method=case.method)
    text = str(caught.value)
    assert text.startswith(f"importance_samples = 1 is not possible for '{case.method}'")
    assert "use 2 or more" in text
    assert "\n" not in text


def test_settings_of_estimators_have_limits() -> None:
    for method, wrong in (
        ("nvil", "baseline_width=0"),
        ("rebar", "initial_temperature=0"),
        ("relax", "control_width=x"),
    ):
        with pytest.raises(ConfigError, match=f"{wrong.partition('=')[0]} = .* is not possible; it must be"):
            Config(method=method).with_settings([wrong])


def passed(model: DiscreteVAE, noise: Tensor, objective: Any = None) -> tuple[Tensor, list[Tensor]]:
    """Loss and gradients of one pass."""
    x = images(3).expand(model.replicas, -1, -1)
    prior = model.prior(torch.zeros(model.replicas), validate=False)
    terms = (objective or model.method.objective)(model, x, noise, prior, torch.tensor(0.7))
    parameters = [one for one in model.parameters() if one.requires_grad]
    found = torch.autograd.grad(terms.loss.sum(), parameters, allow_unused=True)
    return terms.loss, [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def noise_of(model: DiscreteVAE, samples: int, seed: int = 0) -> Tensor:
    shape = model.replicas, *model.method.noise_shape(samples, 3, model.units)
    return open_uniform(shape, generator=torch.Generator().manual_seed(seed))


@with_torch_warnings
@pytest.mark.parametrize("case", COMPILABLE, ids=str)
def test_the_objective_is_one_graph_for_the_compiler(case: Case) -> None:
    torch._dynamo.reset()
    model = build(small_config(case.method, 2, 2, seeds=(0, 1)), DATA).train()
    noise = noise_of(model, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = passed(model, noise)
    model.load_state_dict(before)  # running statistics
    found = passed(model, noise, torch.compile(model.method.objective, fullgraph=True, backend="eager"))
    torch.testing.assert_close(found[0], expected[0])
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@with_torch_warnings
@pytest.mark.parametrize("case", [BY_NAME["muprop"], pytest.param(BY_NAME["relax"], marks=pytest.mark.slow)], ids=str)
def test_an_objective_with_derivatives_is_compiled_by_parts(case: Case) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, made = (build(small_config(case.method, 2, 2, seeds=(0, 1)), DATA).train() for _ in range(2))
    made.method.compile_parts(functools.partial(torch.compile, fullgraph=True, backend="aot_eager"))
    for seed in range(2):
        noise = noise_of(plain, 2, seed)
        expected, found = passed(plain, noise), passed(made, noise)
        torch.testing.assert_close(found[0], expected[0])
        for one, other in zip(found[1], expected[1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    # The passes through all groups, and one for each group from it on: nothing is compiled again at a second call.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    for name, value in made.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name])


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1")
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize("case", WITH_KERNELS, ids=str)
def test_the_objective_with_kernels_equals_that_without(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused layers and the fused likelihood of a GPU, under Triton's interpreter."""
    model = build(small_config(case.method, 2, 2, layers=2, width=9, seeds=(0, 1)), DATA).train()
    noise = noise_of(model, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = passed(model, noise)
    statistics = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    monkeypatch.setattr(support, "DEVICES", {"cpu"})
    monkeypatch.setattr(hidden, "FEWEST_ROWS", 1)
    found = passed(model, noise)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        assert (one - other).abs().max() < 2e-4 * (1 + other.abs().max())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, statistics[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
@estimators
def test_the_objective_reads_no_values(case: Case, groups: int) -> None:
    """As a CUDA graph needs it."""
    config = config_of(case, groups=groups, bits_per_group=4, seeds=(0, 1))
    model = build(config, bars().spec).to("meta").train()
    noise = unknown(2, *model.method.noise_shape(2, 5, model.units))
    with NoHostData():
        prior = model.prior(unknown(2), validate=False)
        terms = model.method.objective(model, unknown(2, 5, 9), noise, prior, unknown())
        terms.loss.sum().backward()
    assert all(part.shape == (2,) for part in terms)


@estimators
def test_batch_norm_sees_samples_of_the_posterior_alone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pass, with samples, updates the running statistics of the decoder; control variates do not."""
    model = build(small_config(case.method, 2, 2), DATA).train()
    norm = dict(model.named_modules())["decoder.norms.0"]
    assert isinstance(norm, BatchNorm)
    means: list[Tensor] = []
    track = norm.track

    def keep(mean: Tensor, variance: Tensor) -> None:
        means.append(mean.detach())
        track(mean, variance)

    monkeypatch.setattr(norm, "track", keep)
    before = norm.mean.clone()
    passed(model, noise_of(model, 2))
    torch.testing.assert_close(norm.mean, 0.8 * before + 0.2 * means[0])


@pytest.mark.parametrize("group", [0, 1])
def test_derivatives_of_a_control_variate_are_those_of_a_sample_by_its_own_bits(group: int) -> None:
    """Through the statistics of batch norm all samples depend on each other, which would bias REBAR and RELAX."""
    model = build(small_config("rebar", 2, 2), DATA).train()
    x, noise, prior = images(3)[None], torch.rand(1, 2, 3, 4), model.prior(torch.zeros(1), validate=False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = run(model, x, noise, prior)
    model.load_state_dict(before)
    branch = Branch(model, x, prior, torch.ones(()), found, group, noise, mean_field)
    own = found.bits[group].repeat(1, 2, 1, 1).requires_grad_()
    value = branch.signal(own)
    assert value.shape == (1, 4, 3)
    (slope,) = torch.autograd.grad(value[0, 1, 2], own, retain_graph=True)
    assert (slope[0, 1, 2] != 0).all()
    slope[0, 1, 2] = 0
    assert (slope == 0).all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    nets = [*model.encoder.parameters(), *model.decoder.parameters()]
    assert torch.autograd.grad(value.sum(), nets, allow_unused=True) == (None,) * len(nets)


@estimators
def test_it_trains_with_dropout_and_a_condition(case: Case) -> None:
    config = config_of(case, decoder_dropout=0.5, input_flips=0.1, seeds=(0, 1))
    made = engine(config, with_condition(bars(), torch.arange(42) % 3))
    for _ in range(2):
        made.step()
    assert (made.record.first_nonfinite == -1).all()


@pytest.mark.parametrize("net", ["mlp", "leaky-mlp", "conv"])
def test_all_evaluations_of_a_sample_have_the_same_dropout(net: str) -> None:
    """Three variants of two samples, one after another: with the same bits, they differ by sample alone."""
    model = build(small_config("disarm", 2, 2, net=net), bars().spec).eval()
    assert model.decoder.dropout is not None
    g = torch.Generator().manual_seed(0)
    units = model.decoder.hidden_units
    model.decoder.dropout.factors = [2.0 * (torch.rand(1, 2, 3, count, generator=g) < 0.5) for count in units]
    found = model.decode(torch.ones(1, 6, 3, 4)).unflatten(1, (3, 2))
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    assert (found[:, :, 0] - found[:, :, 1]).abs().max() > 0.1
    torch.testing.assert_close(model.decode(torch.ones(1, 1, 3, 4)), found[:, 0, :1])


def test_nvil_scales_the_signal_if_asked() -> None:
    config = small_config("nvil", 1, 1, part_settings={"baseline_width": 3, "normalize_signal": True})
    scaled, plain = build(config, DATA).eval(), build(small_config("nvil", 1), DATA).eval()
    plain.load_state_dict(scaled.state_dict())
    for model in (scaled, plain):
        assert isinstance(model.method, NVIL)
        dict(model.named_buffers())["method.moments.0.variance"].fill_(16.0)
    noise = noise_of(plain, 1)
    logits = dict(plain.named_parameters())["encoder.0.linears.1.bias"]
    gradients = []
    for model in (scaled, plain):
        _, found = passed(model, noise)
        index = [name for name, _ in model.named_parameters()].index("encoder.0.linears.1.bias")
        gradients.append(found[index])
    # The KL is not scaled: its part is what both have in common.
    x = images(3)[None]
    kl: list[Tensor] = []

    def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
        kl.append(out)
        return (own < torch.sigmoid(out)).float()

    plain.encode_groups(x, noise, draw)
    total = 0.7 * group_kls(plain.prior(torch.zeros(1), validate=False), kl, kl)[0].mean()
    common = torch.autograd.grad(total, logits)[0]
    torch.testing.assert_close(gradients[0] - common, (gradients[1] - common) / 4)


def test_rebar_learns_the_scale_that_minimizes_the_variance() -> None:
    """The gradient of the scale is that of the mean square of the logit gradient, by finite differences."""
    model = build(small_config("rebar", 1), DATA).eval().double()
    method = model.method
    assert isinstance(method, REBAR)
    noise = noise_of(model, 1).double()
    x, prior = images(3).double()[None], model.prior(torch.zeros(1).double(), validate=False)

    def square(scale: float) -> Tensor:
        with torch.no_grad():
            method.scale.fill_(scale)
        out: list[Tensor] = []
        handle = model.encoder[0].register_forward_hook(lambda net, inputs, given: out.append(given))
        terms = model.method.objective(model, x, noise, prior, torch.zeros(()).double())
        handle.remove()
        return (torch.autograd.grad(terms.loss.sum(), out[0])[0] * 3).square().sum() / 3

    with torch.no_grad():
        method.scale.fill_(0.6)
    terms = model.method.objective(model, x, noise, prior, torch.zeros(()).double())
    found = torch.autograd.grad(terms.loss.sum(), method.scale)[0].item()
    assert found == pytest.approx((square(0.6 + 1e-5) - square(0.6 - 1e-5)).item() / 2e-5, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_the_slope_of_the_temperature_compares_means_of_both_halves(batch: int) -> None:
    """If the bits have no effect and q = 1/2, the mean square is that of f / 2 for each bit: it has no slope."""
    model = build(small_config("rebar", 1), DATA).eval()
    assert isinstance(model.method, REBAR)
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *model.decoder.parameters(), model.method.scale):
            parameter.zero_()
    x, prior = images(1).expand(batch, -1)[None], model.prior(torch.zeros(1), validate=False)
    noise = open_uniform((1, 2, 1, batch, 4), generator=torch.Generator().manual_seed(0))
    loss = model.method.objective(model, x, noise, prior, torch.ones(())).loss.sum()
    (slope,) = torch.autograd.grad(loss, model.method.log_temperature)
    assert abs(float(slope)) < 1e-4


def test_what_cannot_be_compiled_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "TRITON", True)
    gpu = torch.device("cuda")
    for name, compiled in {"leg": False, "rebar": True, "disarm": True}.items():
        model = build(small_config(name, 2), DATA)
        parts: list[Any] = [model.method, *model.nets, model.prior_parameters, SAMPLERS.get("pa")]
        assert capture.plan_parts("auto", parts, gpu) == (compiled, True)
        assert capture.plan_parts("off", parts, gpu) == (False, True)
        assert capture.plan_parts("auto", parts, torch.device("cpu")) == (False, False)
        on_graph = build(small_config(name, 2, graph=((0, 1), (2, 3))), DATA).prior_parameters
        assert capture.plan_parts("auto", [*parts, on_graph], gpu) == (False, False)
    with pytest.raises(ConfigError, match="compile = on is not possible with the method 'leg'; use auto"):
        Config(method="leg", compile="on")


@needs_gpu
@pytest.mark.parametrize("compile", ["auto", "off"])
@estimators
def test_captured_updates_equal_eager_ones(case: Case, compile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_gpu() -> Engine:
        config = config_of(case, bits_per_group=4, layers=2, seeds=(0, 1), chains=100, steps=1000, sweeps=3,
                           device="cuda", compile=compile)  # fmt: skip
        return Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))

    captured = on_gpu()
    for _ in range(12):
        captured.step()
    assert captured._run._graph is not None
    monkeypatch.setattr(capture, "EAGER_UPDATES", 12)
    eager = on_gpu()
    for _ in range(12):
        eager.step()
    assert eager._run._graph is None
    for (name, one), other in zip(captured.model.state_dict().items(), eager.model.state_dict().values(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), name


@needs_gpu
@pytest.mark.parametrize(
    ("case", "samples"),
    [*((case, 2) for case in CASES), *((BY_NAME[name], 150) for name in ("disarm", "muprop", "rebar", "relax"))],
    ids=str,
)
def test_the_update_on_a_gpu_equals_that_of_the_cpu(case: Case, samples: int) -> None:
    """The gradient of the compiled bound, at the same noise; with 150 samples the layers are fused."""
    config = config_of(case, samples, bits_per_group=4, layers=2, seeds=(0, 1), chains=100, device="cuda")
    made = Engine(config, build(config, bars().spec), bars(), torch.device("cuda"))
    twin = build(config, bars().spec).train()
    twin.load_state_dict({name: value.cpu() for name, value in made.model.state_dict().items()})
    generator = torch.Generator().manual_seed(1)
    shape = 2, *twin.method.noise_shape(samples, 4, twin.units)
    uniforms = torch.rand(shape, generator=generator).clamp(1e-4, 1 - 1e-4)
    rows = bars().train[:4].expand(2, 4, 9)
    kl_weight = torch.tensor(0.7)
    loss, _ = made._run.stages.bound(rows.cuda(), None, uniforms.cuda(), kl_weight.cuda())
    loss.backward()
    prior = twin.prior(made.update.log_z.cpu(), validate=False)
    expected = twin.method.objective(twin, rows.float(), uniforms, prior, kl_weight).loss.sum()
    expected.backward()
    for (name, one), other in zip(made.model.named_parameters(), twin.parameters(), strict=True):
        if other.grad is not None:
            found = torch.zeros_like(one) if one.grad is None else one.grad
            assert (found.cpu() - other.grad).abs().max() < 1e-3 * (1 + other.grad.abs().max()), name


@pytest.mark.parametrize("method", ["arm", "disarm", "leg", "rebar", "relax"])
def test_variants_of_a_sample_have_its_dropout(method: str) -> None:
    """The gradient of two samples is the mean of those of each alone, with its own uniforms and its own dropout."""
    model = many(BY_NAME[method], 2, 2, 1).double()
    dropout = model.decoder.dropout
    assert dropout is not None
    g = torch.Generator().manual_seed(7)
    x = images(3).double()[None]
    noise = torch.rand(model.method.noise_shape(2, 3, model.units), generator=g, dtype=torch.float64)[None]
    factors = 2 * (torch.rand(1, 2, 3, 4, generator=g) < 0.5).double()

    def gradient(samples: list[int]) -> dict[str, Tensor]:
        assert dropout is not None
        dropout.factors = [factors[:, samples]]
        model.zero_grad()
        uniforms = noise.index_select(noise.ndim - 3, torch.tensor(samples))
        log_z = torch.zeros(1, dtype=torch.float64)
        model.method.objective(model, x, uniforms, model.prior(log_z), torch.tensor(0.5)).loss.sum().backward()
        return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}

    both, first, second = gradient([0, 1]), gradient([0]), gradient([1])
    for name, found in both.items():
        torch.testing.assert_close(found, (first[name] + second[name]) / 2, msg=name)
    assert float((first["decoder.linears.1.weight"] - second["decoder.linears.1.weight"]).abs().max()) > 1e-3
