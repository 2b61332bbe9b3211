"""A browser for tests of the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from playground.models import some_bits
from torch import Tensor

DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.browser
"""Skipped by `conftest.py` where there is no chromedriver."""
IMAGES = some_bits(5, 12, seed=7)
"""Images of the pages."""
BITS = "Array.from(document.querySelectorAll('.bit')).map((one) => Number(one.getAttribute('aria-pressed') === 'true'))"
"""The bits that the squares show."""


class Browser:
    """One Chromium that shows one page at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, width: int = 1280) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(path.as_uri())

    def __call__(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def find(self, css: str) -> Any:
        """An element, scrolled to the middle of the window: a click at the edge would hit a sticky line."""
        found = self.driver.find_element("css selector", css)
        self("arguments[0].scrollIntoView({ block: 'center' })", found)
        return found

    def wait(self, script: str) -> None:
        """Wait until a condition holds; views are updated at the next frame."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 10, poll_frequency=0.02).until(lambda _: self(f"return {script}"))

    def picture(self, name: str = "picture") -> str:
        """Content of a canvas after all views are updated."""
        wait = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        self.driver.execute_async_script(wait)
        return str(self(f"return document.getElementById('{name}').toDataURL()"))

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()


def close(found: Any, expected: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected.detach().double(), rtol=0, atol=1e-4)
