from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playground.browser import DRIVER, IMAGES, Browser
from playground.models import REPLICA, page, random_model


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def some_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "some page.html"
    path.write_text(page(random_model(), IMAGES, replica=REPLICA), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Browser, some_page: Path) -> Browser:
    browser.open(some_page)
    return browser
