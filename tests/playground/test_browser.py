"""The page in a browser: its arithmetic is PyTorch's, its chain has the right law, hands and keys reach all of it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playground.models import CASES, REPLICA, given_bits, random_model, some_bits
from samplers.laws import chi_square, probabilities, small_rbm, states
from torch import Tensor

from softspin.distributions import BipartiteBoltzmann
from softspin.playground.page import page
from softspin.smoothing import Power, ShiftedGaussian, Smoothing
from truth import CASES as SMOOTHINGS

DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(DRIVER is None, reason="no chromedriver: install chromium and chromium-driver")
IMAGES = some_bits(5, 12, seed=7)


class Browser:
    """One Chromium, a page at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, width: int = 1280) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(path.as_uri())

    def __call__(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def wait(self, script: str) -> None:
        """Until it is so; views are told at the next frame."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 10, poll_frequency=0.02).until(lambda _: self(f"return {script}"))

    def picture(self, name: str = "picture") -> str:
        """What is on a canvas, once all views have been told."""
        wait = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        self.driver.execute_async_script(wait)
        return str(self(f"return document.getElementById('{name}').toDataURL()"))

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    if chromium := shutil.which("chromium"):
        options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def some_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "some page.html"
    path.write_text(page(random_model(), IMAGES, replica=REPLICA), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Browser, some_page: Path) -> Browser:
    browser.open(some_page)
    return browser


def close(found: Any, expected: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected.detach().double(), rtol=0, atol=1e-4)


# Arithmetic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "structure"), CASES)
def test_the_page_computes_what_pytorch_does(browser: Browser, tmp_path: Path, method: str, structure: str) -> None:
    model = random_model(method, structure)
    net, path = model.net, tmp_path / "page.html"
    path.write_text(page(model, IMAGES, replica=REPLICA), encoding="utf-8")
    browser.open(path)
    assert browser("return softspin.model.images.map((one) => Array.from(one))") == IMAGES.tolist()
    z = some_bits(5, net.units, seed=1)
    found = browser(
        """const { model, encode, decode, fields, energy, effects } = softspin;
        return arguments[0].map((x, i) => {
          const z = arguments[1][i];
          const { logits, shift, bits } = encode(model, x, (_, unit) => z[unit]);
          return [logits, shift, bits, decode(model, z), fields(model.rbm, z), [energy(model.rbm, z)],
                  effects(model, z, [2])[0]].map((one) => Array.from(one));
        })""",
        IMAGES.tolist(),
        z.tolist(),
    )
    logits, shift, bits, pixels, fields, energy, effect = (list(part) for part in zip(*found, strict=True))
    out = given_bits(model, IMAGES, z)
    close(logits, out[..., : net.bits].flatten(1))
    assert bits == z.tolist()
    if method == "dvae#-gauss_int":
        close(shift, 0.5 * (torch.sigmoid(out[..., net.bits :]) - 0.5).flatten(1))
        u = torch.full((2, 2, 1, 5, net.units), 0.5)
        posterior = net.infer(IMAGES.float().expand(2, -1, -1), u).posterior
        first = posterior[0].smoothing
        assert isinstance(first, ShiftedGaussian)
        close([row[: net.bits] for row in shift], first.shift[REPLICA, 0])
        close(browser("return Array.from(softspin.model.smoothing.width)"), 0.05 + (0.2 * net.width[REPLICA]).abs())  # type: ignore[index]
    close(pixels, model.decode(z, replica=REPLICA))
    machine = BipartiteBoltzmann(net.rbm.bias[REPLICA], net.rbm.weight[REPLICA])
    close(fields, machine.field(z.float()))
    close(energy, machine.energy(z.float())[:, None])
    on, off = z.clone(), z.clone()
    on[:, 2], off[:, 2] = 1, 0
    close(effect, model.decode(on, replica=REPLICA) - model.decode(off, replica=REPLICA))
    assert browser("return softspin.largestDifference()") < 1e-5
    assert "agrees with PyTorch" in browser.find("#check").text


def test_the_page_says_so_where_it_does_not_agree(shown: Browser) -> None:
    """Its test of itself, with one number of the model changed by one thousandth."""
    assert shown("softspin.model.decoder[0].bias[3] += 1e-3; return softspin.largestDifference()") > 1e-4
    assert shown("softspin.model.check.energy += 1e-2; return softspin.largestDifference()") > 5e-3


def described(smoothing: Smoothing) -> dict[str, Any]:
    about = {"family": smoothing.name, "beta": smoothing.beta.item(), "epsilon": getattr(smoothing, "epsilon", 0.0)}
    return about | {"shift": float(getattr(smoothing, "shift", 0.0)), "clamp": float(getattr(smoothing, "clamp", 0.0))}


def test_soft_bits_have_the_densities_of_every_family(shown: Browser) -> None:
    families = [make() for _, make in SMOOTHINGS] + [Power(40.0, clamp=1e-7)]
    assert set(shown("return softspin.families")) == {one.name for one in families}
    zeta = torch.tensor([0.0, 1e-9, 0.003, 0.2, 0.5, 0.77, 0.999, 1.0], dtype=torch.float64)
    for smoothing in families:
        some = zeta[1:-1] if smoothing.name == "power" else zeta  # whose density is infinite at its modes
        bits = smoothing.soften(smoothing.locate(some))
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


# The chain ---------------------------------------------------------------------------------------------------

CHAINS = """
const [rbm, chains, sweeps, temperature, held, start, seed] = arguments;
const random = softspin.uniforms(seed);
return Array.from({ length: chains }, () => {
  const z = Uint8Array.from(start || rbm.bias, () => random() < 0.5 ? 1 : 0);
  held.forEach((one, unit) => { if (one) z[unit] = start[unit]; });
  for (let i = 0; i < sweeps; i++) softspin.sweep(rbm, z, { temperature, held, random });
  return Array.from(z);
})"""


def plain(machine: BipartiteBoltzmann) -> dict[str, Any]:
    bias, weight = machine.bias.tolist(), machine.weight.flatten().tolist()
    return {"left": machine.left, "right": machine.right, "bias": bias, "weight": weight}


def test_the_chain_has_the_law_of_the_machine_at_its_temperature(shown: Browser) -> None:
    """40,000 chains of 40 sweeps against the table of all states: a false alarm of one in a million, at either
    temperature. The same draws do not pass as those of a temperature that is 5% off."""
    machine = small_rbm()
    for temperature in (1.0, 0.6):
        z = torch.tensor(shown(CHAINS, plain(machine), 40_000, 40, temperature, [0] * 5, None, 11))

        def law(t: float) -> Tensor:
            return probabilities(BipartiteBoltzmann(machine.bias / t, machine.weight / t))

        assert chi_square(z, law(temperature)).passes
        assert not chi_square(z, law(1.05 * temperature)).passes


def test_bits_that_are_held_stay_and_the_others_follow_them(shown: Browser) -> None:
    """The law of the rest is the machine's, given the held bits; and not the law without them. False alarm: 1e-6."""
    machine = small_rbm()
    start = [0, 1, 1, 0, 0]
    held = [0, 1, 1, 0, 0]
    z = torch.tensor(shown(CHAINS, plain(machine), 40_000, 40, 1.0, held, start, 12))
    assert (z[:, 1:3] == 1).all()
    p = probabilities(machine)
    given = torch.where((states(5)[:, 1:3] == 1).all(1), p, torch.zeros_like(p))
    free = [0, 3, 4]
    table = (given / given.sum()).reshape([2] * 5)[:, 1, 1].flatten()
    assert chi_square(z[:, free], table).passes
    assert not chi_square(z[:, free], p.reshape([2] * 5).sum((1, 2)).flatten()).passes


def test_a_seed_gives_the_same_uniforms_again_and_another_seed_others(shown: Browser) -> None:
    draw = "const u = softspin.uniforms(arguments[0]); return Array.from({ length: 20000 }, () => u())"
    one, again, other = (torch.tensor(shown(draw, seed)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    for u in (one, other):
        assert u.min() > 0
        assert u.max() < 1
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 5 / math.sqrt(20_000)
    assert abs(torch.corrcoef(torch.stack([one[1:], one[:-1]]))[0, 1]) < 5 / math.sqrt(20_000)


# Hands and keys ----------------------------------------------------------------------------------------------

BITS = "Array.from(document.querySelectorAll('.bit')).map((one) => Number(one.getAttribute('aria-pressed') === 'true'))"


def most_likely(x: Tensor) -> list[int]:
    """The bits of an image, group by group, by PyTorch."""
    model = random_model()
    z = torch.zeros(1, model.net.units)
    for group in range(len(model.net.encoder)):
        part = slice(group * model.net.bits, (group + 1) * model.net.bits)
        z[:, part] = (given_bits(model, x[None], z)[:, group] > 0).float()
    return [int(one) for one in z[0]]


def test_a_test_image_shows_its_bits_and_its_picture(shown: Browser) -> None:
    for index in (3, 0):
        shown.find(f".thumb[aria-label='Test image {index + 1}']").click()
        expected = most_likely(IMAGES[index])
        shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(expected, separators=(',', ':'))}'")
        picture = random_model().decode(torch.tensor([expected]), replica=REPLICA)
        close([shown("return Array.from(softspin.state.pixels)")], picture)
        assert shown("return Array.from(softspin.state.image)") == IMAGES[index].tolist()


def test_keys_flip_a_bit_and_the_picture_changes(shown: Browser) -> None:
    before, bits = shown.picture(), shown(f"return {BITS}")
    small, dream = shown.picture("small-picture"), shown.picture("dream")
    shown("document.querySelector('#left .bit').focus()")
    shown.keys("\ue014", " ")  # the arrow to the right
    shown.wait("document.activeElement.dataset.unit === '1'")
    flipped = [bit ^ (unit == 1) for unit, bit in enumerate(bits)]
    shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(flipped, separators=(',', ':'))}'")
    assert shown.picture() != before
    assert shown.picture("small-picture") != small
    assert shown.picture("dream") != dream
    assert "L1 is" in shown.find("#bit-words").text
    shown.keys(" ")
    shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(bits, separators=(',', ':'))}'")
    assert shown.picture() == before


