"""One browser, and the reports of five different runs, for all tests of the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

sys.path.insert(0, str(Path(__file__).parent))

from five_runs import make_all
from screens import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports by the name of the run; FIVE_RUNS=FOLDER takes those that ``five_runs.py`` has made there."""
    made = os.environ.get("FIVE_RUNS")
    if made is not None:
        return {page.parent.name: page for page in Path(made).glob("*/report.html")}
    return make_all(tmp_path_factory.mktemp("five"))
