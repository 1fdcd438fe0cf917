"""An exported model says what predict says, up to rounding: in JSON by the programs of the docs, as a Python file, as ONNX."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from exported_models import MAKERS, fitted, rows_for, told
from page_programs import programs

import noisewise as nw
from noisewise.evidence.export import elsewhere
from noisewise.evidence.export.formats import exported
from noisewise.evidence.export.plain_model import plain_model
from noisewise.tables.schema import Column, Schema
from noisewise.tables.values import key

ROUNDING = {"rtol": 1e-6, "atol": 1e-6}


def agree(name: str, predicted: object, scores: object = None, probabilities: object = None) -> None:
    """Predictions and probabilities are those of noisewise; a class may differ where two scores are the same."""
    expected, expected_scores, shares = told(name)
    if fitted(name).classes is None:
        np.testing.assert_allclose(np.array(predicted), expected, rtol=1e-6, atol=1e-5)
        return
    if scores is not None:
        np.testing.assert_allclose(scores, expected_scores, **ROUNDING)
    if shares is not None:
        np.testing.assert_allclose(probabilities, shares, **ROUNDING)
    sure = np.abs(expected_scores) > 1e-5 if expected_scores.ndim == 1 else np.ptp(expected_scores, axis=1) > 1e-5
    assert np.asarray(predicted)[sure].tolist() == expected[sure].tolist() and sure.mean() > 0.9


def records(name: str) -> list[dict[str, object]]:
    """Rows as another language has them: texts in their shortest form, and null."""
    frame, model = rows_for(name), fitted(name)
    names = list(frame) if model.encoder is not None or model.columns is not None else ["x0", "x1", "x2"]
    rows = [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False)]
    return [{k: plain(value) for k, value in row.items()} for row in rows]


def plain(value: object) -> object:
    if value is None or value != value:
        return None
    return key(value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", MAKERS)
def test_some_lines_of_python_score_the_json(name):
    scope: dict[str, object] = {}
    exec(programs("python")[0], scope)
    model = json.loads(exported(fitted(name), "json"))
    answers = [scope["predict"](model, record) for record in records(name)]
    if fitted(name).classes is None:
        agree(name, answers)
    else:
        agree(name, [label for label, _ in answers], None, [shares for _, shares in answers])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("name", ["additive", "additive, three classes", "linear", "perceptron regression"])
def test_javascript_scores_the_json(name, tmp_path):
    kept = [np.inf not in row.values() and -np.inf not in row.values() for row in records(name)]  # JSON has none
    rows = [row for row, finite in zip(records(name), kept, strict=True) if finite]
    (tmp_path / "model.json").write_bytes(exported(fitted(name), "json"))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    ask = "const read = (file) => JSON.parse(require('fs').readFileSync(file, 'utf8'));\n"
    ask += "const model = read('model.json');\n"
    ask += "console.log(JSON.stringify(read('rows.json').map((row) => predict(model, row))));\n"
    (tmp_path / "ask.js").write_text(programs("js")[0] + ask)
    said = subprocess.run(["node", "ask.js"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    expected, _, shares = told(name)
    answers, kept = json.loads(said), np.array(kept)
    assert kept.sum() > 50
    if fitted(name).classes is None:
        np.testing.assert_allclose(answers, expected[kept], rtol=1e-6, atol=1e-5)
        return
    assert [label for label, _ in answers] == expected[kept].tolist()
    np.testing.assert_allclose([share for _, share in answers], shares[kept], **ROUNDING)


def module(name: str, folder) -> object:
    """The exported Python file, imported."""
    path = folder / "exported_model.py"
    path.write_bytes(exported(fitted(name), "sklearn"))
    spec = importlib.util.spec_from_file_location("exported_model", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules["exported_model"] = made
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", MAKERS)
def test_one_python_file_predicts(name, tmp_path):
    model, rows = module(name, tmp_path).Model(), rows_for(name)
    if fitted(name).classes is None:
        agree(name, model.predict(rows))
        return
    assert model.classes_.tolist() == fitted(name).classes.tolist()
    shares = model.predict_proba(rows) if fitted(name).likely else None
    agree(name, model.predict(rows), model.decision_function(rows), shares)
    assert hasattr(model, "predict_proba") == fitted(name).likely


def test_the_python_file_is_an_estimator_that_is_fitted(tmp_path):
    from sklearn.base import clone, is_classifier
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    name = "additive"
    model, rows, (expected, _, _) = module(name, tmp_path).Model(), rows_for(name), told(name)
    piped = make_pipeline(FunctionTransformer(), model)
    assert is_classifier(model) and piped.predict(rows).tolist() == expected.tolist()
    assert clone(model).score(rows, expected) == 1.0
    assert FrozenEstimator(model).fit(rows, expected).predict(rows).tolist() == expected.tolist()
    assert pickle.loads(pickle.dumps(model)).predict(rows).tolist() == expected.tolist()
    assert model.statement_ == fitted(name).statement.data
    assert model.predict(rows.to_dict("list")).tolist() == expected.tolist()
    assert model.predict(rows.to_numpy(dtype=object)).tolist() == expected.tolist()
    with pytest.raises(NotImplementedError, match="not trained again"):
        model.fit(rows, expected)
    with pytest.raises(ValueError, match="lacks the column 'age'"):
        model.predict(rows.drop(columns="age"))
    with pytest.raises(ValueError, match="not among its categories"):
        model.predict(rows.assign(job="king"))
    with pytest.raises(ValueError, match="holds text where numbers"):
        model.predict(rows.assign(age="old"))


def test_the_python_file_needs_numpy_alone(tmp_path):
    (tmp_path / "model.py").write_bytes(exported(fitted("additive"), "sklearn"))
    code = (
        "import sys\n"
        "for name in ('sklearn', 'noisewise', 'pandas', 'torch', 'scipy'): sys.modules[name] = None\n"
        "from model import Model\n"
        "row = dict(age=[30], hours=[None], pay=['10'], score=[1], job=['nurse'], code=[1.0], own=['maybe'])\n"
        "print(*Model().predict(row), *Model().predict_proba(row).round(9).tolist()[0])"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    model = fitted("additive")
    row = {"age": [30], "hours": [None], "pay": ["10"], "score": [1], "job": ["nurse"], "code": [1.0], "own": ["maybe"]}
    cells = model.encoder.table(pd.DataFrame(row))
    label, *shares = said.stdout.split()
    assert label == model.predictions(cells)[0]
    np.testing.assert_allclose(np.array(shares, float), model.probabilities(cells)[0], **ROUNDING)


ODD = (
    1, 1.0, "1", " 1.00 ", True, "TRUE", np.True_, "01", 0.5, "5e-1", "clerk ", "+1", "-0", "1e400", ".", "e5", "1.", ".5",
    np.float32(0.1), np.int8(3), 2**70, -0.0, 1e22, "1e22", "\u0661", "inf", "1_000", "0x1", "", " ",
)  # fmt: skip


def test_a_category_has_the_same_text_there():
    assert [elsewhere.key(value) for value in ODD] == [key(value) for value in ODD]


def test_names_cannot_run_as_code(tmp_path):
    from dataclasses import replace

    model = fitted("linear, array")
    odd = '"""\nimport os\nos.abort()\n"""\\'
    (tmp_path / "model.py").write_bytes(exported(replace(model, columns=(odd, "b", "c")), "sklearn"))
    code = "from model import Model; print(Model().feature_names_in_[0])"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout == f"{odd}\n"


def test_a_loss_of_another_package_is_refused_by_name():
    from dataclasses import replace

    model = fitted("linear")
    strange = replace(model, network=replace(model.network, loss="odd, from elsewhere"))
    with pytest.raises(ValueError, match="'odd' comes from another package"):
        exported(strange, "json")


@pytest.mark.parametrize("name", MAKERS)
def test_onnx_predicts(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    session = onnxruntime.InferenceSession(exported(fitted(name), "onnx"))
    rows = rows_for(name)
    said = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds(name, rows)), strict=True))
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["statement"]) == json.loads(json.dumps(fitted(name).statement.data)) and meta["promise"]
    if fitted(name).classes is None:
        agree(name, said["prediction"])
        return
    assert ("probabilities" in said) == fitted(name).likely
    agree(name, said["label"], said["scores"], said.get("probabilities"))


def feeds(name: str, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """What the session takes."""
    model = fitted(name)
    if model.encoder is None and model.columns is None:
        return {"X": rows.to_numpy(dtype=float)}
    texts = set() if model.encoder is None else {c.name for c in model.encoder.schema.features if c.kind == "category"}
    told_ = {}
    for column in rows:
        cells = ["" if plain(v) is None else plain(v) for v in rows[column]]
        cells = [key(v) for v in cells] if column in texts else rows[column]
        told_[column] = np.array(cells, dtype=object if column in texts else float)[:, None]
    return told_


def test_onnx_says_nothing_of_a_category_that_is_refused():
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    session = onnxruntime.InferenceSession(exported(fitted("additive"), "onnx"))
    rows = rows_for("additive").assign(job=["king", *["nurse"] * 149])
    scores = session.run(["scores"], feeds("additive", rows))[0]
    assert np.isnan(scores[0]) and np.isfinite(scores[1:]).all()


@pytest.mark.parametrize("method", ["dpsgd", "auto"])
def test_a_column_of_dates_is_refused_by_name(method):
    """An exported model reads numbers: it would take days for years."""
    columns = (Column("age", "number", 0, 90), Column("born", "number", "1920-01-01", "2010-01-01", unit="years"))
    X = pd.DataFrame({"age": np.arange(60.0), "born": pd.date_range("1930-01-01", periods=60, freq="400D")})
    model = nw.PrivateClassifier(4.0, 1e-6, random_state=1, schema=Schema(columns), method=method).fit(X, X.age > 30)
    with pytest.raises(ValueError, match=r"'born' is a date or a time, .*\(years\).*noisewise predict"):
        plain_model(model.fitted_)  # of which every format is made