def test_the_tab_key_reaches_everything(shown: Browser) -> None:
    """From the top of the page; a group of bits or of images is one stop."""
    seen = set()
    for _ in range(70):
        shown.keys("\ue004")
        seen.add(shown("return document.activeElement.id || document.activeElement.parentElement.id"))
    wanted = (
        "strip canvas pen clear eraser likely drawn flip hold flip-left hold-left left flip-right hold-right right run"
    )
    wanted += " step random temperature pace order heat beta chance family own"
    assert set(wanted.split()) <= seen
    outline = shown(
        "document.querySelector('#run').focus({ focusVisible: true }); "
        "return getComputedStyle(document.querySelector('#run')).outlineWidth"
    )
    assert outline == "3px"


def test_a_side_is_flipped_and_held(shown: Browser) -> None:
    bits = shown(f"return {BITS}")
    shown.find("#flip-right").click()
    flipped = [bit ^ (unit >= 4) for unit, bit in enumerate(bits)]
    shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(flipped, separators=(',', ':'))}'")
    shown.find("#hold-right").click()
    shown.wait("document.querySelectorAll('.bit.held').length === 4")
    shown.find("input[value=hold]").click()
    shown.find(".bit[data-unit='2']").click()
    shown.wait("document.querySelectorAll('.bit.held').length === 5")
    for _ in range(10):
        shown.find("#step").click()
    shown.wait("softspin.state.steps === 10")
    after = shown("return Array.from(softspin.state.bits)")
    assert after[2] == flipped[2]
    assert after[4:] == flipped[4:]
    assert len(shown("return document.querySelectorAll('#film .thumb')")) == 10
    shown.find("#release").click()
    shown.wait("document.querySelectorAll('.bit.held').length === 0")


