"""The numbers in the figures, against quadrature, enumeration and finite differences."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation.models import data_spec
from torch import Tensor

from softspin import provenance
from softspin.config import Config
from softspin.data import load
from softspin.distributions import BipartiteBoltzmann, SmoothedBernoulli
from softspin.errors import ConfigError, FigureError, TrainingError
from softspin.experiments.figures import arrays, one_bit, training
from softspin.experiments.figures.gradients import gradient_noise
from softspin.experiments.figures.mean_field import mean_field_kl
from softspin.experiments.figures.training import Measuring, Probe
from softspin.model import build
from softspin.numerics import mixture_log_prob, open_uniform
from softspin.report.figures import compose
from softspin.smoothing import Power, SoftBits, smoothing_family
from truth import PUBLISHED, quadrature

SIGMAS = 4.9
"""Number of standard errors that a normal variable exceeds with probability 1e-6."""


@pytest.fixture(autouse=True)
def known_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc123")


# One bit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["exp", "un_exp", "power"])
def test_inverse_cdfs_invert_the_published_cdf_and_slopes_equal_finite_differences(family: str) -> None:
    beta, step = 12.0, 1e-5
    found = one_bit.inverse_cdfs({family: (beta,)}, points=401)
    rho, zeta = torch.from_numpy(found["rho"]), torch.from_numpy(found[f"{family}_zeta"][0])
    published = PUBLISHED[family][1]
    mixed = 0.5 * published(zeta, beta) + 0.5 * (1 - published(1 - zeta, beta))
    inside = (zeta > 1e-6) & (zeta < 1 - 1e-6)  # the published formulas lose precision at the ends
    torch.testing.assert_close(mixed[inside], rho[inside], rtol=0, atol=1e-9)

    def quantile(q: float) -> Tensor:
        logits = torch.full_like(rho, math.log(q / (1 - q)))
        return SmoothedBernoulli(logits, smoothing_family(family)(beta)).icdf(rho)

    difference = (quantile(0.5 + step) - quantile(0.5 - step)) / (2 * step)
    slope = torch.from_numpy(found[f"{family}_slope"][0])
    # The error is step^2 times the third derivative, which is largest around rho = 1/2.
    torch.testing.assert_close(slope, difference, rtol=2e-4, atol=1e-6)


def test_closeness_agrees_with_quadrature() -> None:
    betas: dict[str, tuple[float, ...]] = {"exp": (8, 12), "power": (10, 40)}
    found = one_bit.closeness(betas, draws=100_000)
    for family, grid in betas.items():
        for number, beta in enumerate(grid):
            smoothing = smoothing_family(family)(float(beta))
            place, log_weight = quadrature(smoothing, panels=600)
            bits = smoothing.to_soft_bits(place)
            below0, below1 = smoothing.cdf(place)
            mass = torch.exp(mixture_log_prob(torch.zeros_like(bits.zeta), bits.log_r0, bits.log_r1) + log_weight)
            assert mass.sum().item() == pytest.approx(1, abs=1e-6)
            slope = torch.where(mass > 0, (below0 - below1) * torch.exp(log_weight) / mass, 0)
            mean = (mass * slope).sum()
            for name, true in {
                "distance": (mass * torch.minimum(bits.zeta, 1 - bits.zeta)).sum(),
                "variance": (mass * (slope - mean).square()).sum(),
            }.items():
                value, error = (found[f"{family}_{part}"][number] for part in (name, f"{name}_error"))
                assert abs(value - true.item()) < SIGMAS * error, (family, beta, name)
                assert error < 0.05 * value


# The mean field ------------------------------------------------------------------------------------------


def soft_rbm(left: int, right: int, zetas: int) -> tuple[BipartiteBoltzmann, SoftBits]:
    """Two RBMs, and soft bits of uncertain posteriors for each."""
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(2, left + right, generator=generator)
    weight = torch.randn(2, left, right, generator=generator)
    logits = torch.randn(2, zetas, left + right, generator=generator)
    bits = SmoothedBernoulli(logits, Power(torch.tensor([4.0, 20.0])[:, None, None])).draw(generator=generator)
    return BipartiteBoltzmann(bias, weight), bits


def kl_by_hand(bias: Tensor, weight: Tensor, odds: Tensor, steps: int) -> float:
    """KL(m || p(z|zeta)) over all states, with m by the rule of the paper: right side first, from 1/2."""
    left = weight.shape[0]
    bias, weight = (bias + odds).double(), weight.double()
    m = torch.full_like(bias, 0.5)
    for _ in range(steps):
        m[left:] = torch.sigmoid(bias[left:] + m[:left] @ weight)
        m[:left] = torch.sigmoid(bias[:left] + weight @ m[left:])
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=len(bias))), dtype=torch.float64)
    minus_energy = states @ bias + ((states[:, :left] @ weight) * states[:, left:]).sum(-1)
    log_p = minus_energy - torch.logsumexp(minus_energy, 0)
    log_m = (states * m.log() + (1 - states) * torch.log1p(-m)).sum(-1)
    return float((log_m.exp() * (log_m - log_p)).nan_to_num(0.0).sum())


def test_kl_of_the_mean_field_equals_a_sum_over_all_states() -> None:
    boltzmann, bits = soft_rbm(4, 3, zetas=5)
    found = mean_field_kl(boltzmann, bits, [1, 2, 5], seed=0, temperatures=10, chains=10)
    assert torch.equal(found.value, found.lower)
    for place, steps in enumerate([1, 2, 5]):
        for replica, zeta in itertools.product(range(2), range(5)):
            odds = bits.log_odds[replica, zeta].clamp(-25, 25)  # beyond this, log(1 - m) is log 0
            true = kl_by_hand(boltzmann.bias[replica], boltzmann.weight[replica], odds, steps)
            assert found.value[place, replica, zeta].item() == pytest.approx(true, abs=1e-6)
    assert found.value[0].max() > 0.1


def test_annealed_kl_agrees_with_the_enumerated_one() -> None:
    boltzmann, bits = soft_rbm(6, 5, zetas=30)
    options: dict[str, Any] = {"seed": 3, "temperatures": 100, "chains": 200}
    exact = mean_field_kl(boltzmann, bits, [1, 5], **options)
    found = mean_field_kl(boltzmann, bits, [1, 5], **options, enumerate_upto=0)
    error = (found.value - found.lower) / 1.96
    # 60 RBMs, one log Z for both numbers of steps. Deterministic ones have only the error of float32.
    assert ((found.value - exact.value).abs() < SIGMAS * error + 1e-4).all()
    covered = ((found.lower <= exact.value) & (exact.value <= found.upper)).double().mean()
    assert covered > 0.85
    assert error.max() < 0.05
    assert exact.value[1].max() > 0.1


# Gradients -----------------------------------------------------------------------------------------------


def one_bit_each() -> tuple[Any, Tensor]:
    """A model of two independent bits: bit i decodes only into pixel i, no couplings, no hidden layers."""
    config = Config(
        data="bars-and-stripes-3x3", method="dvae#-exp", beta=6.0, groups=1, bits_per_group=2, layers=0, batch_size=2
    )
    model = build(config, data_spec(torch.tensor([0.5, 0.5])))
    with torch.no_grad():
        model.encoder[0].linears[0].weight.zero_()  # type: ignore[union-attr, index]
        model.encoder[0].linears[0].bias.copy_(torch.tensor([[0.4, -1.0]]))  # type: ignore[union-attr, index]
        model.decoder.linears[0].weight.copy_(torch.tensor([[[2.0, 0.0], [0.0, -3.0]]]))  # type: ignore[union-attr, index]
        model.prior_parameters.bias.copy_(torch.tensor([[0.5, -0.3]]))
    return model.eval(), torch.tensor([1.0, 0.0])


def variance_by_quadrature(
    logit: float, weight: float, bias: float, pixel: float, warmup: float
) -> tuple[float, float]:
    """Mean and variance of d bound/d logit for one such bit, from the published densities."""
    density, below = PUBLISHED["exp"]
    smoothing = smoothing_family("exp")(6.0)
    place, log_weight = quadrature(smoothing, panels=600)
    zeta = smoothing.to_soft_bits(place).zeta.clone().requires_grad_()
    l = torch.tensor(logit, dtype=torch.float64, requires_grad=True)
    r0, r1 = density(zeta, 6.0), density(1 - zeta, 6.0)
    q, p = torch.sigmoid(l), torch.sigmoid(torch.tensor(bias, dtype=torch.float64))
    log_q = torch.log((1 - q) * r0 + q * r1)
    log_p = torch.log((1 - p) * r0 + p * r1)
    out = weight * zeta
    bound = pixel * out - torch.log1p(out.exp()) + warmup * (log_p - log_q)
    (through,) = torch.autograd.grad(bound.sum(), zeta, retain_graph=True)
    # The direct part, -warmup d log q / d logit at fixed zeta.
    direct = -warmup * (r1 - r0) / log_q.exp() * q * (1 - q)
    slope = (below(zeta, 6.0) - (1 - below(1 - zeta, 6.0))) / log_q.exp() * q * (1 - q)
    g, mass = (through * slope + direct).detach(), torch.exp(log_q + log_weight).detach()
    mean = float((mass * g).sum())
    return mean, float((mass * (g - mean).square()).sum())


def test_gradient_noise_of_one_bit_agrees_with_quadrature() -> None:
    model, pixels = one_bit_each()
    images, draws, warmup = 400, 40, 0.7
    x = pixels.expand(1, images, 2)
    generator = torch.Generator().manual_seed(0)
    found = gradient_noise(
        model,
        x,
        lambda number: open_uniform((1, 2, 1, images, 2), generator=generator),
        draws,
        kl_weight=torch.tensor(warmup),
    )
    bits = [(0.4, 2.0, 0.5, 1.0), (-1.0, -3.0, -0.3, 0.0)]
    true = [variance_by_quadrature(*bit, warmup) for bit in bits]
    variance = sum(variance for _, variance in true) / 2
    between = (true[0][0] - true[1][0]) ** 2 / 4
    error = found.error.item()
    assert error < 0.03 * variance
    assert abs(found.variance.item() - variance) < SIGMAS * error
    assert abs(found.total.item() - variance - between) < SIGMAS * 2 * error
    assert found.groups[0].mean().item() == pytest.approx(found.variance.item())


# Training ------------------------------------------------------------------------------------------------

TINY = ["data=bars-and-stripes-3x3", "bits_per_group=3", "layers=1", "width=4", "batch_size=4", "chains=8", "sweeps=1"]
FEW = Measuring(points=2, zetas=3, draws=2, iterations=3, curves=2, temperatures=5, final_temperatures=5, chains=4)


def compute(folder: Path, names: list[str], **options: Any) -> tuple[str, list[str]]:
    lines: list[str] = []
    given: dict[str, Any] = {"steps": 4, "device": "cpu", "settings": TINY, "measuring": FEW, "say": lines.append}
    return training.compute(names, folder, command="softspin figure", **(given | options)), lines


def test_one_training_computes_all_figures(tmp_path: Path) -> None:
    ending, lines = compute(tmp_path, ["fig2a", "fig2b", "fig2c"])
    assert (ending, len(lines)) == ("done", 2)
    stored = [arrays.load(tmp_path, name) for name in ("fig2a", "fig2b", "fig2c")]
    assert [len(compose(one).axes) for one in stored] == [1, 2, 1]
    (a, _), (b, meta), (c, _) = stored
    assert a["kl_value"].shape == (2, 3)
    assert [a[name].item() for name in ("method", "beta", "step")] == ["dvae#-power", 30, 4]
    assert b["kl_value"].shape == (2, 8, 3)
    assert b["step"].tolist() == [2, 4]
    assert b["beta"].tolist() == [8, 10, 12, 16, 15, 20, 30, 40]
    assert b["method"].tolist() == ["dvae#-exp"] * 4 + ["dvae#-power"] * 4
    assert (b["kl_value"] >= -1e-9).all()
    assert c["noise_variance"].shape == (2, 8)
    assert (c["noise_variance"] > 0).all()
    assert (meta["steps"], meta["steps_done"]) == (4, 4)
    assert meta["marks"] == [
        "4 steps instead of 100,000", "on bars-and-stripes-3x3 instead of mnist", *TINY[1:],
    ]  # fmt: skip
    assert Config.from_dict(meta["config"]["training"][0]).method == "dvae#-exp"


def test_measurements_do_not_change_training() -> None:
    config = training._configs(["fig2b"], 10, "cpu", TINY)[1]
    data = load(config.data)
    watched, alone = (Probe(config, data, torch.device("cpu")) for _ in range(2))
    for _ in range(4):
        watched.engine.step()
        x = watched.look()
        watched.kl(x, 2, [5], 5, 4)
        watched.gradients(x, 2)
        watched.check()
        alone.engine.step()
    before, after = alone.engine.state(), watched.engine.state()
    for name in before.keys() - {"sums", "reported"}:
        assert torch.equal(before[name], after[name]), name
    assert all(parameter.grad is None for parameter in watched.twin.parameters())


def test_arrays_are_stored_when_the_time_is_up(tmp_path: Path) -> None:
    ending, _ = compute(tmp_path, ["fig2a", "fig2c"], minutes=0)
    assert ending == "out of time"
    for name in ("fig2a", "fig2c"):
        values, meta = arrays.load(tmp_path, name)
        assert meta["steps_done"] == 1
        assert "stopped after 1 of 4 steps" in meta["marks"]
    assert values["beta"].tolist() == [10, 30]


def test_time_is_reserved_for_the_final_measurement(tmp_path: Path) -> None:
    """Fig. 2a needs the final model, but is computed once at the start, so that its cost is known."""
    steps: list[int] = []
    compute(tmp_path, ["fig2a"], say=lambda _: steps.append(arrays.load(tmp_path, "fig2a").values["step"].item()))
    assert steps == [2, 4]


def test_arrays_are_stored_at_ctrl_c(tmp_path: Path) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    ending, _ = compute(tmp_path, ["fig2c"], say=say)
    assert ending == "interrupted"
    values, meta = arrays.load(tmp_path, "fig2c")
    assert values["step"].tolist() == [2, 3]
    assert meta["steps_done"] == 3


def test_arrays_of_more_steps_are_kept(tmp_path: Path) -> None:
    names = ["fig2a", "fig2b"]
    compute(tmp_path, names)
    before = {name: arrays.place(tmp_path, name).read_bytes() for name in names}
    ending, lines = compute(tmp_path, names, minutes=0)
    assert ending == "out of time"
    assert {name: arrays.place(tmp_path, name).read_bytes() for name in names} == before
    for name, line in zip(names, lines, strict=False):
        partial = tmp_path / "partial"
        assert line == f"{tmp_path / name}.npz, of 4 steps, is kept; the new one, of 1: {partial / name}.npz"
        assert arrays.load(partial, name).meta["steps_done"] == 1
    with pytest.raises(
        FigureError, match=r"fig2a\.npz is of 4 steps, more than 3; write shorter ones to another folder"
    ):
        compute(tmp_path, names, steps=3)
    seen: list[tuple[int, bool]] = []

    def look(_: str) -> None:
        seen.append((arrays.load(tmp_path, "fig2b").meta["steps"], (tmp_path / "partial" / "fig2b.npz").exists()))

    compute(tmp_path, names, steps=8, say=look)
    assert seen == [(8, False), (8, False)], "as many steps as before at its first measurement, which then replaces it"
    assert list((tmp_path / "partial").iterdir()) == []
    compute(tmp_path, names, steps=8, say=look)
    assert seen[2:] == [(8, True), (8, False)]
    arrays.place(tmp_path, "fig2b").write_text("damaged")
    compute(tmp_path, names, minutes=0, steps=8)
    assert arrays.load(tmp_path, "fig2b").meta["steps_done"] == 1


def test_nonfinite_training_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="training dvae#-exp broke at step 3: 'bound' is not finite"):
        compute(tmp_path, ["fig2c"], settings=[*TINY, "learning_rate=1e25"])


def test_settings_fixed_by_the_figure_are_rejected() -> None:
    for setting in ("betas=5,6", "importance_samples=5", "seeds=1"):
        with pytest.raises(ConfigError, match=f"'{setting.partition('=')[0]}' is fixed by the figure"):
            training._configs(["fig2b"], 10, "cpu", [setting])


# Arrays --------------------------------------------------------------------------------------------------


def test_arrays_are_read_with_their_provenance(tmp_path: Path) -> None:
    meta = arrays.metadata("fig1", "softspin figure fig1 --compute", torch.device("cpu"), {"q": 0.5})
    arrays.save(tmp_path, {"x": np.arange(3)}, meta)
    values, read = arrays.load(tmp_path, "fig1")
    assert values["x"].tolist() == [0, 1, 2]
    assert set(values) == {"x"}
    assert read == meta
    assert read["commit"] == "abc123"
    assert [path.name for path in tmp_path.iterdir()] == ["fig1.npz"]


def test_nothing_is_computed_if_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: None)
    monkeypatch.setattr(training, "Probe", None)
    with pytest.raises(FigureError, match="the commit that computes fig2c is unknown; run in a git clone"):
        compute(tmp_path, ["fig2c"])


def test_arrays_of_unknown_provenance_are_rejected(tmp_path: Path) -> None:
    whole = {"figure": "fig1", "commit": "abc", "config": {"q": 0.5}}
    for broken, message in (
        (whole | {"commit": None}, "does not record its commit"),
        ({"figure": "fig1", "commit": "abc"}, "does not record its config"),
        (whole | {"figure": "fig2a"}, "does not hold the arrays of fig1"),
        (["fig1"], "does not hold the arrays of fig1"),
    ):
        np.savez(tmp_path / "fig1.npz", x=np.zeros(2), meta=np.array(json.dumps(broken)))
        with pytest.raises(FigureError, match=message):
            arrays.load(tmp_path, "fig1")
    np.savez(tmp_path / "fig1.npz", x=np.zeros(2))
    with pytest.raises(FigureError, match="the array 'meta' is missing"):
        arrays.load(tmp_path, "fig1")
    np.savez(tmp_path / "fig1.npz", x=np.array([{}], dtype=object), meta=np.array(json.dumps(whole)))
    with pytest.raises(FigureError, match="cannot be read"):
        arrays.load(tmp_path, "fig1")
    (tmp_path / "fig1.npz").write_bytes(b"PK no archive")
    with pytest.raises(FigureError, match="cannot be read"):
        arrays.load(tmp_path, "fig1")
    with pytest.raises(FigureError, match=r"no arrays .*fig2a.npz; compute them with: softspin figure fig2a --compute"):
        arrays.load(tmp_path, "fig2a")
