"""The pictures of docs/privacy-for-beginners.md: drawn, and right in what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.faces.cli.main import app
from noisewise_lab import beginners
from noisewise_lab.site.pages import ROOT


def test_the_command_draws_every_picture_of_the_pages(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "beginners", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    names = {Path(file).name for file in said["files"]}
    pages = [(ROOT / "docs" / page).read_text() for page in ("privacy-for-beginners.md", "which-method.md")]
    assert len(names) == 7 and all(any(f"(images/{name})" in page for page in pages) for name in names)
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert {row["what"]: round(row["value"], 3) for row in said["rows"]}["9 releases of epsilon 0.3 together"] == 0.974


def test_beliefs_stay_within_what_the_promise_allows() -> None:
    for prior in beginners.PRIORS:
        for epsilon in beginners.EPSILONS:
            after = beginners.belief(prior, epsilon)
            assert after / (1 - after) == pytest.approx(prior / (1 - prior) * 2.718281828459045**epsilon)


def test_one_release_costs_what_it_is_said_to_cost_and_several_less_than_their_sum() -> None:
    assert beginners.spent(1) == pytest.approx(beginners.EACH, abs=1e-3)
    assert beginners.spent(9) <= beginners.CAP < beginners.spent(10) < 10 * beginners.EACH
    assert beginners.noise_for(1.0) == nw.calibrate(nw.Budget(1.0, beginners.DELTA), steps=1)
