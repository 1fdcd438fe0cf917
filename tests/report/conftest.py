"""A run folder as the program writes it, made from real (small) runs: what the report is tested on."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.evidence import runs
from noisewise.methods.descent import DeflatedDescent
from noisewise.tables.generated import census
from noisewise.trusted.accountants.gdp import mu_of

CREATED = "2025-03-01T12:30:59+00:00"


def dump(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def make_run(path: Path, *, rows: int = 3000, steps: int | None = 60, private: bool = False, repeats: int = 2) -> Path:
    """Write a run folder with every part: a classifier on a generated census, by descent at epsilon 1."""
    people = census(2 * rows)
    X, y, fresh, truth = people.X[:rows], people.y[:rows], people.X[rows:], people.y[rows:]

    def fitted(seed: int | None, method: Any = None) -> nw.PrivateClassifier:
        method = DeflatedDescent(steps=steps) if method is None else method
        return nw.PrivateClassifier(1.0, 1e-6, schema=people.schema, method=method, random_state=seed).fit(X, y)

    model = fitted(None if private else 0)
    warning = "children: no bounds in the schema file, those of the public rows were taken"
    nw.save(model, path, warnings=[warning])
    run = json.loads((path / "run.json").read_text(encoding="utf-8"))
    dump(path / "run.json", run | {"target": "income", "classes": ["below 50k", "above 50k"], "created": CREATED})
    dump(path / "evaluation.json", _evaluations(model, fresh, truth))
    dump(path / "comparison.json", _comparison(fitted, fresh, truth, rows, repeats))
    audit = {
        "kind": "epsilon_lower_bound", "lower_bound": 0.31, "claimed": 1.0, "confidence": 0.95, "runs": 1000,
        "verdict": "consistent with the promise", "when": CREATED,
    }  # fmt: skip
    dump(path / "audit.json", [audit])
    runs.reseal(path)
    return path


def _evaluations(model: nw.PrivateClassifier, X: Any, y: Any) -> list[dict[str, Any]]:
    right, epsilon, delta = model.predict(X) == y, 0.1, 1e-7
    value, spread = float(right.mean()), 1.96 * float(right.std()) / math.sqrt(len(y))
    std = 1 / mu_of(epsilon, delta)
    noisy = float(right.sum() + np.random.default_rng(0).normal(0, std)) / len(y)
    common = {"metric": "accuracy", "when": CREATED}
    public = {"value": value, "interval": [value - spread, value + spread], "rows": "public", "file": "fresh.csv"}
    bought = {"value": noisy, "interval": [noisy - 1.96 * std / len(y), noisy + 1.96 * std / len(y)], "rows": "private"}
    return [
        common | public | {"epsilon": None, "delta": None},
        common | bought | {"epsilon": epsilon, "delta": delta, "file": "private.csv"},
    ]


def _comparison(fitted: Any, X: Any, y: Any, rows: int, repeats: int) -> dict[str, Any]:
    lines = []
    for method in ("descent", "dpsgd", "output_perturbation", "nonprivate"):
        scores = [fitted(seed, method).score(X, y) for seed in range(repeats)]
        error = float(np.std(scores, ddof=1)) / math.sqrt(repeats)
        line = {"method": method, "mean": float(np.mean(scores)), "standard_error": error or None}
        lines.append(line | {"refused": None, "public": False})
    refused = "public is missing; ppsgd needs public rows, pass them or take another method"
    lines.append({"method": "ppsgd", "mean": None, "standard_error": None, "refused": refused, "public": True})
    budget = {"epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove"}
    return {**budget, "size": rows, "repeats": repeats, "metric": "accuracy", "rows": lines}


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that is not to be changed."""
    return make_run(tmp_path_factory.mktemp("ready") / "run")


@pytest.fixture
def changed(ready: Path, tmp_path: Path) -> Any:
    """A copy of the run folder with one document changed: ``changed("run.json", lambda document: ...)``."""
    folder = tmp_path / "run"
    shutil.copytree(ready, folder)

    def change(name: str, how: Any) -> Path:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        result = how(document)
        dump(folder / name, document if result is None else result)
        runs.reseal(folder)
        return folder

    return change
