"""The config: defaults of the recipe, and errors for invalid values."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softspin import paper
from softspin.config import VERSION, Config, differing_setting, is_neutral, setting_info
from softspin.errors import ConfigError, SoftspinError, UnknownNameError
from softspin.likelihoods import Bernoulli
from softspin.methods import SmoothedMethod, method
from softspin.nets import MLP
from softspin.parts import LIKELIHOODS, NETS
from softspin.structures import STRUCTURES

# Values that differ from every default, one a field, so that a round trip that drops a field is seen.
OTHER: dict[str, Any] = {
    "data": "mnist",
    "condition": "labels",
    "condition_values": 5,
    "method": "dvae++-power",
    "structure": "1-linear",
    "groups": 3,
    "bits_per_group": 6,
    "layers": 0,
    "width": 17,
    "net": "other-net",
    "likelihood": "other-likelihood",
    "prior": "graph",
    "graph": ((0, 1), (0, 17), *((i, i + 1) for i in range(1, 17))),
    "init_scale": 1.0,
    "norm_decay": 0.5,
    "norm_epsilon": 1e-3,
    "beta": 12.5,
    "betas": (),
    "clamp": 1e-7,
    "importance_samples": 25,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "decoder_dropout": 0.1,
    "decoder_decay": 1e-3,
    "scale_decay": 1e-2,
    "input_flips": 0.05,
    "steps": 77,
    "batch_size": 3,
    "learning_rate": 1e-3,
    "learning_rate_schedule": ((0.5, 1.0), (1.0, 0.1)),
    "adam_beta1": 0.0,
    "adam_beta2": 0.99,
    "adam_epsilon": 1e-8,
    "adam_corrected": True,
    "ema_decay": 0.9,
    "cosine_tail": 0.4,
    "prior_epsilon": 1e-5,
    "centred": True,
    "sampler": "pcd",
    "chains": 10,
    "sweeps": 1,
    "late_importance_samples": (0.5, 30),
    "late_chains": (0.25, 20),
    "late_sampler": (0.75, "pa"),
    "seeds": (3, 1),
    "report_every": 1,
    "checkpoint_every": 2,
    "evaluate_every": 3,
    "patience": 4,
    "validation_samples": 5,
    "validation_temperatures": 6,
    "validation_chains": 7,
    "test_samples": 8,
    "more_test_samples": 9,
    "test_temperatures": 9,
    "test_chains": 11,
    "device": "cuda:1",
    "tf32": True,
    "compile": "off",
}
# Settings that the method and the sampler above do not have.
OTHER_METHOD: dict[str, Any] = {"method": "dvae#-un_exp", "epsilon": 0.1, "mean_field_steps": 3, "gradient": "dreg"}
OTHER_SAMPLER: dict[str, Any] = {"sampler": "pt", "part_settings": {"temperatures": 5}}


@pytest.fixture
def other_parts() -> Iterator[None]:
    """A second network and a second likelihood."""

    class OtherNet(MLP):
        name = "other-net"

    class OtherLikelihood(Bernoulli):
        name = "other-likelihood"

    NETS.register(OtherNet)
    LIKELIHOODS.register(OtherLikelihood)
    yield
    NETS.unregister(OtherNet.name)
    LIKELIHOODS.unregister(OtherLikelihood.name)


def test_the_defaults_are_the_recipe() -> None:
    c = Config()
    assert (c.steps, c.batch_size, c.learning_rate, c.weight_decay, c.warmup) == (1_000_000, 100, 3e-3, 1e-4, 0.3)
    assert (c.adam_beta1, c.adam_beta2, c.adam_epsilon, c.adam_corrected) == (0.9, 0.999, 1e-3, False)
    assert (c.init_scale, c.norm_decay, c.norm_epsilon, c.mean_field_steps) == (2.6, 0.8, 1e-2, 5)
    assert (c.sampler, c.chains, c.sweeps) == ("pa", 1000, 40)
    assert (c.validation_samples, c.validation_temperatures, c.validation_chains) == (100, 1000, 1024)
    assert (c.test_samples, c.test_temperatures, c.test_chains) == (4000, 10_000, 1000)
    assert (c.epsilon, c.clamp, c.importance_samples) == (0.05, 0.0, 1)
    assert c.learning_rate_schedule == ((0.02, 1 / 10), (0.6, 1), (0.75, 1 / 3), (0.95, 1 / 10), (1.0, 1 / 33))
    assert c.intervals.evaluate == 20_000
    assert c.replicas == ((0, 30.0),)


def test_the_structures() -> None:
    assert {name: (*shape, shape.units) for name, shape in STRUCTURES.items() if name != "1-linear"} == {
        "1-nonlinear": (1, 200, 2, 200, 200),
        "2-nonlinear": (2, 200, 2, 200, 400),
        "4-nonlinear": (4, 100, 2, 200, 400),
    }
    assert STRUCTURES["1-linear"][:3] == (1, 200, 0)
    assert Config(structure="4-nonlinear", bits_per_group=7, layers=0).shape == (4, 7, 0, 200)


# The recipe's table, typed again: one column per method, one row per data set and structure.
TABLE = """
             spike_exp ++exp ++power gauss_int gaussian #exp un_exp #power