def test_the_chain_runs_until_it_is_paused(shown: Browser) -> None:
    shown.find("#run").click()
    shown.wait("softspin.state.steps > 2")
    shown.find("#run").click()
    steps = shown("return softspin.state.steps")
    shown.picture()
    assert shown("return softspin.state.steps") == steps
    shown.find("#film .thumb:last-child").click()
    shown.wait("softspin.state.steps === 1")


@pytest.mark.parametrize("kind", ["mouse", "touch"])
def test_a_pointer_draws(shown: Browser, kind: str) -> None:
    """A line across the second row of a 3 x 4 image, with the thinnest pen; then the eraser takes its end."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.pointer_input import PointerInput

    shown("document.querySelector('#pen').value = 1; document.querySelector('#pen').dispatchEvent(new Event('input'))")
    shown.find("#clear").click()
    canvas = shown.find("#canvas")
    shown("arguments[0].scrollIntoView()", canvas)
    cell = canvas.size["width"] / 4

    def drag(columns: tuple[float, float]) -> None:
        actions = ActionChains(shown.driver, duration=10).w3c_actions
        pointer = actions.add_pointer_input(kind, f"{kind}-1")
        assert isinstance(pointer, PointerInput)
        at = [round((column - 1.5) * cell) for column in columns]
        pointer.create_pointer_move(duration=0, x=at[0], y=0, origin=canvas)
        pointer.create_pointer_down(button=0)
        pointer.create_pointer_move(duration=10, x=at[1], y=0, origin=canvas)
        pointer.create_pointer_up(button=0)
        actions.perform()

    drag((0, 3))
    row = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    shown.wait(f"JSON.stringify(Array.from(softspin.state.image)) === '{json.dumps(row, separators=(',', ':'))}'")
    expected = most_likely(torch.tensor(row))
    shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(expected, separators=(',', ':'))}'")
    shown.find("#eraser").click()
    drag((3, 3))
    row[7] = 0
    shown.wait(f"JSON.stringify(Array.from(softspin.state.image)) === '{json.dumps(row, separators=(',', ':'))}'")


def test_keys_draw(shown: Browser) -> None:
    shown.find("#clear").click()
    shown("document.querySelector('#canvas').focus()")
    shown.keys("\ue012", "\ue012", "\ue013", " ")  # from the middle (2, 1) two to the left, one up
    shown.wait("softspin.state.image[0] === 1")


def test_couplings_are_named(shown: Browser) -> None:
    weight = random_model().net.rbm.weight[REPLICA]
    left, right = divmod(int(weight.abs().argmax()), 4)
    first = shown.find("#pairs button")
    assert first.text.startswith(
        f"L{left} – R{right} {'+' if weight[left, right] > 0 else '−'}{weight[left, right].abs():.2f}"
    )
    first.click()
    shown.wait(f"document.querySelector('#heat-words').textContent.startsWith('L{left} and R{right}: ')")


def test_beta_moves_the_densities(shown: Browser) -> None:
    before = shown.picture("density")
    shown(
        "document.querySelector('#beta').value = 0.2; document.querySelector('#beta').dispatchEvent(new Event('input'))"
    )
    after = shown.picture("density")
    assert after != before
    assert shown.find("#beta-value").text != "30.0"
    shown("document.querySelector('#own').click()")
    assert shown.picture("density") == before


# The page as a file ------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_and_complains_of_nothing(browser: Browser, some_page: Path) -> None:
    browser.driver.get_log("browser")
    browser.driver.get_log("performance")
    browser.open(some_page)
    browser.find("#run").click()
    browser.wait("softspin.state.steps > 0")
    assert browser.driver.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {some_page.as_uri()}
    assert "http://" not in some_page.read_text()
    assert "https://" not in some_page.read_text()


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("shape", [(3, 4), (12,), (12, 1)])
def test_nothing_is_wider_than_the_screen(browser: Browser, tmp_path: Path, shape: tuple[int, ...], width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(random_model("dvae-spike_exp", "4-nonlinear", shape), IMAGES), encoding="utf-8")
    browser.open(path, width)
    browser.picture()
    assert browser("return document.documentElement.scrollWidth") <= width
    assert browser("return document.querySelector('#canvas').getBoundingClientRect().height") > 20
