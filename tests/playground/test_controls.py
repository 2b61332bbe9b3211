"""The selector of the replica, the starts of a chain, tabs, links, and pages of graph priors."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from playground.browser import BITS, IMAGES, Browser, close, needs_browser
from playground.models import GRAPH, REPLICA, most_likely, page, random_model

from softspin import __version__
from softspin.playground import page as page_module

pytestmark = needs_browser

START = """
document.getElementById(arguments[0]).click();
const ran = softspin.state.steps;
document.querySelector('#film').lastChild.click();  // the first frame, which also pauses the chain
return [ran, softspin.state.steps, Array.from(softspin.state.bits), Array.from(softspin.state.image)];
"""
"""Start a chain, and restore the bits that it started from."""


def shows(bits: Sequence[int]) -> str:
    return f"JSON.stringify({BITS}) === '{json.dumps(bits, separators=(',', ':'))}'"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def choose(browser: Browser, replica: int) -> None:
    browser(
        "const select = document.getElementById('replica'); select.value = arguments[0]; "
        "select.dispatchEvent(new Event('change'))",
        replica,
    )


# Replicas ----------------------------------------------------------------------------------------------------


def test_another_replica_computes_with_its_own_parameters(browser: Browser, tmp_path: Path) -> None:
    model = random_model()
    browser.open(written(tmp_path / "page.html", page(model, IMAGES)))
    assert browser.find("#replica").is_displayed()
    options = browser("return Array.from(document.querySelectorAll('#replica option')).map((one) => one.textContent)")
    assert options == ["seed 0, beta 30", "seed 1, beta 30"]
    for replica in (1, 0):
        browser("softspin.state.held.fill(1)")
        choose(browser, replica)
        expected = most_likely(IMAGES[0], replica)
        browser.wait(shows(expected))
        close(
            [browser("return Array.from(softspin.state.pixels)")],
            model.decode(torch.tensor([expected]), replica=replica).flatten(1),
        )
        prior = model.prior(replica)
        close(
            browser("return Array.from(softspin.fields(softspin.model.prior, softspin.state.bits))"),
            prior.field(torch.tensor(expected).float()),
        )
        assert browser("return softspin.largestDifference()") < 1e-5
        assert "agrees with PyTorch" in browser.find("#check").text
        assert f"number {replica} of 0 to 1" in browser.find("#facts").text
        assert browser("return softspin.state.held.includes(1)") is False
        strongest = model.net.prior_parameters.weight[replica].abs().max().item()
        assert browser.find("#scale-high").text == f"+{strongest:.2f}"
        assert f"{strongest:.2f}" in browser.find("#pairs button").text


def test_one_replica_has_no_selector(shown: Browser) -> None:
    assert not shown.find("#replica").is_displayed()


# Starts of a chain -------------------------------------------------------------------------------------------


def test_a_chain_from_random_bits_starts_from_fair_ones(shown: Browser) -> None:
    """480 bits of 60 starts: their mean is 1/2 within five standard errors, false-alarm rate 6e-7. 60 draws out of
    256 states have about 53 different ones; fewer than 31 have probability below 1e-12."""
    starts: list[int] = []
    for _ in range(60):
        ran, step, bits, _ = shown(START, "from-random")
        assert (ran, step) == (1, 0)
        starts += bits
    assert abs(sum(starts) - len(starts) / 2) < 5 * math.sqrt(len(starts)) / 2
    assert len({tuple(starts[at : at + 8]) for at in range(0, len(starts), 8)}) > 30


def test_a_chain_from_another_image_starts_from_its_bits(shown: Browser) -> None:
    seen = set()
    image = IMAGES[0].tolist()
    for _ in range(20):
        ran, step, bits, other = shown(START, "from-other")
        assert (ran, step) == (1, 0)
        assert other != image
        index = IMAGES.tolist().index(other)
        assert bits == most_likely(IMAGES[index])
        assert (
            shown("return document.querySelector('#strip [aria-pressed=true]').ariaLabel") == f"Test image {index + 1}"
        )
        seen.add(index)
        image = other
    assert len(seen) > 2


def test_a_chain_from_your_image_forgets_flips(shown: Browser) -> None:
    shown.find("#flip-left").click()
    ran, step, bits, image = shown(START, "from-image")
    assert (ran, step, bits, image) == (1, 0, most_likely(IMAGES[0]), IMAGES[0].tolist())


@pytest.mark.parametrize("start", ["from-random", "from-other", "from-image"])
def test_clamped_bits_keep_their_values_at_every_start(shown: Browser, start: str) -> None:
    shown("document.getElementById('flip-left').click(); document.getElementById('hold-left').click()")
    flipped = [1 - bit for bit in most_likely(IMAGES[0])[:4]]
    for _ in range(5):
        assert shown(START, start)[2][:4] == flipped
    assert "Clamped bits keep their values." in shown(
        f"document.getElementById('{start}').click(); return document.getElementById('said').textContent"
    )


# Words -------------------------------------------------------------------------------------------------------


def test_every_button_says_what_it_did(shown: Browser) -> None:
    """The last line of the page is written by every button outside the panel of the soft bit, which has its own."""
    shown.wait("document.querySelectorAll('#most button').length > 0")
    silent = shown(
        """document.querySelector('.bit').click();
        document.querySelector('#hold').click();  // so that there is something to unclamp
        document.querySelector('#step').click();
        const buttons = Array.from(document.querySelectorAll('main button')).filter(
          (one) => !one.closest('#tabs') && !one.closest('.density') && !one.disabled);
        return [buttons.length, buttons.filter((button) => {
          softspin.state.held[0] = 1;
          document.getElementById('said').textContent = '';
          button.click();
          return !document.getElementById('said').textContent;
        }).map((one) => one.outerHTML)];"""
    )
    assert silent[0] > 30
    assert silent[1] == []
    shown("document.querySelector('#run').textContent === 'Pause' && document.querySelector('#run').click()")


@pytest.mark.parametrize("address", [None, "https://example.org/softspin?a=1&b=2"])
def test_the_page_links_to_the_project_if_it_has_an_address(
    address: str | None, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "home", lambda: address)
    browser.open(written(tmp_path / "page.html", page(random_model(), IMAGES)))
    assert browser.find(".links > :first-child").text == "softspin"
    assert browser.find("#made").text.startswith(f"Made with softspin {__version__}.")
    assert browser.find("#made").text.endswith("lists the commands.") == (address is None)
    for place in (".links > :first-child", "#made > :first-child"):
        assert browser.find(place).get_dom_attribute("href") == address
    assert browser.find(".links a:last-child").get_dom_attribute("href").startswith("https://arxiv.org/abs/")


# A phone -----------------------------------------------------------------------------------------------------

PANELS = ("bits", "prior", "couplings", "density", "about")
VISIBLE = (
    "Array.from(document.querySelectorAll('[data-panel]')).filter((one) => one.offsetParent)"
    ".map((one) => one.dataset.panel)"
)


def test_a_wide_screen_shows_all_panels(shown: Browser) -> None:
    assert set(shown(f"return {VISIBLE}")) == set(PANELS)
    assert not shown.find("#tabs").is_displayed()


def test_a_phone_shows_one_panel_at_a_time_in_few_screens(browser: Browser) -> None:
    """The page of the documentation, 400 bits: it was 5,700 pixels high."""
    browser.open(Path(__file__).parents[2] / "docs/playground.html", 390)
    for panel in PANELS:
        browser.find(f"#tabs [data-of={panel}]").click()
        browser.wait(f"JSON.stringify({VISIBLE}) === JSON.stringify(['{panel}'])")
        browser.picture()
        assert browser("return document.documentElement.scrollWidth") <= 390
        assert browser("return document.documentElement.scrollHeight") < (2400 if panel == "bits" else 1900)
        assert browser.find(f"#tabs [data-of={panel}]").get_dom_attribute("aria-pressed") == "true"
        browser("window.scrollTo(0, document.documentElement.scrollHeight)")
        assert browser("return document.getElementById('tabs').getBoundingClientRect().top") > -1  # still visible
    assert "agrees with PyTorch" in browser.find("#check").text
    blank = "return document.getElementById(arguments[0]).toDataURL()"
    for panel, canvas in (("density", "density"), ("couplings", "heat")):  # drawn although they were hidden at first
        browser.find(f"#tabs [data-of={panel}]").click()
        browser.picture()
        empty = browser("const one = document.getElementById(arguments[0]).cloneNode(); return one.toDataURL()", canvas)
        assert browser(blank, canvas) != empty


# Graphs ------------------------------------------------------------------------------------------------------


def test_a_page_of_a_graph_prior(browser: Browser, tmp_path: Path) -> None:
    browser.driver.get_log("browser")
    model = random_model(graph=GRAPH)
    browser.open(written(tmp_path / "page.html", page(model, IMAGES, replica=REPLICA)))
    assert [one.text for one in browser.driver.find_elements("css selector", "#parts h3")] == ["Group 1", "Group 2"]
    assert "on a graph with 9 couplings" in browser.find("#prior-kind").text
    assert "samples three sets" in browser.find("#prior-kind").text
    given: dict[tuple[int, int], Any] = dict(
        zip(model.config.edges or (), model.net.prior_parameters.weight[REPLICA].tolist(), strict=True)
    )
    (i, j), value = max(given.items(), key=lambda pair: abs(pair[1]))
    assert browser.find("#pairs button").text.startswith(f"z{i} – z{j} {'+' if value > 0 else '−'}{abs(value):.2f}")
    browser.find("#pairs button").click()
    browser.wait(f"document.querySelector('#heat-words').textContent.startsWith('z{i} and z{j}: coupling')")
    browser(
        "const order = document.querySelector('#order'); order.value = 'columns'; "
        "order.dispatchEvent(new Event('change'))"
    )
    browser("document.querySelector('#heat').focus()")
    browser.keys(*["\ue012"] * 8, *["\ue013"] * 8)  # to the upper left corner
    browser.wait("document.querySelector('#heat-words').textContent.startsWith('z0 twice')")
    browser.keys(*["\ue014"] * 3)
    browser.wait("document.querySelector('#heat-words').textContent === 'z0 and z3: no coupling in this graph.'")
    browser.find("#hold-group-1").click()
    before = browser("return Array.from(softspin.state.bits)")
    browser.find("#run").click()
    browser.wait("softspin.state.steps > 2")
    browser.find("#run").click()
    assert browser("return Array.from(softspin.state.bits)")[:4] == before[:4]
    assert browser.driver.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_method_without_a_smoothing_has_no_panel_of_one_soft_bit(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(random_model("disarm"), IMAGES), encoding="utf-8")
    browser.open(path, width)
    assert browser("return document.querySelectorAll('[data-panel=density], [data-of=density]').length") == 0
    assert not [entry for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"]
    before = browser(f"return {BITS}")
    browser.find(".bit").click()
    browser.wait(f"{BITS}[0] !== {before[0]}")
    assert browser("return softspin.largestDifference()") < 1e-3