mnist    1-linear     5 12 40 40 40 12 40 40
mnist    1-nonlinear  5 14 30 30 30 12 30 40
mnist    2-nonlinear  4 10 30 30 25 10 16 30
mnist    4-nonlinear  4 10 30 30 25 10 16 30
omniglot 1-linear     4 14 40 40 40 12 40 40
omniglot 1-nonlinear  4 12 40 30 25 10 16 30
omniglot 2-nonlinear  4 10 30 25 25  8 16 20
omniglot 4-nonlinear  4 10 30 25 25  8 16 20
"""


def test_beta_defaults_to_the_published_value() -> None:
    methods = ["dvae-spike_exp", "dvae++-exp", "dvae++-power", "dvae#-gauss_int"]
    methods += ["dvae#-gaussian", "dvae#-exp", "dvae#-un_exp", "dvae#-power"]
    for line in TABLE.strip().splitlines()[1:]:
        data, structure, *betas = line.split()
        for name, beta in zip(methods, betas, strict=True):
            config = Config(data=data, structure=structure, method=name)
            (replica,) = config.replicas
            assert replica.beta == config.beta == float(beta), (data, structure, name)
    assert set(methods) == set(paper.METHODS)
    own = Config(data="my/images.npy", structure="1-linear", method="dvae-spike_exp")
    assert own.replicas[0].beta == own.beta == paper.published_beta("mnist", "1-linear", "dvae-spike_exp")


def test_a_default_beta_is_resolved_again_after_a_change() -> None:
    """A beta that was given stays, also one of a stored config."""
    default = Config(data="mnist", structure="2-nonlinear")
    assert default.beta == 30.0
    assert default.replace(data="omniglot").beta == 20.0
    assert default.with_settings(["method=dvae#-exp"]).beta == 10.0
    assert default.replace(betas=(20, 40)).beta is None
    assert default.replace(betas=(20, 40)).replace(betas=()).beta == 30.0
    given = Config(data="mnist", beta=30.0)
    assert given == default
    assert given.replace(data="omniglot").beta == 30.0
    assert Config.from_dict(default.to_dict()).replace(data="omniglot").beta == 30.0
    assert given.replace(beta=None, data="omniglot").beta == 20.0


def test_replicas_are_seeds_times_betas() -> None:
    config = Config(seeds=(5, 2), betas=(20, 40))
    assert config.replicas == ((5, 20.0), (5, 40.0), (2, 20.0), (2, 40.0))
    assert Config(seeds=(5, 2), beta=7).replicas == ((5, 7.0), (2, 7.0))


def test_intervals_follow_the_steps_unless_set() -> None:
    assert Config(steps=1000).intervals == (2, 20, 20)
    assert Config(steps=3).intervals == (1, 1, 1)
    assert Config(report_every=7, checkpoint_every=8, evaluate_every=9).intervals == (7, 8, 9)


@pytest.mark.usefixtures("other_parts")
def test_every_field_survives_serialization(tmp_path: Path) -> None:
    assert {f.name for f in dataclasses.fields(Config)} == {*OTHER, *OTHER_METHOD, *OTHER_SAMPLER}
    config = Config(**OTHER)
    default = Config()
    several = [config, Config(**OTHER | OTHER_SAMPLER), Config(**{**OTHER, **OTHER_METHOD, "clamp": 0.0})]
    for one, others in zip(several, (OTHER, OTHER_SAMPLER, OTHER_METHOD), strict=True):
        assert [n for n in others if getattr(one, n) == getattr(default, n)] == (["betas"] if others is OTHER else [])
    lists = Config(betas=(20, 20), decoder_dropout=(0.0, 0.1), scale_decay=(None, 0.1), seeds=range_of(5))
    for one in (*several, default, Config(betas=(20, 30), seeds=range_of(5)), lists):
        assert one.to_dict() == {"version": VERSION, **one.settings()}
        assert Config.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False))) == one
        assert default.with_settings(f"{name}={text(name, value)}" for name, value in one.settings().items()) == one
        assert one.replace() == one
    (tmp_path / "run.toml").write_text("".join(f"{n} = {json.dumps(v)}\n" for n, v in config.to_dict().items()))
    assert Config.from_toml(tmp_path / "run.toml") == config
    assert hash(config) == hash(Config(**OTHER))
    (tmp_path / "run.toml").write_text(
        'seeds = "0-2"\nmethod = "dvae#-exp"\nbeta = 0.5\nbits_per_group = "none"\nsteps = "1e4"\n'
    )
    expected = Config(seeds=(0, 1, 2), method="dvae#-exp", beta=0.5, steps=10_000)
    assert Config.from_toml(tmp_path / "run.toml") == expected, "texts as on the command line"


def range_of(n: int) -> tuple[int, ...]:
    return tuple(range(n))


def text(name: str, value: Any) -> str:
    if isinstance(value, list):
        if name.startswith("late_"):
            return ":".join(map(str, value))
        return ",".join(":".join(map(str, one)) if isinstance(one, list) else str(one) for one in value)
    return str(value)


def test_settings_are_typed() -> None:
    config = Config(groups=2).with_settings(
        ["betas = 20, 30,40", "seeds=0-2,7", "clamp=1e-7", "groups=none", "tf32=True", "steps=1e5", "chains=1_000"]
    )
    assert config.betas == (20.0, 30.0, 40.0)
    assert config.seeds == (0, 1, 2, 7)
    assert (config.clamp, config.groups, config.tf32, config.steps, config.chains) == (1e-7, None, True, 100_000, 1000)
    assert type(config.steps) is int
    assert Config().with_settings(["data=a=b.npy"]).data == "a=b.npy"
    assert Config().with_settings([]) == Config()


def test_numpy_numbers_become_python_numbers() -> None:
    config = Config(learning_rate=1, beta=np.float32(2.5), steps=np.int64(7), seeds=[np.int32(3)], betas=[])  # type: ignore[arg-type]
    assert (config.learning_rate, config.beta, config.steps, config.seeds) == (1.0, 2.5, 7, (3,))
    assert [type(v) for v in (config.learning_rate, config.beta, config.steps, config.seeds[0])] == [
        float,
        float,
        int,
        int,
    ]


COUNT = "it must be an integer from 1 to 2147483647"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"chains": 0}, f"chains = 0 is not possible; {COUNT}"),
    ({"chains": True}, f"chains = True is not possible; {COUNT}"),
    ({"chains": 1.5}, f"chains = 1.5 is not possible; {COUNT}"),
    ({"chains": "many"}, f"chains = 'many' is not possible; {COUNT}"),
    ({"chains": None}, f"chains = None is not possible; {COUNT}"),
    ({"chains": 2**31}, f"chains = 2147483648 is not possible; {COUNT}"),
    ({"chains": 1}, "chains = 1 is not possible; population annealing (sampler = pa) needs at least 2"),
    ({"test_chains": 1}, "test_chains = 1 is not possible; it must be an integer from 2 to 2147483647"),
    ({"steps": math.inf}, f"steps = inf is not possible; {COUNT}"),
    ({"groups": -1}, f"groups = -1 is not possible; {COUNT}"),
    ({"learning_rate": math.nan}, "learning_rate = nan is not possible; it must be a finite number above 0"),
    ({"learning_rate": -1}, "learning_rate = -1 is not possible; it must be a finite number above 0"),
    ({"learning_rate": 10**400}, "learning_rate = 1000000000"),
    ({"learning_rate": "3e-3"}, "learning_rate = '3e-3' is not possible; it must be a finite number above 0"),
    ({"weight_decay": -0.1}, "weight_decay = -0.1 is not possible; it must be a finite number from 0 to 1e38"),
    ({"weight_decay": 1e308}, "weight_decay = 1e+308 is not possible; it must be a finite number from 0 to 1e38"),
    ({"warmup": 1.5}, "warmup = 1.5 is not possible; it must be a number from 0 to 1"),
    ({"norm_decay": 1}, "norm_decay = 1 is not possible; it must be a number from 0 to below 1"),
    ({"adam_beta2": 1.0}, "adam_beta2 = 1.0 is not possible; it must be a number from 0 to below 1"),
    ({"epsilon": 0}, "epsilon = 0 is not possible; it must be a number above 0 and below 1"),
    ({"clamp": 0.5}, "clamp = 0.5 is not possible; it must be 0 (exact) or small, such as 1e-7"),
    ({"beta": 0}, "beta = 0 is not possible; it must be a finite number above 0"),
    ({"beta": math.inf}, "beta = inf is not possible; it must be a finite number above 0"),
    ({"beta": 1}, "beta = 1.0 is not possible; the power smoothing of 'dvae#-power' needs more than 1"),
    ({"betas": [30, 0.5]}, "betas = [30.0, 0.5] is not possible; the power smoothing of 'dvae#-power' needs more"),
    (
        {"decoder_dropout": [0.1, 0.2], "learning_rate": [1, 2, 3]},
        "decoder_dropout = [0.1, 0.2] has 2 values, learning_rate = [1.0, 2.0, 3.0] has 3; lists go together",
    ),
    ({"learning_rate": [1, 1]}, "the variant learning_rate = 1.0 is there twice; replicas of a seed must differ"),
    ({"input_flips": [0.1, 0.6]}, "input_flips = [0.1, 0.6] is not possible; it must be a number from 0 to 0.5"),
    ({"late_chains": 4000}, "late_chains = 4000 is not possible; it must be a share of the steps and an integer"),
    ({"late_sampler": [0.5, "pd"]}, "unknown sampler 'pd'"),
    ({"late_chains": [0.5, 1]}, "chains = 1 is not possible; population annealing (sampler = pa) needs at least 2"),
    ({"betas": [30, 30]}, "betas = [30, 30] is not possible; it must be different finite numbers above 0"),
    ({"betas": 30}, "betas = 30 is not possible; it must be different finite numbers above 0, as in 20,30,40"),
    ({"beta": 30, "betas": [20]}, "beta = 30 and betas = [20.0] exclude each other"),
    ({"seeds": []}, "seeds = [] is not possible; it must be one or more different integers from 0 to 2147483647"),
    ({"seeds": [1, 1]}, "seeds = [1, 1] is not possible"),
    ({"seeds": [-1]}, "seeds = [-1] is not possible"),
    ({"seeds": "0-4"}, "seeds = '0-4' is not possible"),
    ({"seeds": [False]}, "seeds = [False] is not possible"),
    (
        {"learning_rate_schedule": []},
        "learning_rate_schedule = [] is not possible; it must be pairs (share of the steps, factor)",
    ),
    ({"learning_rate_schedule": [[0.5, 1]]}, "learning_rate_schedule = [[0.5, 1]] is not possible"),
    (
        {"learning_rate_schedule": [[0.5, 1], [0.5, 2], [1, 1]]},
        "learning_rate_schedule = [[0.5, 1], [0.5, 2], [1, 1]] is not",
    ),
    ({"learning_rate_schedule": [[0, 1], [1, 1]]}, "learning_rate_schedule = [[0, 1], [1, 1]] is not possible"),
    ({"learning_rate_schedule": [[1, -1]]}, "learning_rate_schedule = [[1, -1]] is not possible"),
    ({"learning_rate_schedule": [[1, 1, 1]]}, "learning_rate_schedule = [[1, 1, 1]] is not possible"),
    ({"learning_rate_schedule": [0.5, 1]}, "learning_rate_schedule = [0.5, 1] is not possible"),
    ({"sampler": "gibbs"}, "unknown sampler 'gibbs'; known: pa, pcd, pt"),
    ({"sampler": "pdc"}, "unknown sampler 'pdc'; did you mean 'pcd'?"),
    ({"net": "mpl"}, "unknown net 'mpl'; did you mean 'mlp'?"),
    ({"likelihood": "bernouli"}, "unknown likelihood 'bernouli'; did you mean 'bernoulli'?"),
    ({"prior": "rmb"}, "unknown prior 'rmb'; did you mean 'rbm'?"),
    ({"prior": "graph"}, "prior = graph needs a graph, such as graph=zephyr:2 or graph=0:1,1:2"),
    (
        {"prior": "rbm", "groups": 1, "bits_per_group": 2, "graph": [[0, 1]]},
        "prior = rbm and a graph exclude each other; use",
    ),
    (
        {"compile": "on", "groups": 1, "bits_per_group": 2, "graph": [[0, 1]]},
        "compile = on is not possible with the prior 'graph'",
    ),
    ({"sampler": "pt", "temperatures": 0}, "temperatures = 0 is not possible; it must be an integer from 1 to 1000"),
    ({"sampler": "pa", "temperatures": 3}, "'temperatures' is a setting of sampler = pt; choose that sampler too"),
    (
        {"sampler": "pt", "temperatures": 3, "temperature": 3},
        "unknown setting 'temperature'; did you mean 'temperatures'?",
    ),
    (
        {"version": VERSION + 1},
        f"this config has version {VERSION + 1}; this softspin reads versions up to {VERSION}; install a newer "
        "softspin",
    ),
    ({"version": 0}, "version = 0 of a config is not possible; it must be an integer from 1"),
    ({"compile": True}, "compile = True is not possible; it must be one of auto, on, off"),
    ({"tf32": 1}, "tf32 = 1 is not possible; it must be true or false"),
    ({"device": "gpu"}, "device = 'gpu' is not possible; it must be auto, cpu, cuda or cuda:N"),
    ({"device": "cuda:"}, "device = 'cuda:' is not possible"),
    ({"data": ""}, "data = '' is not possible; it must be a name or a path"),
    ({"data": 3}, "data = 3 is not possible; it must be a name or a path"),
    ({"method": 3}, "method = 3 is not possible; it must be text"),
    (
        {"clamp": 1e-7, "method": "dvae#-exp"},
        "clamp = 1e-07 is not possible for 'dvae#-exp', which has no such setting; it has mean_field_steps",
    ),
    ({"epsilon": 0.1}, "epsilon = 0.1 is not possible for 'dvae#-power', which has no such setting; it has"),
    (
        {"mean_field_steps": 3, "method": "dvae++-exp"},
        "mean_field_steps = 3 is not possible for 'dvae++-exp', which has no such setting; it has none of its kind",
    ),
    (
        {"groups": 3, "bits_per_group": 5},
        "groups x bits_per_group = 3 x 5 is odd; an RBM with two equal sides needs an even number",
    ),
    ({"method": "dvae#-pow"}, "unknown method 'dvae#-pow'; did you mean 'dvae#-power'?"),
    ({"structure": "2-nonlinaer"}, "unknown structure '2-nonlinaer'; did you mean '2-nonlinear'?"),
    ({"betta": 3}, "unknown setting 'betta'; did you mean 'beta'?"),
    ({"momentum": 3}, "unknown setting 'momentum'; "),
]


@pytest.mark.parametrize(("values", "words"), BAD, ids=[str(values)[:40] for values, _ in BAD])
def test_the_error_of_a_bad_value_names_field_value_and_limits(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SoftspinError) as error:
        Config.from_dict(values)
    message = str(error.value)
    assert message.startswith(words)
    assert "\n" not in message
    assert len(message) < 250 or "known: " in message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("beta", "setting 'beta' has no value; write beta=VALUE"),
        ("bta=3", "unknown setting 'bta'; did you mean 'beta'?"),
        ("=3", "a setting has no name; write KEY=VALUE"),
        ("beta=", "beta = '' is not possible; it must be a finite number above 0"),
        ("beta=x", "beta = 'x' is not possible"),
        ("beta=nan", "beta = nan is not possible"),
        ("steps=none", "steps = 'none' is not possible"),
        ("steps=1.5", "steps = 1.5 is not possible"),
        ("tf32=yes", "tf32 = 'yes' is not possible; it must be true or false"),
        ("seeds=", "seeds = [] is not possible"),
        (
            "seeds=4-0",
            "seeds = '4-0' is not possible; it must be an increasing range of at most 10000 integers, such as 0-4",
        ),
        ("seeds=0-999999999999", "seeds = '0-999999999999' is not possible; it must be an increasing range"),
        ("seeds=-3", "seeds = [-3] is not possible"),
        ("betas=20;30", "betas = ['20;30'] is not possible"),
        ("learning_rate_schedule=0.5", "learning_rate_schedule = [[0.5]] is not possible"),
    ],
)
def test_a_bad_setting_is_one_line(setting: str, words: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        Config().with_settings([setting])
    assert str(error.value).startswith(words)


def test_the_error_of_a_bad_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    with pytest.raises(ConfigError, match=r"^no config file .*run\.toml$"):
        Config.from_toml(path)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        Config.from_toml(tmp_path)
    for content, words in (
        (b"beta = ", r"config file .*run\.toml is not TOML: Invalid value"),
        (b"\xff\xfe", r"config file .*run\.toml is not TOML: "),
        (b"betta = 3", r"run\.toml: unknown setting 'betta'; did you mean 'beta'\?"),
        (b'seeds = "4-0"', r"run\.toml: seeds = '4-0' is not possible; it must be an increasing range"),
        (b"beta = true", r"run\.toml: beta = True is not possible"),
        (b"[beta]\nvalue = 3", r"run\.toml: beta = \{'value': 3\} is not possible"),
    ):
        path.write_bytes(content)
        with pytest.raises((ConfigError, UnknownNameError), match=words):
            Config.from_toml(path)
    path.write_text("")
    assert Config.from_toml(path) == Config()


def test_the_lower_limit_of_beta_is_that_of_the_smoothing() -> None:
    for name in paper.METHODS:
        one = method(name)
        assert issubclass(one, SmoothedMethod)
        lowest = one.smoothing.lowest_beta
        assert Config(method=name, beta=lowest + 1e-3).beta == lowest + 1e-3
        with pytest.raises(ConfigError, match="beta = "):
            Config(method=name, beta=lowest)


def test_a_config_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().beta = 3.0  # type: ignore[misc]


def test_settings_that_a_method_does_not_use_are_omitted() -> None:
    only = {"epsilon", "clamp", "mean_field_steps"}
    used = {
        "dvae-spike_exp": set(), "dvae++-exp": set(), "dvae++-power": {"clamp"}, "dvae#-gauss_int": set(),
        "dvae#-gaussian": {"mean_field_steps"}, "dvae#-exp": {"mean_field_steps"},
        "dvae#-un_exp": {"epsilon", "mean_field_steps"}, "dvae#-power": {"clamp", "mean_field_steps"},
    }  # fmt: skip
    assert set(used) == set(paper.METHODS)
    for name, expected in used.items():
        assert only & Config(method=name).settings().keys() == expected, name
    fields = {field.name for field in dataclasses.fields(Config)} - {"part_settings"}
    assert Config(method="dvae#-un_exp").settings().keys() == fields - {"clamp"}
    assert Config(sampler="pt").settings().keys() == fields - {"epsilon"} | {"temperatures"}


def test_replacing_a_part_drops_its_settings() -> None:
    tempered = Config(sampler="pt").with_settings(["temperatures=5"])
    assert (tempered.options, Config(sampler="pt").options) == ({"temperatures": 5}, {"temperatures": 16})
    assert tempered.replace(chains=7).options == {"temperatures": 5}
    assert tempered.replace(sampler="pa") == Config()
    assert Config.from_dict({"version": VERSION, "sampler": "pt", "temperatures": 5}) == tempered


def test_neutral_settings() -> None:
    """Only settings that change no result may change on resume: device, intervals, and what is also evaluated."""
    names = [field.name for field in dataclasses.fields(Config) if field.name != "part_settings"]
    for name in names:
        info = setting_info(name)
        assert info is not None, name
        assert info.help.endswith("."), name
    neutral = {name for name in names if is_neutral(name)}
    assert neutral == {
        "data",
        "condition",
        "device",
        "compile",
        "report_every",
        "checkpoint_every",
        "more_test_samples",
    }
    assert setting_info("temperatures") is None
    assert not is_neutral("temperatures")
    assert {name for name in names if (info := setting_info(name)) and info.method_only} == {
        "epsilon", "clamp", "mean_field_steps", "gradient",
    }  # fmt: skip


def test_the_first_differing_setting_of_two_configs() -> None:
    one = Config(data="mnist", structure="2-nonlinear")
    for same in ({"data": "copy.npz"}, {"device": "cpu"}, {"compile": "off"}, {"report_every": 3}, {"beta": 30.0}):
        assert differing_setting(one, one.replace(**same)) is None
    for other in ({"tf32": True}, {"steps": 7}, {"clamp": 1e-7}, {"seeds": (1,)}, {"evaluate_every": 3}):
        assert differing_setting(one, one.replace(**other)) in other
        assert differing_setting(one.replace(**other), one) in other
    assert differing_setting(one, one.replace(data="omniglot")) == "beta"
    assert differing_setting(one, one.replace(sampler="pt")) == "sampler"
    tempered = Config(sampler="pt")
    assert differing_setting(tempered, tempered.with_settings(["temperatures=5"])) == "temperatures"
    assert differing_setting(Config(method="dvae#-exp", beta=9.0), Config(beta=9.0)) == "method"
