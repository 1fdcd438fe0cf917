"""One way to train on files: the command makes the run that an estimator makes, and does without scikit-learn."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from noisewise import PrivateClassifier, PrivateRegressor, load
from noisewise.evidence.runs import save
from noisewise.tables.schema import Column, Schema

RNG = np.random.default_rng(0)
AGES, JOBS = RNG.integers(18, 90, 300), RNG.choice(["clerk", "farmer", ""], 300)  # "": no label, which drops the record
COLUMNS = (
    Column("id", "ignore"),
    Column("age", "number", 0, 100),
    Column("income", "number", 0, 9),
    Column("job", "category", categories=("clerk", "farmer")),
)
CASES = {
    "classes": (PrivateClassifier, Schema(COLUMNS, "job", target_missing="drop"), [], {}),
    "regression": (
        PrivateRegressor,
        Schema((*COLUMNS[:3], Column("job", "ignore")), "income"),
        ["--max-grad-norm", "0.5", "--method", "dpsgd", "--model", "8,4"],
        {"max_grad_norm": 0.5, "method": "dpsgd", "model": (8, 4)},
    ),
    "persons": (
        PrivateClassifier,
        Schema(COLUMNS, "job", unit="id", rows_per_unit=2, target_missing="drop"),
        ["--size-is-public", "--loss", "huber_hinge", "--model", "linear"],
        {"size_is_public": True, "loss": "huber_hinge", "model": "linear"},
    ),
}


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{i // 3},{age},{age % 10},{job}" for i, (age, job) in enumerate(zip(AGES, JOBS, strict=True))]
    (tmp_path / "people.csv").write_text("id,age,income,job\n" + "\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_the_command_makes_the_run_that_an_estimator_makes(people, shell, case):
    face, schema, options, settings = CASES[case]
    (people / "schema.toml").write_text(schema.to_toml())
    budget = ("--epsilon", "2", "--delta", "1e-5", "--seed", "3")
    told = shell("train", "people.csv", "--schema", "schema.toml", *budget, *options, "--out", "by-command")
    assert told.code == 0, told.err
    model = face(2.0, 1e-5, schema=schema, random_state=3, **settings).fit_files(people / "people.csv")
    save(model.fitted_, people / "by-estimator")
    for name in ("run.json", "statement.json", "statement.txt", "trace.json"):
        one, other = ((people / folder / name).read_text() for folder in ("by-command", "by-estimator"))
        assert one == other if name.endswith(".txt") else _timeless(one) == _timeless(other), name
    assert np.array_equal(load(people / "by-command").fitted_.theta, model.fitted_.theta)


def _timeless(text: str) -> dict:
    document = json.loads(text)
    return {name: value for name, value in document.items() if name not in ("created", "data", "warnings", "when")}


TRAINING = """
import sys
from noisewise.faces.cli import main
sys.argv = ["noisewise", "train", "people.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6"]
try:
    main()
except SystemExit as end:
    print(end.code, *[name for name in ("torch", "sklearn", "pandas", "matplotlib") if name in sys.modules])
"""


def test_training_by_the_command_needs_none_of_them(people):
    (people / "schema.toml").write_text(CASES["classes"][1].to_toml())
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"
