"""The page in a browser computes what PyTorch does, and its chain samples the Boltzmann distribution."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation.models import smoothed_method
from playground.browser import IMAGES, Browser, close, needs_browser
from playground.models import CASES, GRAPH, REPLICA, given_bits, page, random_model, some_bits
from samplers.laws import chi_square, probabilities, small_rbm, states
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann, GraphBoltzmann
from softspin.smoothing import Power, ShiftedGaussian, Smoothing
from truth import CASES as SMOOTHINGS

pytestmark = needs_browser


@pytest.mark.parametrize(
    ("method", "structure", "graph"), [*((*case, None) for case in CASES), ("dvae#-power", "2-nonlinear", GRAPH)]
)
def test_the_page_computes_what_pytorch_does(
    browser: Browser, tmp_path: Path, method: str, structure: str, graph: str | None
) -> None:
    model = random_model(method, structure, graph=graph)
    net, path = model.net, tmp_path / "page.html"
    path.write_text(page(model, IMAGES, replica=REPLICA), encoding="utf-8")
    browser.open(path)
    assert browser("return softspin.images.map((one) => Array.from(one))") == IMAGES.tolist()
    z = some_bits(5, net.units, seed=1)
    found = browser(
        """const { model, encode, decode, fields, energy, effects } = softspin;
        return arguments[0].map((x, i) => {
          const z = arguments[1][i];
          const { logits, shift, bits } = encode(model, x, (_, unit) => z[unit]);
          return [logits, shift, bits, decode(model, z), fields(model.prior, z), [energy(model.prior, z)],
                  effects(model, z, [2])[0]].map((one) => Array.from(one));
        })""",
        IMAGES.tolist(),
        z.tolist(),
    )
    logits, shift, bits, pixels, fields, energy, effect = (list(part) for part in zip(*found, strict=True))
    out = given_bits(model, IMAGES, z)
    close(logits, out[..., : net.bits_per_group].flatten(1))
    assert bits == z.tolist()
    if method == "dvae#-gauss_int":
        close(shift, 0.5 * (torch.sigmoid(out[..., net.bits_per_group :]) - 0.5).flatten(1))
        u = torch.full((2, 2, 1, 5, net.units), 0.5)
        posterior = smoothed_method(net).infer(net, IMAGES.float().expand(2, -1, -1), u).posterior
        first = posterior[0].smoothing
        assert isinstance(first, ShiftedGaussian)
        close([row[: net.bits_per_group] for row in shift], first.shift[REPLICA, 0])
        width = 0.05 + (0.2 * net.method.get_parameter("width")[REPLICA]).abs()
        close(browser("return Array.from(softspin.model.smoothing.width)"), width)
    close(pixels, model.decode(z, replica=REPLICA).flatten(1))
    boltzmann, one = net.prior(), z.float().expand(2, -1, -1)
    close(fields, boltzmann.field(one)[REPLICA])
    close(energy, boltzmann.energy(one)[REPLICA, :, None])
    on, off = z.clone(), z.clone()
    on[:, 2], off[:, 2] = 1, 0
    close(effect, (model.decode(on, replica=REPLICA) - model.decode(off, replica=REPLICA)).flatten(1))
    assert browser("return softspin.largestDifference()") < 1e-5
    assert "agrees with PyTorch" in browser.find("#check").text


def test_colors_are_planes_one_below_the_other(browser: Browser, tmp_path: Path) -> None:
    """Channels last: the page has another order of the pixels than the model, in images, networks and self-test."""
    model = random_model(shape=(2, 2, 3))
    (tmp_path / "page.html").write_text(page(model, IMAGES, replica=REPLICA), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    shown = IMAGES.reshape(-1, 2, 2, 3).permute(0, 3, 1, 2).flatten(1)
    assert browser("return softspin.images.map((one) => Array.from(one))") == shown.tolist()
    assert "6 x 2 pixels, 3 channels one below the other, to 8 bits" in browser.find("#lead").text
    z = some_bits(5, model.net.units, seed=1)
    decoded = browser("return arguments[0].map((z) => Array.from(softspin.decode(softspin.model, z)))", z.tolist())
    close(decoded, model.decode(z, replica=REPLICA).permute(0, 3, 1, 2).flatten(1))
    encoded = browser(
        "return softspin.images.map((x, i) => Array.from("
        "softspin.encode(softspin.model, x, (_, unit) => arguments[0][i][unit]).logits))",
        z.tolist(),
    )
    close(encoded, given_bits(model, IMAGES, z)[..., : model.net.bits_per_group].flatten(1))
    assert browser("return softspin.largestDifference()") < 1e-5


def test_the_self_test_detects_a_difference(shown: Browser) -> None:
    """One number of the model is changed by one thousandth."""
    assert shown("softspin.model.decoder[0].bias[3] += 1e-3; return softspin.largestDifference()") > 1e-4
    assert shown("softspin.model.check.energy += 1e-2; return softspin.largestDifference()") > 5e-3


def test_numbers_as_text_have_a_minus_sign_and_no_minus_zero(shown: Browser) -> None:
    values = [[-0.04, 1], [-0.04, 2], [-12.25, 1], [3.0, 0], [-0.4, 0]]
    found = shown("return arguments[0].map(([value, digits]) => softspin.fixed(value, digits))", values)
    assert found == ["0.0", "\u22120.04", "\u221212.3", "3", "0"]
    assert "e\u2011" in shown.find("#check").text or "e+" in shown.find("#check").text, "a hyphen would break the line"


def described(smoothing: Smoothing) -> dict[str, Any]:
    about = {"family": smoothing.name, "beta": smoothing.beta.item(), "epsilon": getattr(smoothing, "epsilon", 0.0)}
    return about | {"shift": float(getattr(smoothing, "shift", 0.0)), "clamp": float(getattr(smoothing, "clamp", 0.0))}


def test_soft_bits_have_the_densities_of_every_family(shown: Browser) -> None:
    families = [make() for _, make in SMOOTHINGS] + [Power(40.0, clamp=1e-7)]
    assert set(shown("return softspin.families")) == {one.name for one in families}
    zeta = torch.tensor([0.0, 1e-9, 0.003, 0.2, 0.5, 0.77, 0.999, 1.0], dtype=torch.float64)
    for smoothing in families:
        some = zeta[1:-1] if smoothing.name == "power" else zeta  # its density is infinite at its modes
        bits = smoothing.to_soft_bits(smoothing.from_value(some))
        found = shown(
            "return arguments[1].map((zeta) => softspin.logDensities(arguments[0], zeta).map((one) => "
            "one === -Infinity ? 'never' : one).concat(softspin.mixtureDensity(arguments[0], 0.3, zeta)))",
            described(smoothing),
            some.tolist(),
        )
        numbers = [[-math.inf if one == "never" else one for one in row] for row in found]
        mixture = torch.logaddexp(math.log(0.7) + bits.log_r0, math.log(0.3) + bits.log_r1)
        close([row[0] for row in numbers], bits.log_r0)
        close([row[1] for row in numbers], bits.log_r1)
        close([math.log(row[2]) if row[2] else -math.inf for row in numbers], mixture)


CHAINS = """
const [parameters, chains, sweeps, temperature, held, start, seed] = arguments;
const machine = softspin.boltzmann(parameters);
const random = softspin.uniforms(seed);
return Array.from({ length: chains }, () => {
  const z = Uint8Array.from(start || machine.bias, () => random() < 0.5 ? 1 : 0);
  held.forEach((one, unit) => { if (one) z[unit] = start[unit]; });
  for (let i = 0; i < sweeps; i++) softspin.sweep(machine, z, { temperature, held, random });
  return z.reduce((code, bit) => 2 * code + bit, 0);
})"""
"""States as integers; unit 0 is the most significant bit."""


def plain(boltzmann: BipartiteBoltzmann) -> dict[str, Any]:
    bias, weight = boltzmann.bias.tolist(), boltzmann.weight.flatten().tolist()
    return {"left": boltzmann.left, "right": boltzmann.right, "bias": bias, "weight": weight}


def test_the_chain_samples_the_boltzmann_distribution_at_its_temperature(shown: Browser) -> None:
    """40,000 chains of 40 sweeps against the table of all states: false-alarm rate 1e-6 at either
    temperature. The same samples fail against a temperature that differs by 5%."""
    boltzmann = small_rbm()
    for temperature in (1.0, 0.6):
        z = states(5)[shown(CHAINS, plain(boltzmann), 40_000, 40, temperature, [0] * 5, None, 11)]

        def law(t: float) -> Tensor:
            return probabilities(BipartiteBoltzmann(boltzmann.bias / t, boltzmann.weight / t))

        assert chi_square(z, law(temperature)).passes
        assert not chi_square(z, law(1.05 * temperature)).passes


def test_the_chain_on_a_graph_samples_its_distribution(shown: Browser) -> None:
    """40,000 chains of 40 sweeps on a triangle with a tail, against the table of all states: false-alarm rate 1e-6.
    The same samples fail against a graph with one coupling 0.1 larger."""
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]
    bias, weight = torch.tensor([-0.4, 0.3, 0.2, -0.7, 0.5]), torch.tensor([1.2, -0.9, 0.8, 1.1, -1.3])

    def law(weight: Tensor) -> Tensor:
        coupling = torch.zeros(5, 5)
        for (i, j), value in zip(pairs, weight, strict=True):
            coupling[i, j] = coupling[j, i] = value
        return probabilities(GraphBoltzmann(bias, coupling))

    blocks = [0, 1, 2, 0, 1]
    flat = {"bias": bias.tolist(), "weight": weight.tolist(), "edges": [unit for pair in pairs for unit in pair]}
    z = states(5)[shown(CHAINS, {**flat, "blocks": blocks}, 40_000, 40, 1.0, [0] * 5, None, 13)]
    assert chi_square(z, law(weight)).passes
    assert not chi_square(z, law(weight + torch.tensor([0.1, 0, 0, 0, 0]))).passes


def test_clamped_bits_do_not_change_and_the_others_are_sampled_given_them(shown: Browser) -> None:
    """The other bits follow the conditional distribution, not the marginal one. False-alarm rate: 1e-6."""
    boltzmann = small_rbm()
    start = [0, 1, 1, 0, 0]
    held = [0, 1, 1, 0, 0]
    z = states(5)[shown(CHAINS, plain(boltzmann), 40_000, 40, 1.0, held, start, 12)]
    assert (z[:, 1:3] == 1).all()
    p = probabilities(boltzmann)
    given = torch.where((states(5)[:, 1:3] == 1).all(1), p, torch.zeros_like(p))
    free = [0, 3, 4]
    table = (given / given.sum()).reshape([2] * 5)[:, 1, 1].flatten()
    assert chi_square(z[:, free], table).passes
    assert not chi_square(z[:, free], p.reshape([2] * 5).sum((1, 2)).flatten()).passes


def test_equal_seeds_give_equal_uniforms_and_others_differ(shown: Browser) -> None:
    draw = "const u = softspin.uniforms(arguments[0]); return Array.from({ length: 20000 }, () => u())"
    one, again, other = (torch.tensor(shown(draw, seed)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    for u in (one, other):
        assert u.min() > 0
        assert u.max() < 1
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 5 / math.sqrt(20_000)
    assert abs(torch.corrcoef(torch.stack([one[1:], one[:-1]]))[0, 1]) < 5 / math.sqrt(20_000)
