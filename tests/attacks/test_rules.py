"""Statements of runs that the curator refuses: ``verify`` once priced their events and said yes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.budget import Budget
from noisewise.budget.meters import PlanMeter
from noisewise.events import from_dict
from noisewise.statement_words import derived_words, text

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)
PUBLIC = (np.random.default_rng(1).uniform(-1, 1, (60, 3)), np.tile([0, 1], 30))


def saved(place, method, **settings):
    return nw.save(nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method=method, **settings).fit(X, Y, PUBLIC), place)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("made")
    return {
        "perceptron": saved(home / "perceptron", "dpsgd", model=(4,)),
        "walk": saved(home / "walk", "output_perturbation", size_is_public=True),
        "objective": saved(home / "objective", "objective_perturbation"),
        "one pass": saved(home / "one-pass", "pnsgd", adjacency="replace_one"),
        "descent": saved(home / "descent", "descent", size_is_public=True),
    }


def forged(folder: Path, change) -> Path:
    """A folder with another statement that agrees with itself, its text and settings, under a new seal."""
    statement, run = (json.loads((folder / name).read_text()) for name in ("statement.json", "run.json"))
    change(statement, run)
    statement |= derived_words(statement)
    (folder / "statement.json").write_text(json.dumps(statement))
    (folder / "statement.txt").write_text(text(statement) + "\n")
    (folder / "run.json").write_text(json.dumps(run))
    seal = json.loads((folder / "seal.json").read_text())
    seal["sha256"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in seal["sha256"]}
    (folder / "seal.json").write_text(json.dumps(seal))
    return folder


def exact(statement, run):
    statement["arithmetic"] = {"grade": "exact", "assumptions": ["AES is pseudo-random"]}


def of_persons(statement, run):
    statement["promise"]["unit"] = "one person, at most 1000 rows"
    run["settings"] |= {"rows_per_unit": 1000, "size_is_public": True}


def with_or_without(statement, run):
    """About half the epsilon: a plan of one Gaussian is priced as half as far apart."""
    statement["promise"] |= {"adjacency": "add_remove", "epsilon": 0.52 * statement["promise"]["epsilon"]}
    budget = Budget(statement["promise"]["epsilon"], statement["promise"]["delta"], "add_remove")
    statement["meter"] = PlanMeter(budget, [from_dict(event) for event in statement["events"]], "gdp").describe()
    run["settings"] |= {"adjacency": "add_remove", "epsilon": statement["promise"]["epsilon"], "size_is_public": True}


def with_loss(name):
    def change(statement, run):
        statement["model"]["loss"] = name
        run["model"] = statement["model"]

    return change


def of_a_perceptron(statement, run):
    """Its loss is not convex."""
    statement["model"] |= {"kind": "MLP", "shape": [4, 2, 1], "parameters": 13}
    run["model"] = statement["model"]
    run["settings"]["model"] = "mlp"


def without_assumptions(statement, run):
    statement["arithmetic"]["assumptions"] = []


def where(name, isolation):
    """Where the method is said to have run."""

    def change(statement, run):
        statement["method"]["name"] = run["settings"]["method"] = name
        statement["isolation"] = isolation

    return change


FORGED = {
    "a walk on a perceptron": ("walk", of_a_perceptron),
    "a walk on a loss with a kink": ("walk", with_loss("hinge")),
    "a walk of a classifier with one class": ("walk", with_loss("softmax")),
    "a minimiser of a loss without a slope's bound": ("objective", with_loss("squared")),
    "a walk that assumes nothing": ("walk", without_assumptions),
    "a perceptron that assumes nothing": ("perceptron", without_assumptions),
    "a perceptron graded exact": ("perceptron", exact),
    "a walk graded exact": ("walk", exact),
    "a minimiser graded exact": ("objective", exact),
    "a walk for persons": ("walk", of_persons),
    "one pass for persons": ("one pass", of_persons),
    "one pass with or without a record": ("one pass", with_or_without),
    "a stranger's method that is shipped": ("descent", where("strangers.one:Method", "shipped")),
    "a stranger's method in the caller's own code": ("descent", where("strangers.one:Method", "caller's own code")),
    "a guest with the name of a shipped method": ("descent", where("dpsgd", "sandbox")),
    "a shipped method in a process": ("walk", where("output_perturbation", "process")),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("alone", [False, True], ids=["folder", "statement alone"])
def test_what_the_curator_refuses_is_refused(made, tmp_path, shell, name, alone):
    which, change = FORGED[name]
    folder = Path(shutil.copytree(made[which], tmp_path / "run"))
    assert shell("verify", folder).code == 0
    told = shell("verify", forged(folder, change) / ("statement.json" if alone else ""))
    assert told.code == 1 and told.out.startswith("no:"), told


def changed(folder: Path, change, kept=lambda statement, run: None) -> Path:
    """A folder with other lines in its trace, under a new seal."""
    trace = json.loads((folder / "trace.json").read_text())
    change(trace["rows"])
    (folder / "trace.json").write_text(json.dumps(trace))
    return forged(folder, kept)


def other_noise(rows):
    rows[-1]["noise_std"] /= 100


def lost(rows):
    for row in rows:
        row |= {"question": "lost", "noise_std": 0.0, "norm": None, "clip": None}


def lost_with_an_answer(rows):
    rows[-1] |= {"question": "lost"}


def with_clip(rows):
    rows[0]["clip"] = 1.0


def sized(size):
    """Sums divided by another size, and noise that fits."""

    def change(statement, run):
        run["size"] = size

    def lines(rows):
        for row in rows:
            row["noise_std"] *= 300 / size if row["question"] == "gradient" else 1

    return lines, change


LINES = {
    "noise of one line, and no size": ("descent", other_noise, lambda statement, run: run.pop("size")),
    "a size beyond all data": ("descent", *sized(1e17)),
    "a walk that was lost": ("walk", lost),
    "a lost answer with a norm": ("descent", lost_with_an_answer),
    "a walk with a clip": ("walk", with_clip),
    "a moment with a clip": ("descent", with_clip),
}


@pytest.mark.parametrize("name", LINES)
def test_a_trace_that_no_curator_writes_is_refused(made, tmp_path, name):
    which, change, *rest = LINES[name]
    folder = changed(Path(shutil.copytree(made[which], tmp_path / "run")), change, *rest)
    verdict = nw.verify(folder)
    assert not verdict.holds and "contradict" in verdict.reason, verdict


def test_a_trace_of_sums_that_were_divided_alike_needs_no_size(made, tmp_path):
    folder = Path(shutil.copytree(made["descent"], tmp_path / "run"))
    assert nw.verify(changed(folder, lambda rows: None, lambda statement, run: run.pop("size"))).holds
