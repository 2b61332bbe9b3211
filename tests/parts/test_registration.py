"""Invalid parts are rejected by the registry and the engine with one line that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from parts.toys import Metropolis, ScoreFunction, Shortcut, Smudged
from torch import nn
from training.runs import bars, engine, small

from softspin.config import Config
from softspin.errors import ConfigError, ShapeError, SupportError, UnknownNameError
from softspin.methods import Method, PartSetting, Terms
from softspin.model import build
from softspin.nets import Net
from softspin.parts import LIKELIHOODS, METHODS, NETS, SAMPLERS, Registry
from softspin.samplers import Sampler
from softspin.stored_model import restore


def made(base: Any, **members: Any) -> Any:
    return type("Made", (base,), {"name": "made", **members})


@pytest.mark.parametrize(
    ("registry", "part", "message"),
    [
        (METHODS, int, "int is not a method; derive it from softspin.methods.base.Method"),
        (METHODS, Shortcut, "Shortcut is not a method; derive it from softspin.methods.base.Method"),
        (SAMPLERS, 5, "5 is not a sampler; derive it from softspin.samplers.base.Sampler"),
        (METHODS, made(Method), "the method 'made' lacks objective; see softspin.methods.base.Method"),
        (NETS, made(Net), "the net 'made' lacks forward"),
        (SAMPLERS, made(Sampler), "the sampler 'made' lacks init, step"),
        (METHODS, made(ScoreFunction, name="dvae#-power"), "the name 'dvae#-power' belongs to another method"),
        (METHODS, made(ScoreFunction, name=""), "a method needs a class attribute name"),
        (METHODS, made(ScoreFunction, name="a/b"), "a string without slashes, not 'a/b'"),
        (METHODS, made(ScoreFunction, settings={"t": 0.5}), "the method 'made': 't' is not a PartSetting"),
        (METHODS, made(ScoreFunction, settings={"version": PartSetting(int, 1)}), "'version' is not a PartSetting, or"),
        (METHODS, made(ScoreFunction, settings={"t": PartSetting(int, 0.5)}), "the default of 't' is invalid"),
        (METHODS, made(ScoreFunction, settings={"t": PartSetting(dict, {})}), "the default of 't' is invalid"),
    ],
)
def test_an_invalid_class_is_rejected(registry: Registry[Any], part: Any, message: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        registry.register(part)
    assert message in str(rejected.value)
    assert "\n" not in str(rejected.value)


def declared(monkeypatch: pytest.MonkeyPatch, **values: str) -> Registry[Any]:
    points = [EntryPoint(name.replace("_", "-"), value, "softspin.methods") for name, value in values.items()]
    monkeypatch.setattr("softspin.parts.entry_points", lambda group: points if group == "softspin.methods" else [])
    return Registry("method", "softspin.methods.base:Method", {})


def test_installed_packages_declare_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = declared(monkeypatch, toy_score="parts.toys:ScoreFunction", broken="nowhere.at.all:X")
    assert registry.names() == ["broken", "toy-score"]
    assert registry.get("toy-score") is ScoreFunction
    with pytest.raises(ConfigError, match=r"the method 'broken', declared by .* cannot be loaded: ModuleNotFound"):
        registry.get("broken")
    with pytest.raises(UnknownNameError, match=r"unknown method 'toy-scor'; did you mean 'toy-score'\?"):
        registry.get("toy-scor")


def test_a_declared_part_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    toys = {"other": "parts.toys:ScoreFunction", "net": "parts.toys:Shortcut", "gone": "parts.toys:Gone"}
    registry = declared(monkeypatch, **toys)
    with pytest.raises(ConfigError, match="has the name 'toy-score'; both names must be the same"):
        registry.get("other")
    with pytest.raises(ConfigError, match="Shortcut is not a method"):
        registry.get("net")
    with pytest.raises(ConfigError, match="cannot be loaded: AttributeError"):
        registry.get("gone")


@pytest.fixture
def register() -> Iterator[Callable[[Registry[Any], Any], None]]:
    """Registers a part for one test."""
    added: list[tuple[Registry[Any], str]] = []

    def add(registry: Registry[Any], part: Any) -> None:
        registry.register(part)
        added.append((registry, part.name))

    yield add
    for registry, name in added:
        registry.unregister(name)


def test_conflicting_settings_raise(register: Any) -> None:
    register(METHODS, made(ScoreFunction, settings={"steps": PartSetting(int, 1)}))
    with pytest.raises(ConfigError, match="the method 'made' adds the setting 'steps'"):
        small(method="made")
    register(METHODS, made(ScoreFunction, name="old", settings={"rate": PartSetting(float, 0.5)}))
    with pytest.raises(ConfigError, match="the method 'old' adds the setting 'rate'"):  # the old name of another
        small(method="old")
    register(METHODS, made(ScoreFunction, name="two", settings={"smudge": PartSetting(float, 0.5)}))
    register(LIKELIHOODS, Smudged)
    with pytest.raises(ConfigError, match="the likelihood 'toy-smudged' adds the setting 'smudge'"):
        small(method="two", likelihood="toy-smudged", importance_samples=2)


def test_a_value_error_of_a_part_is_a_config_error(register: Any) -> None:
    def reject(config: Config) -> None:
        raise ValueError("no config is good enough")

    register(METHODS, made(ScoreFunction, check_config=staticmethod(reject)))
    with pytest.raises(ConfigError, match="no config is good enough"):
        small(method="made")


def test_settings_of_the_chosen_parts_are_suggested(register: Any) -> None:
    register(METHODS, ScoreFunction)
    with pytest.raises(UnknownNameError, match=r"unknown setting 'baseline_wait'; did you mean 'baseline_weight'\?"):
        Config().with_settings(["method=toy-score", "importance_samples=2", "baseline_wait=1"])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.zeros(2), "the objective of 'made' returned Tensor; it must return Terms"),
        (Terms(torch.zeros(()), *[torch.zeros(2)] * 3), r"'loss' of 'made' has shape \(\); it must have one number"),
        (
            Terms(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.zeros(2, 4)),
            r"'kl' of 'made' has shape \(2, 4\)",
        ),
        (Terms(*[torch.zeros(2)] * 4), "'loss' of 'made' has no gradient; compute it from the outputs of the networks"),
    ],
)
def test_the_result_of_an_objective_is_checked(returned: Any, message: str, register: Any) -> None:
    register(METHODS, made(ScoreFunction, objective=lambda self, *rest: returned))
    with pytest.raises((ShapeError, SupportError), match=message):
        engine(small(method="made", importance_samples=2, seeds=(0, 1))).step()


def test_a_parameter_without_replica_dimension_raises(register: Any) -> None:
    class Flat(ScoreFunction):
        name = "flat"

        def __init__(self, *rest: Any) -> None:
            super().__init__(*rest)
            self.extra = nn.Parameter(torch.zeros(3))

    register(METHODS, Flat)
    with pytest.raises(ShapeError, match=r"'method.extra' has shape \(3,\); its first dimension must be .* 2 replicas"):
        engine(small(method="flat", importance_samples=2, seeds=(0, 1)))
    engine(small(method="flat", importance_samples=2, seeds=(0,))).step()


def test_a_net_with_a_wrong_number_of_outputs_raises(register: Any) -> None:
    register(NETS, made(Shortcut, forward=lambda self, *parts: self.linear(*parts)[..., 1:]))
    with pytest.raises(ShapeError, match="the encoder net of group 1 has 2 outputs; it needs 1 for each of 3 bits"):
        engine(small(net="made")).step()


@pytest.mark.parametrize("method", ["reinforce", "dvae#-power"])
def test_a_likelihood_with_a_wrong_shape_raises(method: str, register: Any) -> None:
    """Without the samples, (2, 14) would broadcast with the KL of (2, 2, 14) silently: R = K."""
    register(LIKELIHOODS, made(Smudged, log_prob=lambda self, x, out: Smudged.log_prob(self, x, out)[:, 0]))
    config = small(method=method, likelihood="made", importance_samples=2, seeds=(0, 1), batch_size=14)
    with pytest.raises(
        ShapeError, match=r"the likelihood 'made' has shape \(2, 14\); it must have \(2, 2, 14\), \(rep"
    ):
        engine(config).step()


@pytest.mark.parametrize("member", ["mean", "sample"])
def test_means_and_draws_of_a_likelihood_with_a_wrong_shape_raise(member: str, register: Any) -> None:
    register(LIKELIHOODS, made(Smudged, **{member: lambda self, out, generator=None: out[..., 1:]}))
    message = rf"{member} of the likelihood 'made' has shape \(1, 1, 1, 8\) .* it must have \(1, 1, 1, 9\), one value"
    with pytest.raises(ShapeError, match=message):
        engine(small(likelihood="made"))


def test_a_sampler_must_be_an_instance() -> None:
    with pytest.raises(ConfigError, match=r"the class Metropolis is not an instance of a subclass of .*Sampler"):
        engine(small(sampler="custom"), sampler=Metropolis)


def test_a_loaded_likelihood_has_its_buffers_and_an_unsaved_one_raises(register: Any) -> None:
    class SavesBuffers(Smudged):
        name = "saves"

        def __init__(self, config: Config, data: Any) -> None:
            super().__init__(config, data)
            self.average = data.mean.clone()
            self.register_buffer("count", torch.zeros(len(config.replicas), dtype=torch.int64))

    class UnsavedBuffer(Smudged):
        name = "unsaved"

        def __init__(self, config: Config, data: Any) -> None:
            super().__init__(config, data)
            self.register_buffer("mask", torch.ones(data.features), persistent=False)

    for part in (SavesBuffers, UnsavedBuffer):
        register(LIKELIHOODS, part)
    config = small(likelihood="saves")
    model = build(config, bars().spec)
    loaded = restore(config, model.state_dict(), bars().shape)
    assert torch.equal(loaded.likelihood.average, bars().pixel_mean())  # type: ignore[arg-type]
    assert loaded.state_dict()["likelihood.count"].dtype == torch.int64
    config = small(likelihood="unsaved")
    with pytest.raises(ShapeError, match=r"buffer 'likelihood\.mask' is not saved; make it persistent"):
        restore(config, build(config, bars().spec).state_dict(), bars().shape)
