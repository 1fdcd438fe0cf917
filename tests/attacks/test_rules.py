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
from noisewise.statements.wording import derived_words, text
from noisewise.trusted.events import from_dict
from noisewise.trusted.meter import PlanMeter

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
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("alone", [False, True], ids=["folder", "statement alone"])
def test_what_the_curator_refuses_is_refused(made, tmp_path, shell, name, alone):
    which, change = FORGED[name]
    folder = Path(shutil.copytree(made[which], tmp_path / "run"))
    assert shell("verify", folder).code == 0
    told = shell("verify", forged(folder, change) / ("statement.json" if alone else ""))
    assert told.code == 1 and told.out.startswith("no:"), told
