"""Public data sets become tables with complete schemas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.encode import Encoder
from noisewise.tables.schema import gaps
from noisewise_lab import tables_packages
from noisewise_lab.tables_prepare import SOURCES, prepare
from noisewise_lab.tables_split import listed, split


@pytest.fixture
def data(tmp_path):
    adult = SOURCES["adult"]
    rows: dict[str, list[object]] = {name: [low, high] for name, (low, high) in adult.bounds.items()}
    rows |= {"workclass": ["?", "Private"], "income": ["<=50K", ">50K"], "split": ["train", "test"], "y": [0, 1]}
    pd.DataFrame(rows).to_parquet(tmp_path / adult.file)
    grid = {name: [low, high] for name, (low, high) in SOURCES["electrical"].bounds.items()}
    pd.DataFrame({**grid, "stabf": ["stable", "unstable"]}).to_parquet(tmp_path / "electrical_grid.parquet")
    return tmp_path


def test_what_is_there_is_written_with_a_schema(data, tmp_path):
    to = tmp_path / "to"
    told = CliRunner().invoke(app, ["bench", "tables-prepare", "--from", str(data), "--to", str(to)])
    assert told.exit_code == 0, told.output
    assert "bank: bank_lee_kifer.parquet is not in" in told.stdout and "adult: 2 rows" in told.stdout
    adult, electrical = listed(to)
    assert adult.schema["workclass"].categories == ("Private",), "a question mark is a missing value"
    assert not adult.regression and "income" not in adult.schema and "split" not in adult.schema
    assert electrical.regression and electrical.schema["stabf"].kind == "ignore"


def test_a_column_without_bounds_is_refused(data):
    frame = pd.read_parquet(data / "adult_uci.parquet").assign(height=1.0)
    frame.to_parquet(data / "adult_uci.parquet")
    with pytest.raises(ValueError, match="no bounds are known for the column 'height'"):
        prepare(data, data / "to")


def test_generated_tables_are_the_same_each_time_and_complete(tmp_path):
    lines = tables_packages.write_generated(tmp_path / "one")
    tables_packages.write_generated(tmp_path / "two")
    assert len(lines) == len(tables_packages.GENERATED)
    for table, again in zip(listed(tmp_path / "one"), listed(tmp_path / "two"), strict=True):
        assert table.digest == again.digest
        assert not gaps(table.schema)
        rows = split(table, seed=0)
        matrix = Encoder(rows.schema)(rows.test)
        assert np.isfinite(matrix).all()


def test_tables_of_packages_are_read_as_they_ship(tmp_path):
    root = tmp_path / "packages"
    for source in tables_packages.DEV.values():
        (root / source.file).parent.mkdir(parents=True, exist_ok=True)
    (root / tables_packages.DEV["magic"].file).write_text("28.7,16.0,2.6,0.3,0.1,27.7,22.0,-8.2,40.0,81.8,g\n")
    votes = {"votetrump": [1.0, np.nan], "age": [20, 30], "state": ["Ohio", "Texas"], "uid": [1, 2]}
    vote = tables_packages.DEV["vote"]
    pd.DataFrame(votes).to_pickle(root / vote.file, compression="xz")
    sources = {name: tables_packages.DEV[name] for name in ("magic", "vote")}
    lines = tables_packages.write_packages(root, sources, tmp_path / "to")
    assert lines[0].startswith("magic: 1 rows, 11 columns") and lines[1].startswith("vote: 1 rows, 3 columns")
    assert listed(tmp_path / "to", ["vote"])[0].schema["state"].categories == ("Ohio",)
