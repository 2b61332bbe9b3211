"""Pointer, touch and keyboard input to the page at several screen sizes; the page loads no other files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from playground.browser import BITS, IMAGES, Browser, close, needs_browser
from playground.models import REPLICA, most_likely, page, random_model

pytestmark = needs_browser


def test_a_test_image_shows_its_bits_and_its_picture(shown: Browser) -> None:
    for index in (3, 0):
        shown.find(f".thumb[aria-label='Test image {index + 1}']").click()
        expected = most_likely(IMAGES[index])
        shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(expected, separators=(',', ':'))}'")
        picture = random_model().decode(torch.tensor([expected]), replica=REPLICA).flatten(1)
        close([shown("return Array.from(softspin.state.pixels)")], picture)
        assert shown("return Array.from(softspin.state.image)") == IMAGES[index].tolist()


def test_sticky_cards_end_with_the_bits(shown: Browser) -> None:
    """Image and decoded image stay visible next to the bits, and scroll away with them."""
    shown("document.querySelector('.bits').style.minHeight = '1500px'")
    top = "document.querySelector('{}').getBoundingClientRect().top"
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    try:
        shown("document.querySelector('.bits').scrollIntoView(); window.scrollBy(0, 300)")
        for card in (".image", ".decoded"):
            shown.wait(f"{top.format(card)} >= 0")
        shown("document.querySelector('.prior').scrollIntoView({ block: 'center' })")
        for card in (".image", ".decoded"):
            shown.wait(f"{bottom.format(card)} <= {top.format('.prior')}")
    finally:
        shown("document.querySelector('.bits').style.minHeight = ''; window.scrollTo(0, 0)")


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
    assert shown.find("#picture-words").text == "1 bit differs from the encoder's."
    assert shown.find("#bit-words").text.startswith(f"L1 (group 1) is {flipped[1]};")
    shown.keys("h")
    shown.wait("document.activeElement.classList.contains('held') && softspin.state.held[1] === 1")
    shown.keys("h", " ")
    shown.wait(f"JSON.stringify({BITS}) === '{json.dumps(bits, separators=(',', ':'))}'")
    assert shown.picture() == before


def test_the_tab_key_reaches_every_control(shown: Browser) -> None:
    """Tab order from the top of the page; a group of bits or of images is one stop."""
    seen = set()
    for _ in range(70):
        shown.keys("\ue004")
        seen.add(shown("return document.activeElement.id || document.activeElement.parentElement.id"))
    wanted = (
        "strip canvas pen clear eraser likely drawn flip hold flip-left hold-left left flip-right hold-right right run"
    )
    wanted += " from-random from-other from-image step temperature pace order heat beta chance family own"
    assert set(wanted.split()) <= seen
    outline = shown(
        "document.querySelector('#run').focus({ focusVisible: true }); "
        "return getComputedStyle(document.querySelector('#run')).outlineWidth"
    )
    assert outline == "3px"


def test_a_side_is_flipped_and_clamped(shown: Browser) -> None:
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
    """A line across the second row of a 3 x 4 image, with the thinnest pen; then its end is erased."""
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


def test_the_keyboard_draws(shown: Browser) -> None:
    shown.find("#clear").click()
    shown("document.querySelector('#canvas').focus()")
    shown.keys("\ue012", "\ue012", "\ue013", " ")  # from the middle (2, 1) two to the left, one up
    shown.wait("softspin.state.image[0] === 1")


def test_selecting_a_pair_shows_its_coupling(shown: Browser) -> None:
    weight = random_model().net.prior_parameters.weight[REPLICA]
    left, right = divmod(int(weight.abs().argmax()), 4)
    first = shown.find("#pairs button")
    assert first.text.startswith(
        f"L{left} – R{right} {'+' if weight[left, right] > 0 else '−'}{weight[left, right].abs():.2f}"
    )
    first.click()
    shown.wait(f"document.querySelector('#heat-words').textContent.startsWith('L{left} and R{right}: ')")
    assert shown.find("#heat-words").text.endswith(f"= {weight[left, right].exp():.3g}.")


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


def test_the_page_loads_no_files_and_logs_no_errors(browser: Browser, some_page: Path) -> None:
    browser.driver.get_log("browser")
    browser.driver.get_log("performance")
    browser.open(some_page)
    browser.find("#run").click()
    browser.wait("softspin.state.steps > 0")
    assert browser.driver.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {some_page.as_uri()}
    text = some_page.read_text()
    assert "http://" not in text
    assert text.count("https://") == text.count('<a href="https://') == 1  # a link, followed only by a click


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("shape", [(3, 4), (12,), (12, 1)])
def test_nothing_is_wider_than_the_screen(browser: Browser, tmp_path: Path, shape: tuple[int, ...], width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(random_model("dvae-spike_exp", "4-nonlinear", shape), IMAGES), encoding="utf-8")
    browser.open(path, width)
    browser.picture()
    assert browser("return document.documentElement.scrollWidth") <= width
    box = browser("return document.querySelector('#canvas').getBoundingClientRect()")
    assert 20 < box["height"] < 400
    assert box["width"] > 40
