"""Accounts attacked: ways to spend without one noticing."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

import noisewise as nw
from noisewise.budget import Budget, BudgetExhausted
from noisewise.budget.purse import Purse
from noisewise.methods.descent import DeflatedDescent

BUDGET = Budget(1.0, 1e-6)


@cache
def rows(n=120):
    X = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return X, X[:, 0] > 0


def model(epsilon=1.0, delta=1e-6, **changes):
    method = DeflatedDescent(steps=2)
    return nw.PrivateClassifier(epsilon, delta, **{"bounds": (-1, 1), "method": method, **changes})


@pytest.mark.parametrize(
    "purse",
    [False, 0, "", "patients", BUDGET, object()],
    ids=lambda one: type(one).__name__ + str(one)[:3] if type(one) is not object else "object",
)
@pytest.mark.parametrize("how", ["fit", "selection", "exponential", "none"])
def test_what_is_no_purse_does_not_lead_past_the_account(purse, how):
    face = model() if how == "fit" else nw.PrivateSearchCV(model(), [{}, {"max_grad_norm": 0.5}], how=how)
    with nw.spending(BUDGET, dataset="patients") as account, pytest.raises(TypeError, match="purse is a"):
        face.fit(*rows(), purse=purse)
    assert account.entries == ()


def test_an_evaluation_does_not_lead_past_it_either():
    from noisewise.evidence.bought_quality import private_quality

    fitted = model(random_state=0).fit(*rows()).fitted_
    with nw.spending(BUDGET, dataset="patients"), pytest.raises(TypeError, match="purse is a"):
        private_quality(fitted, fitted.scaling(rows()[0]), rows()[1], BUDGET, purse=0)


def test_many_small_lacks_do_not_add_up():
    """A lack below rounding is forgiven by giving less, never by taking more."""
    with nw.spending(BUDGET, dataset="patients") as account:
        for share in (0.5, 0.25, 0.125, 0.125 * (1 + 5e-11)):
            model(share, share * BUDGET.delta).fit(*rows())
        with pytest.raises(BudgetExhausted):
            model(0.01, 1e-8).fit(*rows())
    taken = [entry.counted for entry in account.entries]
    assert sum(Fraction(one.cost) for one in taken) <= Fraction(BUDGET.epsilon)
    assert sum(Fraction(one.delta) for one in taken) <= Fraction(BUDGET.delta)


def test_a_fit_inside_a_fit_pays_too():
    """What a method does inside a step is in the same process, and finds the same account."""
    tries = []

    def inside(*_):
        if not tries:
            tries.append(None)
            with pytest.raises(BudgetExhausted):
                model(0.9, 5e-7).fit(*rows())

    with nw.spending(BUDGET, dataset="patients") as account:
        model(0.5, 5e-7).watch(inside).fit(*rows())
    assert tries and len(account.entries) == 1


def test_a_search_on_threads_takes_one_part():
    with nw.spending(BUDGET, dataset="patients") as account:
        with ThreadPoolExecutor(4) as pool:
            made = [nw.PrivateSearchCV(model(), [{}], how="selection") for _ in range(4)]
            done = [pool.submit(one.fit, *rows()) for one in made]
        refused = [one.exception() for one in done]
    assert sum(one is None for one in refused) == 1 and len(account.entries) == 1
    assert all(one is None or isinstance(one, BudgetExhausted) for one in refused)


def test_a_search_that_was_sent_elsewhere_from_inside_remembers():
    with nw.spending(BUDGET, dataset="patients"):
        sent = pickle.dumps(nw.PrivateSearchCV(model(), [{}], how="selection"))
    assert pickle.loads(sent).estimator._sent[0] == "patients"


def test_a_purse_of_ones_own_is_still_taken():
    purse = Purse(BUDGET)
    with nw.spending(BUDGET, dataset="patients") as account:
        model().fit(*rows(), purse=purse)
    assert len(purse.entries) == 1 and account.entries == ()


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_method_that_says_at_times_that_it_is_not_private_changes_nothing(turn):
    """What it says decides neither whether an account is named nor whether an estimator was sent from inside of one."""
    reads = []

    @dataclass(frozen=True)
    class Shifty(DeflatedDescent):
        name: ClassVar[str] = "shifty"

        @property
        def private(self):
            reads.append(None)
            return len(reads) != turn

    face = model(method=Shifty(steps=2))
    with nw.spending(BUDGET, dataset="patients") as account:
        try:
            face.fit(*rows())
        except TypeError as refused:
            assert "says that it is not private" in str(refused) and account.entries == ()
        else:
            assert "account" in face.statement_.data and len(account.entries) == 1
    reads.clear()
    face._sent = ("patients", -1)
    with pytest.raises((TypeError, RuntimeError), match=r"not private|sent to another process"):
        face.fit(*rows())
