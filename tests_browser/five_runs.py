"""Five different runs whose reports are looked at: classes, several classes, a regression, a perceptron, and one after
everything that a folder can have.

    python tests_browser/five_runs.py FOLDER      # FOLDER/classes/report.html and so on

Everything is made by the commands that people type, on generated rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.generated import census

NAMES = ("classes", "several", "regression", "perceptron", "everything")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


def noisewise(*arguments: str | Path, expected: int = 0) -> None:
    """Run a command; what it says is shown if it fails."""
    told = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if told.exit_code != expected:
        raise RuntimeError(f"noisewise {' '.join(map(str, arguments))}: {told.output} {told.exception!r}")


def workers(rows: int, *, seed: int) -> pd.DataFrame:
    """People with a field of work, which follows from schooling and pay, and their pay in dollars an hour."""
    table, rng = census(rows, seed=seed), np.random.default_rng(seed)
    frame = table.X[["age", "schooling", "hours", "children"]].round(1)
    frame["household"] = np.where(table.X["married"] > 0, "married couple", "person living alone")
    frame["sector"] = np.where(table.X["public_sector"] > 0, "public service", "private company")
    rise = 0.9 * (frame["schooling"] - 10) + 5 * np.exp(-(((frame["age"] - 48) / 20) ** 2)) + 2 * table.y
    frame["pay"] = (14 + rise + rng.gamma(2.0, 2.0, rows)).clip(5, 60).round(2)
    score = frame["schooling"] + 0.15 * frame["pay"] + rng.normal(0, 1.5, rows)
    frame["field"] = np.select([score < 11.5, score < 14.5], ["crafts", "trade and office"], "science")
    return frame


def files(place: Path) -> None:
    """Private rows, public ones to train with, and public ones to test on."""
    noisewise("demo", "--files", place)
    for name, rows, seed in (("workers", 20_000, 1), ("registry", 2_000, 2), ("workers-test", 4_000, 3)):
        workers(rows, seed=seed).to_csv(place / f"{name}.csv", index=False)


def make(place: Path, name: str) -> Path:
    """Train one of the five on the files of a folder, and say where its report is."""
    run, train = place / name, ("train", *BUDGET, "--out", place / name)
    income = (place / "people.csv", "--target", "income", "--public", place / "survey.csv")
    work = (place / "workers.csv", "--public", place / "registry.csv")
    match name:
        case "classes":
            noisewise(*train, *income)
            noisewise("evaluate", run, place / "held-out.csv", "--public-test")
        case "several":
            noisewise(*train, *work, "--target", "field")
            noisewise("evaluate", run, place / "workers-test.csv", "--public-test")
        case "regression":
            noisewise(*train, *work, "--target", "pay", "--loss", "squared")
            noisewise("evaluate", run, place / "workers-test.csv", "--public-test")
        case "perceptron":
            noisewise(*train, *income, "--model", "mlp", "--seed", "0")
        case "everything":
            noisewise(*train, *income, "--method", "descent", "--model", "linear", "--size-is-public")
            noisewise("evaluate", run, place / "held-out.csv", "--public-test")
            noisewise("evaluate", run, place / "held-out.csv", "--epsilon", "0.1")
            noisewise("audit", run, "--runs", "200")
            compared = ("--target", "income", "--size", "1200", "--repeats", "2", "--out", place / "comparison")
            some = ("--methods", "descent,dpsgd,additive,output_perturbation,ppsgd")
            noisewise("compare", place / "survey.csv", *BUDGET, *compared, *some, "--run", run)
    return run / "report.html"


def make_all(place: Path) -> dict[str, Path]:
    place.mkdir(parents=True, exist_ok=True)
    files(place)
    return {name: make(place, name) for name in NAMES}


if __name__ == "__main__":
    for page in make_all(Path(sys.argv[1])).values():
        print(page)
