"""Pictures of a page in headless Chromium: a screenshot at a width, light or dark, and the pages as printed.

python tests_browser/screens.py my-run/report.html report.png --width 1280 --dark
"""

from __future__ import annotations

import argparse
import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
A4 = {"paperWidth": 8.27, "paperHeight": 11.69}  # inches


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser without a window that remembers what the console said and which addresses were asked for."""
    options = webdriver.ChromeOptions()
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def show(browser: webdriver.Chrome, page: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
    """Load a page as it looks at a width; one below 500 is a phone."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(page.resolve().as_uri())


def picture(browser: webdriver.Chrome, *, height: int | None = None) -> bytes:
    """A PNG of the page that is shown, all of it or its first ``height`` pixels."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    return base64.b64decode(shot["data"])


def paper(browser: webdriver.Chrome, page: Path, *, kept: str | None = None) -> bytes:
    """A PDF of a page on A4, whatever the screen's colours are; ``kept`` is a name under which SCREENSHOTS has it."""
    show(browser, page, width=794, dark=True)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False, "preferCSSPageSize": True, **A4})
    document = base64.b64decode(printed["data"])
    if kept is not None:
        _keep(f"{kept}.pdf", document)
    return document


def keep(browser: webdriver.Chrome, name: str) -> bytes:
    """A picture of the page that is shown, also written to the folder SCREENSHOTS if that is set."""
    shot = picture(browser)
    _keep(f"{name}.png", shot)
    return shot


def _keep(name: str, content: bytes) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_bytes(content)


def screenshot(html: Path, png: Path, *, width: int, dark: bool = False, height: int | None = None) -> None:
    """Write a picture of a page: ``width`` pixels wide, all of it or its first ``height`` pixels."""
    with chromium() as browser:
        show(browser, html, width=width, dark=dark)
        png.write_bytes(picture(browser, height=height))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("html", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int)
    parser.add_argument("--dark", action="store_true")
    chosen = parser.parse_args()
    screenshot(chosen.html, chosen.png, width=chosen.width, dark=chosen.dark, height=chosen.height)
