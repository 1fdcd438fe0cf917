"""The reading list of a run: nothing that it executed between the records and the answers is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from desk import SCHEMA, people

import noisewise
from noisewise.curator import KINDS
from noisewise.statements import reading_list as reading
from noisewise.statements.statement import HOMES

PACKAGE = Path(noisewise.__file__).parent
TRACED = """
import inspect, json, sys, threading, warnings
warnings.simplefilter("ignore")
import noisewise as nw
root, seen, importing = str(__import__("pathlib").Path(nw.__file__).parent) + "/", set(), [0]

def watch(frame, event, _):
    code = frame.f_code
    if code.co_name == "<module>":
        importing[0] += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing[0] and code.co_filename.startswith(root) and code.co_flags & inspect.CO_NEWLOCALS:
        seen.add(code.co_filename.removeprefix(root))

threading.setprofile(watch)
sys.setprofile(watch)
%s
sys.setprofile(None)
print(json.dumps([statement.data["code"]["rings"], sorted(seen)]))
"""
CSV = """
made = nw.PrivateClassifier(1.0, 1e-6, schema=nw.read_schema("schema.toml"), %s).fit_files("people.csv")
statement = made.statement_
"""
MODULE = """
import torch
from torch import nn
X, y = torch.randn(300, 1, 8, 8), torch.randint(0, 3, (300,))
module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
run = nw.fit(module, nn.CrossEntropyLoss(), (X, y), budget=nw.Budget(4.0, 1e-5), epochs=1, batch_size=100, size_is_public=True)
statement = run.statement
"""
RUNS = {
    "a CSV, defaults": CSV % "",
    "a perceptron": CSV % "model='mlp', method='dpsgd'",
    "a walk": CSV % "method='output_perturbation'",
    "a module": MODULE,
}
LIKE = (
    "trusted/",
    "data/",
    "budget/",
    "curator/",
    "train.py",
    "asking.py",
)  # code that sees records, or pays; the rest sees answers only
SEES_NO_RECORD = {  # executed beside these, before a record is read or after the last answer
    "accounts/replay.py": "verification", "accounts/__init__.py": "names", "trusted/fast/__init__.py": "names",
    "tables/codebook.py": "public guesses of a size", "tables/classes.py": "words of classes",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    people(600).to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


@pytest.mark.parametrize("which", RUNS)
def test_nothing_that_was_executed_is_missing(which, folder):
    command = [sys.executable, "-c", TRACED % RUNS[which]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files, seen = json.loads(done.stdout)
    listed = {path: digest for ring in files for path, digest in ring.items()}
    executed = {path for path in seen if path.startswith(LIKE)} - {*SEES_NO_RECORD}
    assert len(executed) > 40 and sorted(executed - {*listed}) == []
    assert all(digest == reading.digest_of(path) for path, digest in listed.items())


def test_torch_is_said_to_have_been_used_where_it_was(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for model, used in (("linear", False), ("mlp", True)):
        made = noisewise.PrivateClassifier(
            1.0, 1e-6, schema=noisewise.read_schema("schema.toml"), method="dpsgd", model=model
        )
        code = made.fit_files("people.csv").statement_.data["code"]
        assert ("torch" in code["dependencies"]) == (reading.TORCH in code["rings"][1]) == used


def test_the_first_ring_is_short():
    lines = [len((PACKAGE / "trusted" / f"{name}.py").read_text().splitlines()) for name in reading.RING_1.split()]
    assert len(lines) == 7 and sum(lines) <= 1600


def test_every_name_in_the_lists_is_a_file():
    lists = [
        reading.CURATOR,
        reading.NOISE,
        reading.PRICES,
        reading.PAYING,
        *reading.USES.values(),
        *reading.SOURCES.values(),
    ]
    lists += [
        *reading.STORES.values(),
        *reading.CURRENCIES.values(),
        *reading.CARRIERS.values(),
        *HOMES.values(),
    ]
    names = {name for text in lists for name in text.split()}
    assert len(names) > 100
    assert not [name for name in names if not (name.endswith("/*") or (PACKAGE / f"{name}.py").exists())]
    assert {*HOMES} == {*KINDS}


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "trusted/../../x.py", "trusted//gate.py", "a" * 300 + ".py"]
)
def test_a_statement_of_a_stranger_cannot_name_other_files(path):
    assert reading.digest_of(path) is None
    assert reading.installed({"rings": [{path: "0" * 64}]})[0]["installed"] is False


def test_verify_compares_the_code_with_what_is_installed(folder, monkeypatch, shell):
    fitted = noisewise.PrivateClassifier(
        1.0, 1e-6, schema=noisewise.read_schema(folder / "schema.toml"), method="dpsgd"
    )
    noisewise.save(fitted.fit_files(folder / "people.csv"), folder / "run")
    done = shell("verify", folder / "run", "--reading-list", "--json")
    files = json.loads(done.out)["files"]
    assert done.code == 0 and [one["path"] for one in files[:2]] == ["trusted/events.py", "trusted/counts.py"]
    assert all(one["installed"] and one["ring"] in (1, 2, 3) and one["lines"] for one in files)
    assert json.loads(shell("verify", folder / "run", "--json").out)["other_files"] == 0
    assert "Ring 1, always read: 7 files" in shell("verify", folder / "run", "--reading-list").out

    monkeypatch.setattr(reading, "digest_of", lambda path: "0" * 64)
    done = shell("verify", folder / "run")
    assert done.code == 0 and f"note: {len(files)} of the {len(files)} files" in done.out
    assert "are not those that are installed here" in shell("verify", folder / "run", "--reading-list").out


def test_a_statement_without_a_list_says_so(tmp_path, shell):
    (tmp_path / "statement.json").write_text('{"code": {"rings": [1]}}')
    done = shell("verify", tmp_path / "statement.json", "--reading-list")
    assert done.code == 2 and "no statement with a list of code" in done.err
