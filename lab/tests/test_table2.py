"""The published table, run on small generated files in its own layout."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab import table2
from noisewise_lab.datasets import Missing, load
from noisewise_lab.ppsgd_figures import Point, figure2, figure3, means, run_point

METHODS = "descent,ppsgd,ppsgd_paper,only_public,sufficient_statistics,nonprivate"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    signs = np.where(X @ [2.0, -1.0, 0.5, 0.0] + 0.3 * rng.normal(size=3000) > 0, 1, -1)
    adult = pd.DataFrame(X, columns=list("abcd")).assign(y=signs, split=["train"] * 2500 + ["test"] * 500)
    adult.to_parquet(tmp_path / "a9a.parquet")
    houses = pd.DataFrame(X, columns=list("abcd")).assign(median_house_value=X @ [1.0, 2.0, 0.0, -1.0])
    houses.to_parquet(tmp_path / "cadata.parquet")
    return tmp_path


def test_a_data_set_is_scaled_as_the_paper_scales_it(folder):
    adult, houses = load("adult", folder), load("cadata", folder)
    assert adult.X.shape == (2500, 5) and set(adult.y.tolist()) == {-1.0, 1.0}, "the test part is left out"
    for table in (adult, houses):
        assert np.allclose(np.linalg.norm(table.X, axis=1), 1, atol=1e-6)
    assert houses.y.min() == -1 and houses.y.max() == 1
    with pytest.raises(Missing, match=r"ipums_br\.parquet is not there"):
        load("ipums-br", folder)


@pytest.mark.slow
def test_the_table_runs_resumes_and_stands_beside_the_published_numbers(folder, tmp_path):
    arguments = ["bench", "table2", "--data", str(folder), "--datasets", "adult,ipums-br,cadata", "--methods", METHODS]
    arguments += ["--repeats", "2", "--jobs", "1", "--json", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert "skipping ipums-br" in result.stderr
    cells = {(row["dataset"], row["loss"], row["epsilon"]) for row in rows}
    assert cells == {("adult", loss, e) for loss in ("hinge", "squared") for e in (0.1, 0.5)} | {
        ("cadata", "squared", 0.3),
        ("cadata", "squared", 0.7),
    }
    first = next(row for row in rows if row["method"] == "descent" and row["epsilon"] == 0.1 and row["loss"] == "hinge")
    assert first["published_best"] == 0.7882 and first["repeats"] == 2
    assert not any(row["method"] == "sufficient_statistics" and row["loss"] == "hinge" for row in rows)
    assert (tmp_path / "out" / "table2.csv").exists() and (tmp_path / "out" / "table2.png").stat().st_size > 10_000

    lines = (tmp_path / "out" / "results.jsonl").read_text()
    again = CliRunner().invoke(app, arguments)
    assert json.loads(again.stdout)["rows"] == rows
    assert (tmp_path / "out" / "results.jsonl").read_text() == lines, "nothing is run twice"


def test_an_unknown_name_is_refused_with_the_known_ones(folder):
    result = CliRunner().invoke(app, ["bench", "table2", "--data", str(folder), "--methods", "magic"])
    assert isinstance(result.exception, ValueError) and "pass some of auto" in str(result.exception)


def test_published_numbers_are_those_of_the_paper():
    table = table2.published().set_index(["dataset", "loss", "epsilon"])
    assert table.loc[("adult", "hinge", 0.1), "PPSGD"] == 0.7882
    assert table.loc[("electrical", "squared", 0.7), "PPSGD"] == 0.0558


def test_the_figures_sweep_every_setting_and_every_baseline():
    assert {point.setting for point in figure2(1)} == {"phi", "varphi", "reuse", "alpha", "beta"}
    assert {"ppsgd", "descent", "agd", "only_public"} <= {point.method for point in figure3(1)}
    rows = means([run_point(Point("hinge", 1.0, method, None, None, 0)) for method in ("ppsgd", "only_public")])
    accuracy = {row["method"]: row["mean"] for row in rows}
    assert accuracy["ppsgd"] > accuracy["only_public"] + 0.05
    assert {row["figure"] for row in rows} == {3}
