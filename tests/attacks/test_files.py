"""Attacks by files: formulas in predictions, and run folders with numbers that no page can draw."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise import runs
from noisewise.faces.cli import main

FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "=HYPERLINK(1)")


class Told(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def shell(monkeypatch: Any, capsys: Any, tmp_path: Path) -> Any:
    """The command line as the shell calls it; whatever it raises instead of ending fails the test."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> Told:
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        capsys.readouterr()
        code: Any = None
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        except Exception as error:
            code = repr(error)
        assert isinstance(code, int), f"an error came through: {code}"
        return Told(code, *capsys.readouterr())

    return call


def trained(shell: Any, labels: tuple[str, str], name: str = "run") -> None:
    """A run with these two classes, on rows that both of them have."""
    x = np.random.default_rng(0).uniform(-1, 1, 300)
    pd.DataFrame({"x": x, "y": np.where(x > 0, *labels)}).to_parquet("rows.parquet")
    categories = ", ".join(json.dumps(label) for label in labels)
    Path("schema.toml").write_text(
        'format = "noisewise-schema/1"\ntarget = "y"\n[columns.x]\nkind = "number"\nlow = -1\nhigh = 1\n'
        f'[columns.y]\nkind = "category"\ncategories = [{categories}]\n'
    )
    budget = ("--epsilon", 50, "--delta", 1e-6, "--seed", 1, "--method", "dpsgd")
    assert shell("train", "rows.parquet", "--schema", "schema.toml", *budget, "--out", name).code == 0


def cells_of(text: str) -> set[str]:
    return {cell for row in csv.reader(text.splitlines(keepends=True)) for cell in row}


@pytest.mark.sample(2)
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_class_that_is_a_formula_does_not_run_in_a_spreadsheet(shell: Any, formula: str) -> None:
    trained(shell, (formula, "no"))
    printed = cells_of(shell("predict", "run", "rows.parquet").out)
    assert shell("predict", "run", "rows.parquet", "--out", "p.csv").code == 0
    for cells in (printed, cells_of(Path("p.csv").read_bytes().decode())):
        assert f"'{formula.strip()}" in cells or f"'{formula}" in cells, "it is still there to be read"
        for cell in cells:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or _is_number(cell), cell


@pytest.mark.guard("numbers were never changed")
def test_labels_that_are_numbers_and_parquet_stay_as_they_are(shell: Any) -> None:
    trained(shell, ("-1", "1"))
    assert {"-1", "1"} <= cells_of(shell("predict", "run", "rows.parquet").out)
    trained(shell, ("=1+1", "no"), "other")
    assert shell("predict", "other", "rows.parquet", "--out", "p.parquet").code == 0
    assert set(pd.read_parquet("p.parquet")["predicted y"]) == {"=1+1", "no"}


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# --- run folders of strangers ----------------------------------------------------------------------------------------

HUGE = 10**400
AUDIT = {
    "kind": "epsilon_lower_bound", "lower_bound": 0.3, "claimed": 1.0, "confidence": 0.95, "runs": 10,
    "verdict": "consistent", "when": "2025-03-01T12:30:59+00:00",
}  # fmt: skip
SCORE = {
    "metric": "accuracy", "value": 0.5, "interval": [0.4, 0.6], "rows": "private", "epsilon": 0.1, "delta": 1e-7,
    "when": "2025-03-01T12:30:59+00:00", "file": "a.csv",
}  # fmt: skip
OTHER = {"method": "dpsgd", "mean": 0.5, "standard_error": 0.1, "refused": None, "public": False}
COMPARISON = {
    "epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove", "size": 10, "repeats": 2, "metric": "accuracy",
    "rows": [OTHER],
}  # fmt: skip


def settled(document: Any, where: tuple[Any, ...], value: Any) -> Any:
    at = document
    for name in where[:-1]:
        at = at[name]
    at[where[-1]] = value
    return document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    fitted = nw.PrivateClassifier(2.0, 1e-6, bounds=(-1, 1), method="dpsgd", random_state=0).fit(X, X[:, 0] > 0)
    nw.save(fitted, tmp_path / "run")
    return tmp_path / "run"


def changed(folder: Path, name: str, where: tuple[Any, ...], value: Any) -> None:
    added = {"audit.json": [AUDIT], "evaluation.json": [SCORE], "comparison.json": COMPARISON}
    document = json.loads(json.dumps(added[name])) if name in added else json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(settled(document, where, value)))
    runs.reseal(folder)


BREACHES = [
    ("audit.json", (0, "lower_bound"), HUGE),
    ("audit.json", (0, "runs"), -HUGE),
    ("audit.json", (0, "confidence"), HUGE),
    ("evaluation.json", (0, "value"), HUGE),
    ("evaluation.json", (0, "interval"), [0, HUGE]),
    ("evaluation.json", (0, "epsilon"), HUGE),
    ("comparison.json", ("epsilon",), HUGE),
    ("comparison.json", ("repeats",), HUGE),
    ("comparison.json", ("rows", 0, "mean"), HUGE),
    ("comparison.json", ("rows", 0, "standard_error"), HUGE),
    ("run.json", ("settings", "epsilon"), HUGE),
    ("run.json", ("model", "parameters"), HUGE),
    ("run.json", ("coefficients", 0, "value"), HUGE),
    ("run.json", ("coefficients", 0, "standard_error"), HUGE),
    ("run.json", ("coefficients", 0, "standard_error"), 1e308),
    ("trace.json", ("rows", 0, "spent"), HUGE),
    ("trace.json", ("rows", 1, "spent"), -HUGE),
    ("trace.json", ("rows", 0, "event", "noise_multiplier"), HUGE),
    ("trace.json", ("rows", 1, "noise_std"), HUGE),
]
HELD = [
    ("audit.json", (0, "lower_bound"), float("nan")),
    ("evaluation.json", (0, "value"), float("inf")),
    ("run.json", ("coefficients", 0, "value"), -0.0),
    ("run.json", ("preprocessing", "low", 0), HUGE),
    ("trace.json", ("rows", 1, "noise_std"), 1e308),
    ("statement.json", ("promise", "epsilon"), HUGE),
    ("statement.json", ("promise", "epsilon"), 1e308),
]
GUARD = pytest.mark.guard("the old commit already withstood it")
CASES = [*BREACHES, *(pytest.param(*case, marks=GUARD) for case in HELD)]


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "where", "value"), CASES, ids=lambda value: str(value)[:40])
def test_a_folder_of_a_stranger_is_drawn_or_refused_in_one_line(
    folder: Path, shell: Any, name: str, where: Any, value: Any
) -> None:
    changed(folder, name, where, value)
    told = shell("report", folder, "--out", "page.html")
    assert told.code in (0, 2)
    assert told.code == 0 or (told.err.startswith("noisewise: ") and told.err.count("\n") == 1), told.err


@pytest.mark.sample(13)
@pytest.mark.guard("loading was always one line")
@pytest.mark.parametrize(("name", "where", "value"), [*BREACHES, *HELD], ids=lambda value: str(value)[:40])
def test_a_folder_of_a_stranger_is_loaded_or_refused(folder: Path, name: str, where: Any, value: Any) -> None:
    changed(folder, name, where, value)
    try:
        nw.load(folder)
    except ValueError as error:
        assert "\n" not in str(error)
