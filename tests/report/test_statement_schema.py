"""The published schema of a statement: what real runs write is valid, and it agrees with what ``verify`` reads."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget
from noisewise.methods.dpsgd import DpSgd
from noisewise.statements import statement as module
from noisewise.statements.seal import SHAPE, Optional
from noisewise.trusted.arithmetic import PSEUDO_RANDOM, Arithmetic
from noisewise.trusted.events import Gaussian, to_dict

SCHEMA = json.loads(files("noisewise.evidence.report").joinpath("statement.schema.json").read_text(encoding="utf-8"))
VALID = Draft202012Validator(SCHEMA)
X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)


def stated(method: Any = "descent", **changes: Any) -> dict[str, Any]:
    clf = nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method=method, **changes).fit(X, Y)
    data: dict[str, Any] = json.loads(clf.statement_.to_json())
    return data


def for_persons() -> dict[str, Any]:
    people = pd.DataFrame(X, columns=["a", "b", "c"]).assign(who=np.arange(len(X)) // 2)
    clf = nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), unit="who", rows_per_unit=3).fit(people, Y)
    data: dict[str, Any] = json.loads(clf.statement_.to_json())
    return data


def regression() -> dict[str, Any]:
    reg = nw.PrivateRegressor(1.0, 1e-6, bounds=(-1, 1), target_bounds=(-1, 1), method="sufficient_statistics").fit(
        X, X[:, 0]
    )
    data: dict[str, Any] = json.loads(reg.statement_.to_json())
    return data


def prepared() -> dict[str, Any]:
    before = AdditiveMeter(Budget(0.5, 1e-7), "gdp")
    before.spend(Gaussian(before.noise_for(1.0)))
    data = stated()
    events = [to_dict(leaf) for leaf in before.events]
    part = {"epsilon": 0.5, "delta": 1e-7, "meter": before.describe(), "events": events, "what": "bounds"}
    data["promise"] |= {"epsilon": 1.5, "delta": 1.1e-6}
    data["preparation"] = part
    data["arithmetic"] = Arithmetic("bounded", (PSEUDO_RANDOM, "rows run in one padded chunk")).to_dict()
    return data | module.derived_words(data)


RUNS = {
    "descent": stated(),
    "seeded": stated(random_state=0),
    "mlp": stated(DpSgd(steps=3), model="mlp"),
    "public size": stated(size_is_public=True),
    "planned": stated(DpSgd(steps=3)),
    "poisson": stated(DpSgd(steps=3, sampling=("poisson", 0.1))),
    "fixed": stated(DpSgd(steps=3, sampling=("fixed", 0.1)), adjacency="replace_one"),
    "agd": stated("agd"),
    "persons": for_persons(),
    "objective": stated("objective_perturbation"),
    "regression": regression(),
    "nonprivate": stated("nonprivate"),
    "prepared": prepared(),
}


def shaped(data: Any) -> bool:
    """Whether ``verify`` reads it at all."""
    try:
        module.check_shape(data)
    except (ValueError, TypeError):
        return False
    return True


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every object of a document whose fields are fixed (the settings of a method are free)."""
    if path[-1:] == ("settings",):
        return []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return ([path] if isinstance(data, dict) else []) + [p for key, value in items for p in places(value, (*path, key))]


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format"]["enum"] == list(module.FORMATS)


@pytest.mark.parametrize("run", RUNS)
def test_what_real_runs_write_is_valid(run):
    data = RUNS[run]
    assert [error.message for error in VALID.iter_errors(data)] == []
    assert shaped(data)
    assert nw.verify(data).holds == (run not in ("seeded", "nonprivate")), nw.verify(data).reason


def test_the_schema_and_the_reader_name_the_same_fields():
    def fields(shape: Any, schema: Any) -> None:
        shape = getattr(shape, "shape", shape)
        schema = schema["oneOf"][1] if "oneOf" in schema else schema
        if isinstance(shape, dict):
            assert list(shape) == list(schema["properties"])
            assert [name for name, inner in shape.items() if not isinstance(inner, Optional)] == schema["required"]
            assert schema["additionalProperties"] is False
            for name, inner in shape.items():
                fields(inner, schema["properties"][name])

    fields(SHAPE, SCHEMA)


@pytest.mark.parametrize("run", ["descent", "planned", "nonprivate", "prepared"])
def test_a_field_that_is_missing_or_unknown_fails_both(run):
    data = RUNS[run]
    for path in places(data):
        extra = copy.deepcopy(data)
        at(extra, path)["pure_epsilon"] = 0.0
        assert not VALID.is_valid(extra), path
        assert not nw.verify(extra).holds
        assert run == "nonprivate" or "pure_epsilon" in nw.verify(extra).reason
        for field in at(data, path):
            if path[:1] == ("code",) and len(path) > 1:
                continue  # which files and libraries there are is not fixed
            if path == () and field in ("arithmetic", "isolation", "prepared"):
                continue  # older statements do not say
            less = copy.deepcopy(data)
            del at(less, path)[field]
            assert not VALID.is_valid(less), (path, field)
            assert not nw.verify(less).holds, (path, field)
            if len(path) == 0 and field != "code":  # which older formats lack
                assert not shaped(less)


@pytest.mark.parametrize("value", [None, "x", -1, 0, True, [], {}, [{}], 1e9])
def test_values_that_the_schema_refuses_do_not_verify_and_the_other_way_round(value):
    """Neither is weaker in what it says about kinds: a value of the wrong kind fails both."""
    data = RUNS["prepared"]
    for path in places(data):
        for field, now in at(data, path).items():
            other = copy.deepcopy(data)
            at(other, path)[field] = value
            if not VALID.is_valid(other):
                assert not nw.verify(other).holds, (path, field, value)
            elif nw.verify(other).holds:
                free = {
                    "settings",
                    "hyper_parameters",
                    "assumed",
                    "assumptions",
                    "shape",
                    "parameters",
                    "loss",
                    "kind",
                    "name",
                    "what",
                }
                free |= {"prepared", "share", "noisewise", "count", "noise_multiplier", "epsilon", "delta"}
                free |= {"dependencies", *data["code"]["dependencies"]}
                assert now == value or field in free, (path, field, value)
