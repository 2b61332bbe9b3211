"""The page of a conditional model computes what PyTorch does, for each value of the selector."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playground.browser import IMAGES, Browser, close, needs_browser
from playground.models import REPLICA, page, some_bits
from torch import Tensor

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.errors import SupportError
from softspin.model import build
from softspin.playground.payload import payload
from softspin.trained import Model


def conditional_model(condition: Tensor, structure: str = "2-nonlinear") -> Model:
    """Two replicas with random parameters, given the conditions of a training set."""
    config = Config(structure=structure, bits_per_group=4, width=6, seeds=(0, 1))
    net = build(config, DataSpec((3, 4), torch.linspace(0.1, 0.9, 12), condition=condition))
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=g), alpha=0.7)
    return Model(net, config, (3, 4))


NUMBERS = torch.tensor([[1.0], [2.0], [5.0]])
CLASSES = torch.tensor([[3], [7], [9]])


@needs_browser
@pytest.mark.parametrize(("condition", "structure"), [(CLASSES, "2-nonlinear"), (NUMBERS, "1-linear")])
def test_the_selector_gives_the_model_of_each_value(
    browser: Browser, tmp_path: Path, condition: Tensor, structure: str
) -> None:
    model, path = conditional_model(condition, structure), tmp_path / "page.html"
    given = condition[[2, 0, 1, 1, 2]]
    path.write_text(page(model, IMAGES, replica=REPLICA, condition=given), encoding="utf-8")
    browser.open(path)
    assert browser("return softspin.largestDifference()") < 1e-4
    assert browser("return softspin.state.condition") == 2
    names = browser("return Array.from(document.querySelectorAll('#condition option')).map((one) => one.textContent)")
    assert names == (["class 3", "class 7", "class 9"] if condition is CLASSES else ["1", "2", "5"])
    z = some_bits(1, model.net.units, seed=1)
    for number, value in enumerate(condition):
        browser(
            "const select = document.getElementById('condition'); select.value = arguments[0]; "
            "select.dispatchEvent(new Event('change'))",
            number,
        )
        pixels, fields = browser(
            "const { model, decode, fields } = softspin; const z = arguments[0]; "
            "return [decode(model, z), fields(model.prior, z)].map((one) => Array.from(one))",
            z[0].tolist(),
        )
        close(pixels, model.decode(z, condition=value, replica=REPLICA).flatten())
        close(fields, model.prior(REPLICA, condition=value).field(z.float())[0])
    browser("document.getElementById('strip').children[1].click()")
    assert browser("return softspin.state.condition") == 0
    first = torch.tensor(browser("return Array.from(softspin.state.bits)"))
    expected = model.encode(IMAGES[1:2], condition=given[1], sample=False, replica=REPLICA)[0]
    assert first.tolist() == expected.int().tolist()


def test_a_page_needs_the_conditions_of_its_images() -> None:
    with pytest.raises(
        SupportError, match=r"this model is of p\(x \| c\); give condition=... or --condition: a class, one of 3, 7, 9"
    ):
        payload(conditional_model(CLASSES), IMAGES)
