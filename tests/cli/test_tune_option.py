"""``noisewise train --tune``: settings from a file, searched, paid for, and one run folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import noisewise as nw

BUDGET = ("--epsilon", 3, "--delta", 1e-6)
SETTINGS = '[[candidate]]\nmethod = "descent"\nsteps = 10\n\n[[candidate]]\nmethod = "descent"\nmax_grad_norm = 0.5\nsteps = 10\n'


def trained(shell, *options, candidates=SETTINGS):
    Path("settings.toml").write_text(candidates)
    return shell("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--out", "run", *options)


@pytest.mark.parametrize("how", ["selection", "exponential", "online", "none", "auto"])
def test_a_search_ends_in_a_run_folder_that_says_how(how, desk, shell):
    told = trained(shell, "--tune", how, "--candidates", "settings.toml")
    assert told.code == 0, told.err
    assert "Search: " in told.err and nw.verify("run").holds
    tuning = json.loads(Path("run/statement.json").read_text())["tuning"]
    assert tuning["how"] == ("none" if how == "auto" else how)
    spending = json.loads(Path("run/spending.json").read_text())
    assert [entry["state"] for entry in spending["entries"]] == ["spent"]
    assert "Search: " in Path("run/statement.txt").read_text()


def test_public_rows_are_searched_for_nothing(desk, shell):
    told = trained(shell, "--tune", "public", "--candidates", "settings.toml", "--public", "public.csv")
    assert told.code == 0, told.err
    assert json.loads(Path("run/statement.json").read_text())["tuning"]["price"] is None


def test_bought_bounds_come_first_and_are_part_of_the_promise(desk, shell):
    text = "\n".join(
        line for line in Path("schema.toml").read_text().splitlines() if not line.startswith(("low", "high"))
    )
    Path("schema.toml").write_text(text)
    told = trained(shell, "--tune", "selection", "--candidates", "settings.toml", "--bounds-epsilon", 1)
    assert told.code == 0, told.err
    statement = json.loads(Path("run/statement.json").read_text())
    assert nw.verify("run").holds, nw.verify("run").reason
    assert statement["promise"]["epsilon"] == 3 and statement["preparation"]["epsilon"] == 1
    assert statement["tuning"]["price"]["epsilon"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("options", "candidates", "words"),
    [
        (("--candidates", "settings.toml"), SETTINGS, "pass --tune too"),
        (("--tune", "selection"), SETTINGS, "--candidates is missing"),
        (("--tune", "guess", "--candidates", "settings.toml"), SETTINGS, "pass one of"),
        (("--tune", "selection", "--candidates", "nowhere.toml"), SETTINGS, "cannot be read"),
        (("--tune", "selection", "--candidates", "settings.toml"), "[[candidate", "neither TOML nor JSON"),
        (("--tune", "selection", "--candidates", "settings.toml"), "x = 1", r"\[\[candidate\]\]"),
        (("--tune", "selection", "--candidates", "settings.toml"), "[[candidate]]\nepsilon = 1", "no setting to tune"),
        (("--tune", "selection", "--candidates", "settings.toml"), '[[candidate]]\nmethod = "magic"', "magic"),
    ],
)
def test_bad_searches_get_one_line_and_nothing_is_written(options, candidates, words, desk, shell):
    told = trained(shell, *options, candidates=candidates)
    assert told.code == 2 and told.err.count("\n") == 1 and not Path("run").exists()
    assert re.search(words, told.err), told.err
    assert not list(Path(".").glob("*.spending*.json"))
