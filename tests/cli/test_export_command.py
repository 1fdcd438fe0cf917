"""``noisewise export``: a run folder in, one file out that predicts without noisewise."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def test_a_python_file_predicts_as_predict_does(run, shell):
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    told = shell("export", run, "--to", "sklearn")
    assert told.code == 0 and told.out.startswith("Written: model.py, ")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    expected = pd.read_csv(StringIO(shell("predict", run, "public.csv").out))
    code = (
        "import pandas as pd; from model import Model; t = pd.read_csv('public.csv', dtype=str); m = Model(); "
        "pd.DataFrame(m.predict_proba(t)).assign(p=m.predict(t)).to_csv('there.csv', index=False)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    there = pd.read_csv("there.csv")
    np.testing.assert_allclose(there[["0", "1"]], expected[["probability of high", "probability of low"]], atol=1e-5)
    assert there.p.tolist() == expected["predicted income"].tolist()


def test_json_has_the_statement(run, shell):
    told = shell("export", run, "--to", "json", "--out", "m.json", "--json")
    document = json.loads(Path("m.json").read_text())
    assert json.loads(told.out) == {"written": "m.json", "format": "json", "bytes": Path("m.json").stat().st_size}
    assert document["statement"] == json.loads((run / "statement.json").read_text())
    assert document["format"] == "noisewise-export/1" and document["target"] == "income"
    assert document["output"] == {"classes": ["high", "low"], "probabilities": True, "cut": None}


def test_bad_input_is_one_line(run, shell, monkeypatch):
    Path("mine.json").write_text("mine")
    for arguments, word in (
        ((run, "--to", "pickle"), "json, onnx, sklearn"),
        ((run,), "--to"),
        ((run, "--to", "json", "--out", "mine.json"), "--force"),
        ((run, "--to", "json", "--out", run), "is a folder"),
        ((run, "--to", "json", "--out", "none/m.json"), "cannot be written"),
        (("nowhere", "--to", "json"), "nowhere"),
    ):
        told = shell("export", *arguments)
        assert told.code == 2 and word in told.err and told.err.count("\n") == 1 and told.out == ""
    assert Path("mine.json").read_text() == "mine"
    assert shell("export", run, "--to", "json", "--out", "mine.json", "--force").code == 0
    monkeypatch.setattr("noisewise.evidence.export.formats.find_spec", lambda name: None)
    told = shell("export", run, "--to", "onnx")
    assert told.code == 2 and "pip install 'noisewise[export]'" in told.err and told.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["run", "--to", "pickle"], ["nowhere", "--to", "json"]])
def test_a_refusal_loads_nothing_heavy(arguments):
    code = (
        "import sys\nfrom noisewise.faces.cli import main\n"
        f"sys.argv = ['noisewise', 'export', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in ('torch', 'sklearn', 'pandas', 'onnx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_help_has_an_example(shell):
    assert "noisewise export run --to json --out model.json" in " ".join(shell("export", "--help").out.split())
