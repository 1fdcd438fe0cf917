"""Methods are found by themselves: in their folder, and where other packages register them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import numpy as np
import pytest

import noisewise as nw
from noisewise import methods
from noisewise.methods.dpsgd import DpSgd


@dataclass(frozen=True)
class Mine(DpSgd):
    steps: int = 3

    name: ClassVar[str] = "mine"


NOT_A_METHOD = object()


@pytest.fixture
def registered(monkeypatch):
    """Another package's entry points, and the methods that are known then."""

    def known(**points):
        found = [metadata.EntryPoint(name, f"{__name__}:{value}", methods.GROUP) for name, value in points.items()]
        monkeypatch.setattr(methods, "entry_points", lambda group: found if group == methods.GROUP else [])
        methods.registry.cache_clear()
        return methods.registry()

    yield known
    methods.registry.cache_clear()


def test_a_method_of_another_package_is_known_by_its_name_and_trains(registered):
    assert registered(mine="Mine")["mine"] is Mine
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    model = nw.PrivateClassifier(1.0, 1e-5, method="mine", bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    assert model.statement_.data["method"]["name"] == "mine"


@pytest.mark.parametrize(
    "points, reason",
    [
        ({"odd": "NOT_A_METHOD"}, "not a Method"),
        ({"other": "Mine"}, "whose name is 'other'"),
        ({"mine": "Nowhere"}, "Nowhere"),
    ],
)
def test_what_is_no_method_is_left_out_with_a_warning(points, reason, registered):
    with pytest.warns(UserWarning, match=reason):
        known = registered(**points)
    assert "dpsgd" in known and not set(points) & set(known)


def test_no_package_takes_the_name_of_another_method(registered, monkeypatch):
    monkeypatch.setattr(Mine, "name", "dpsgd")
    with pytest.warns(UserWarning, match="there is a method of that name"):
        assert registered(dpsgd="Mine")["dpsgd"] is DpSgd


def test_without_other_packages_nothing_is_said(registered):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "mine" not in registered()


def test_training_and_predicting_need_no_theory_no_meta_training_and_no_attacks():
    code = (
        "import sys, numpy as np, noisewise as nw\n"
        "X = np.random.default_rng(0).uniform(-1, 1, (60, 2))\n"
        "for method in ('descent', 'l2p', 'dynamic'):\n"
        "    model = nw.PrivateClassifier(1.0, 1e-5, method=method, bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)\n"
        "    model.predict(X)\n"
        "print(*(name for name in sys.modules if name.startswith(('noisewise.theory', 'noisewise.learned', "
        "'noisewise.audit', 'noisewise.show', 'matplotlib'))))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
