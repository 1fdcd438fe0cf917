"""Methods are found by themselves: in their folder, and where other packages register them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import metadata

import pytest

from noisewise import methods
from noisewise.methods.dpsgd import DpSgd


@pytest.fixture
def registered(monkeypatch):
    """Another package's entry points, and the names of methods that are known then."""

    def known(**points):
        found = [
            metadata.EntryPoint(name, f"another_package:{value}", methods.ENTRY_POINT_GROUP)
            for name, value in points.items()
        ]
        monkeypatch.setattr(methods, "entry_points", lambda group: found if group == methods.ENTRY_POINT_GROUP else [])
        for remembered in (methods.registry, methods.registered_elsewhere):
            remembered.cache_clear()
        return methods.known_names()

    yield known
    for remembered in (methods.registry, methods.registered_elsewhere):
        remembered.cache_clear()


def test_a_method_of_another_package_is_known_by_its_name_and_not_imported(registered):
    assert registered(mine="Mine")[-1] == "mine" and "mine" not in methods.registry()
    assert methods.registered_elsewhere() == {"mine": "another_package:Mine"}


def test_no_package_takes_the_name_of_another_method(registered):
    with pytest.warns(UserWarning, match="there is a method of that name"):
        registered(dpsgd="Mine")
    assert methods.registry()["dpsgd"] is DpSgd and not methods.registered_elsewhere()


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
        "print(*(name for name in sys.modules if name.startswith(('noisewise.evidence.theory', 'noisewise.learned', "
        "'noisewise.evidence.audit', 'noisewise.evidence.figures', 'matplotlib'))))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
