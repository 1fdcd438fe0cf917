"""Training on clients: what the bench command measures, on made-up files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import federated
from noisewise_lab.tables_prepare import SOURCES

CLIENTS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bars that lie or stand in place of digits, and a census in which age decides."""
    to, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    y = rng.integers(0, 10, 700)
    X = rng.integers(0, 60, (700, 28, 28))
    for at, digit in enumerate(y):
        X[at, 2 * digit + 4 : 2 * digit + 7, 4:24] += 190
    X = X.astype(np.uint8)
    np.savez(to / "mnist.npz", X_train=X[:600], y_train=y[:600], X_test=X[600:], y_test=y[600:])
    age = rng.integers(17, 90, 900)
    numbers = {
        name: rng.integers(int(low), int(high) + 1, 900) for name, (low, high) in SOURCES["adult"].bounds.items()
    }
    table = pd.DataFrame(
        {**numbers, "age": age, "sex": rng.choice(["Male", "Female"], 900), "y": (age > 50).astype(int)}
    )
    table = table.assign(income="", split=["train"] * 600 + ["test"] * 300)
    table.to_parquet(to / "adult_uci.parquet", index=False)
    return to


def test_clients_of_adult_are_consecutive_in_a_column(folder: Path, tmp_path: Path) -> None:
    made = federated.adult(folder, tmp_path, CLIENTS, "age")
    ages = [pd.read_parquet(path)["age"] for path in made.paths]
    assert len(ages) == CLIENTS and sum(map(len, ages)) == 600
    assert all(one.max() <= other.min() for one, other in pairwise(ages))
    with pytest.raises(ValueError, match="--column is 'eyes'"):
        federated.adult(folder, tmp_path / "other", CLIENTS, "eyes")


@pytest.mark.slow
def test_records_of_clients_do_as_one_place_and_clients_learn_too(folder: Path, tmp_path: Path) -> None:
    made = [federated.digits(folder, tmp_path, CLIENTS), federated.adult(folder, tmp_path, CLIENTS)]
    rows = list(federated.federated_rows(made, ways=federated.WAYS, epsilons=[60.0], delta=1e-5, seeds=2))
    assert [(row["data"], row["way"]) for row in rows] == [(d.name, way) for d in made for way in federated.WAYS]
    for central, record, client in (rows[:3], rows[3:]):
        assert central["accuracy"] == record["accuracy"] > 0.6
        assert client["accuracy"] > 0.2 and client["standard_error"] is not None


def test_the_command(folder: Path) -> None:
    asked = [
        "bench",
        "federated",
        "--data",
        str(folder),
        "--sets",
        "adult",
        "--clients",
        "6",
        "--epsilon",
        "9",
        "--seeds",
        "1",
    ]
    told = CliRunner().invoke(app, [*asked, "--ways", "client", "--method", "dpsgd", "--local-steps", "2", "--json"])
    assert told.exit_code == 0, told.output
    (row,) = json.loads(told.stdout)["rows"]
    assert (row["clients"], row["way"], row["method"], row["standard_error"]) == (6, "client", "dpsgd", None)
    for odd, words in (
        (("--sets", "iris"), "--sets is"),
        (("--ways", "alone"), "--ways is"),
        (("--epsilon", "x"), "--epsilon is"),
    ):
        told = CliRunner().invoke(app, [*asked, *odd])
        assert words in str(told.exception)
