"""One fitted thing: it predicts what its model would, goes to plain data and back, and is held by every face."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise.evidence import runs
from noisewise.evidence.bought_quality import scored_by
from noisewise.tables.fit.fitted import Fitted
from noisewise.trusted.models import MLP

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (300, 3))
NUMBERS = X @ [1.0, -0.5, 0.2]
LABELS = np.digitize(NUMBERS, [-0.3, 0.3])


def classifier(**settings):
    settings = {"method": "dpsgd", "bounds": (-1, 1), "random_state": 0, **settings}
    return nw.PrivateClassifier(2.0, 1e-5, **settings)


FITS = {
    "two classes": lambda: classifier().fit(X, LABELS > 0),
    "three classes": lambda: classifier().fit(X, LABELS),
    "perceptron": lambda: classifier(model=(4, 3)).fit(X, LABELS),
    "one output": lambda: classifier(model=(4,)).fit(X, LABELS > 0),
    "hinge": lambda: classifier(loss="hinge").fit(X, LABELS > 0),
    "number": lambda: nw.PrivateRegressor(
        2.0, 1e-5, method="descent", bounds=(-1, 1), target_bounds=(-2, 2), random_state=0
    ).fit(X, NUMBERS),
}


@pytest.mark.parametrize("name", FITS)
def test_it_scores_as_its_model_does(name):
    fitted = FITS[name]().fitted_
    rows, model = fitted.scaling(X), scored_by(fitted)
    theta = fitted.theta.astype(np.float64)
    if isinstance(model, MLP):
        expected = model.scored(torch.from_numpy(theta), torch.from_numpy(rows)).numpy()
    else:
        expected = model.scores(theta, rows)
    np.testing.assert_allclose(fitted.scores(rows), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", FITS)
def test_plain_data_and_back(name):
    face = FITS[name]()
    fitted = face.fitted_
    again = Fitted.from_dict(fitted.to_dict(), fitted.theta, fitted.statement, fitted.trace)
    rows = fitted.scaling(X)
    assert np.array_equal(again.predictions(rows), face.predict(X))
    assert again.likely == fitted.likely == hasattr(face, "predict_proba")
    assert again.to_dict() == fitted.to_dict()
    if again.likely:
        assert np.array_equal(again.probabilities(rows), face.predict_proba(X))
    else:
        with pytest.raises(AttributeError, match="no probabilities"):
            again.probabilities(rows)


def test_many_rows_are_scored_in_chunks_and_none_in_none(monkeypatch):
    fitted = FITS["three classes"]().fitted_
    rows = fitted.scaling(X)
    whole = fitted.scores(rows)
    monkeypatch.setattr("noisewise.statements.network.ROWS_PER_CHUNK", 7)
    np.testing.assert_allclose(fitted.scores(rows), whole, rtol=1e-14, atol=1e-15)
    assert fitted.scores(rows[:0]).shape == (0, 3)


def test_method_and_loss_are_matched_whoever_asks():
    """A method of least squares fits least squares: its statement says so, and it has no probabilities."""
    squares = classifier(method="sufficient_statistics")
    assert not hasattr(squares, "predict_proba")
    squares.fit(X, LABELS > 0)
    assert squares.statement_.data["model"]["loss"].startswith("squared")
    assert not hasattr(squares, "predict_proba")
    with pytest.raises(ValueError, match="takes squared"):
        classifier(method="sufficient_statistics", loss="logistic").fit(X, LABELS > 0)
    with pytest.raises(ValueError, match=r"more than two classes|takes squared"):
        classifier(method="sufficient_statistics").fit(X, LABELS)
    with pytest.raises(ValueError, match="takes logistic"):
        nw.PrivateRegressor(
            2.0, 1e-5, method="objective_perturbation", bounds=(-1, 1), target_bounds=(-2, 2), random_state=0
        ).fit(X, NUMBERS)


@pytest.mark.parametrize("what", ["predict", "verify", "report", "evaluate --public-test"])
def test_after_training_nothing_needs_torch_or_scikit_learn(tmp_path, what):
    command, *options = what.split()
    runs_copy = tmp_path / "run"
    runs_copy.mkdir()
    for path in (FOLDERS / "0.1.0-private").iterdir():
        (runs_copy / path.name).write_bytes(path.read_bytes())
    data = [str(FOLDERS / "rows.csv")] if command in ("predict", "evaluate") else []
    code = f"""
import sys
from noisewise.faces.cli import main
sys.argv = ["noisewise", {command!r}, {str(runs_copy)!r}, *{data!r}, *{options!r}]
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
print([name for name in ("torch", "sklearn") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_holds_the_same_thing(tmp_path):
    face = FITS["perceptron"]()
    nw.save(face, tmp_path / "run")
    fitted = runs.load(tmp_path / "run")
    assert np.array_equal(fitted.predictions(fitted.scaling(X)), face.predict(X))
    assert nw.load(tmp_path / "run").get_params()["model"] == [4, 3]
