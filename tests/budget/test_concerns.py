"""Nothing about a budget is silent: one warning of each kind in a process, a banner, and words that follow the number."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import noisewise as nw
from noisewise.accounts import budget_warnings as module
from noisewise.accounts.budget_warnings import concerns
from noisewise.evidence.report.page import report_page
from noisewise.statements.wording import FORMATS, derived_words, format_of, likely
from noisewise.statements.wording import text as text_of

X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
Y = X[:, 0] > 0


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(module, "_said", set())


def said(act) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    budgets = [str(one.message) for one in caught if issubclass(one.category, nw.BudgetWarning)]
    return [text for text in budgets if not text.startswith("budgets add up")]


def fitted(epsilon=1.0, delta=1e-6, **more):
    return nw.PrivateClassifier(epsilon, delta, bounds=(-1, 1), classes=[False, True], method="dpsgd", **more).fit(X, Y)


@pytest.mark.parametrize(
    "epsilon, delta, size, kinds",
    [
        (10.0, 1e-3, None, []),
        (10.1, 1e-3, None, ["epsilon"]),
        (1.0, 1.1e-3, None, ["delta"]),
        (1.0, 1e-4, 1000.0, []),
        (1.0, 1.1e-4, 1000.0, ["delta"]),
        (100.0, 0.1, None, ["epsilon", "delta"]),
        (1.0, 1e-6, 0.0, []),
    ],
)
def test_what_is_said_of_which_budget(epsilon, delta, size, kinds):
    found = concerns(epsilon, delta, size=size)
    assert [*found] == kinds
    assert all("pass " in text for text in found.values())
    assert [*concerns(epsilon, delta, size=size, chosen=False)] == [*kinds, "default"]


def test_each_kind_is_said_once_in_a_process():
    first = said(lambda: fitted(20.0))
    assert len(first) == 1 and first[0].startswith("epsilon is 20, above 10")
    assert said(lambda: fitted(30.0)) == []
    assert len(said(lambda: fitted(1.0, 2e-3))) == 1


def test_a_delta_is_held_against_a_size_only_where_that_is_public():
    assert said(lambda: fitted(1.0, 1e-3)) == []
    (told,) = said(lambda: fitted(1.0, 1e-3, size_is_public=True))
    assert "1/(10 x 300 records)" in told


def test_an_epsilon_that_nobody_chose_is_said_and_one_that_somebody_chose_is_not():
    model = nw.PrivateClassifier(bounds=(-1, 1), classes=[False, True], method="dpsgd")
    assert model.epsilon is None and "epsilon" not in repr(model)
    for same in (model, clone(model), pickle.loads(pickle.dumps(model))):
        module._said.clear()
        (told,) = said(lambda same=same: same.fit(X, Y))
        assert told.startswith("nobody chose epsilon")
    module._said.clear()
    assert said(lambda: fitted(1.0)) == []
    assert said(lambda: model.set_params(epsilon=1.0).fit(X, Y)) == []


def test_simulations_spend_nothing_and_an_account_is_a_budget_too():
    assert said(lambda: fitted(50.0, random_state=1)) == []
    assert len(said(lambda: nw.spending(50.0, 1e-6))) == 1


def test_the_page_has_a_banner_and_a_loaded_model_remembers(tmp_path):
    wide, default, usual = tmp_path / "wide", tmp_path / "default", tmp_path / "usual"
    nw.save(fitted(100.0, 2e-3), wide)
    page = report_page(wide)
    assert "HARDLY A LIMIT" in page and "A LARGE DELTA" in page and "almost as likely" not in page
    nw.save(fitted(None), default)
    assert "NOBODY CHOSE THIS EPSILON" in report_page(default)
    assert nw.load(default).epsilon is None
    assert json.loads((default / "run.json").read_text())["settings"]["epsilon"] == 1.0
    nw.save(fitted(1.0), usual)
    assert nw.load(usual).epsilon == 1.0
    assert 'role="alert"' not in report_page(usual)
    assert all(nw.verify(folder).holds for folder in (wide, default, usual))


@pytest.mark.parametrize(
    "epsilon, words",
    [
        (2.0, "almost as likely with"),
        (2.5, "at most 12.2 times more or less likely with"),
        (10.0, "at most 22100 times more or less likely with"),
        (12.0, "possibly 163000 times more or less likely with"),
        (100.0, "possibly more than a million times more or less likely with"),
    ],
)
def test_the_words_follow_the_number(epsilon, words):
    promise = {"epsilon": epsilon, "delta": 1e-6, "adjacency": "add_remove", "unit": "one record"}
    assert likely({"format": FORMATS[1], "promise": promise}).startswith(words)
    assert likely({"format": FORMATS[0], "promise": promise}).startswith("almost as likely")


def test_new_words_have_a_new_format_and_old_statements_still_verify():
    data = dict(fitted(20.0).statement_.data)
    assert data.pop("code") and data["format"] == FORMATS[3] and "hardly a limit" in text_of(data)
    assert not nw.verify(data).holds  # the format that lists the code
    assert nw.verify(data | {"format": FORMATS[1]}).holds
    older = data | {"format": FORMATS[0]}
    assert not nw.verify(older).holds  # with the new words
    older |= derived_words(older)
    assert nw.verify(older).holds and "almost as likely" in older["guarantee"]
    assert format_of({"epsilon": 2.0}) == FORMATS[0] and format_of({"epsilon": 2.1}) == FORMATS[1]


def test_commands_say_it_too(desk, shell):
    asked = ("--schema", "schema.toml", "--epsilon", 30, "--delta", 1e-6, "--method", "dpsgd", "--out", "run")
    dry = shell("train", "private.csv", *asked, "--dry-run")
    assert dry.code == 0 and "epsilon is 30, above 10" in dry.err
    told = shell("train", "private.csv", *asked, "--json")
    assert told.code == 0 and any("epsilon is 30" in text for text in json.loads(told.out)["warnings"])
    assert "HARDLY A LIMIT" in Path("run/report.html").read_text()
    scored = shell("evaluate", "run", "public.csv", "--epsilon", 12)
    assert scored.code == 0 and "epsilon is 12, above 10" in scored.err
