"""One account per process: fits inside share a budget, fits outside are counted, and neither ever sees a record."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score

import noisewise as nw
from noisewise import train
from noisewise.accounts import Budget, BudgetExhausted, Terms, account
from noisewise.accounts.account import Account, BudgetWarning
from noisewise.accounts.paying import spending
from noisewise.accounts.purse import Purse
from noisewise.accounts.spending_file import Amount
from noisewise.evidence.bought_quality import private_quality
from noisewise.faces.sklearn import Origin
from noisewise.methods.descent import DeflatedDescent
from noisewise.tables.bought import purchase
from noisewise.tables.files import open_source
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.events import Gaussian

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (120, 2))
Y = X[:, 0] > 0
GDP = Terms.adaptive("gdp")


def model(epsilon=0.25, delta=2.5e-7, **settings):
    chosen = {"method": DeflatedDescent(steps=2), "bounds": (-1, 1)} | settings
    return nw.PrivateClassifier(epsilon, delta, **chosen)


@pytest.fixture(autouse=True)
def nothing_open():
    """A process as it starts: no fit counted, and after the test no account left open."""
    account._fits.clear()
    yield
    assert not account._open


@pytest.fixture
def told():
    """The warnings about budgets that a test hears."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(one.message) for one in caught if one.category is BudgetWarning]


@pytest.fixture
def curators(monkeypatch):
    """How many curators were made, that is how often records were touched."""
    made, real = [], train.Curator
    monkeypatch.setattr(train, "Curator", lambda *args, **options: made.append(1) or real(*args, **options))
    return made


# -- outside ------------------------------------------------------------------------------------------------------


def searched(**options):
    GridSearchCV(model(), {"max_grad_norm": [0.5, 1.0]}, cv=2, **options).fit(X, Y)


SEVERAL = {
    "GridSearchCV": searched,
    "cross_val_score": lambda **options: cross_val_score(model(), X, Y, cv=4, **options),
    "CalibratedClassifierCV": lambda: CalibratedClassifierCV(model(), cv=3).fit(X, Y),
    "a loop": lambda: [model().fit(X, Y) for _ in range(4)],
}


@pytest.mark.parametrize("several", SEVERAL)
def test_several_private_fits_warn_once_and_name_the_ways_out(several, told):
    SEVERAL[several]()
    SEVERAL["a loop"]()
    (message,) = told()
    assert "PrivateSearchCV" in message and "nw.spending" in message and "\n" not in message


def test_one_fit_does_not_warn_nor_do_simulations_models_without_privacy_and_what_shares_a_purse(told):
    model().fit(X, Y)
    for seeded in range(3):
        model(random_state=seeded).fit(X, Y)
        model(method="nonprivate").fit(X, Y)
    purse = Purse(Budget(1.0, 1e-6))
    for _ in range(2):
        model().fit(X, Y, purse=purse)
    with spending(1.0, 1e-6):
        for _ in range(2):
            model().fit(X, Y)
    assert told() == []
    model().fit(X, Y)
    assert len(told()) == 1


def test_a_warning_that_is_an_error_spends_nothing_and_comes_once(curators):
    model().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BudgetWarning)
        with pytest.raises(BudgetWarning):
            model().fit(X, Y)
        assert len(curators) == 1
        model().fit(X, Y)


def test_a_fit_that_is_refused_is_none(told):
    model().fit(X, Y)
    with pytest.raises(ValueError):
        model(method="ppsgd").fit(X, Y)
    assert told() == []


@pytest.mark.parametrize("second", ["the same", "others", "fewer", "broken"])
def test_the_warning_comes_for_different_records_alike(second, told):
    other = {"the same": X, "others": -X, "fewer": X[:40], "broken": np.full_like(X, np.nan)}[second]
    model().fit(X, Y)
    model().fit(other, Y[: len(other)])
    assert told() == [
        "budgets add up where the records are the same, and this is the second private fit of this process; pay for all "
        "fits on them inside `with nw.spending(epsilon, delta, dataset=...):` in one process, or search with PrivateSearchCV"
    ]


def test_nothing_of_the_account_takes_a_record():
    """By signature: budgets, terms, names, numbers and flags. What is handed in cannot hold rows."""
    plain = {"number", "budget", "delta", "dataset", "adjacency", "unit", "terms", "store", "purse", "simulation", "persons", "asked",
             "share", "what", "preparation", "earlier", "sent", "runs", "epsilon", "value"}  # fmt: skip
    functions = [
        one for one in vars(account).values() if inspect.isfunction(one) and one.__module__ == account.__name__
    ]
    methods = [one for one in vars(Account).values() if inspect.isfunction(one)]
    public = [one for one in (*functions, *methods) if not one.__name__.startswith("_")]
    assert len(public) > 8
    for one in public:
        assert {*inspect.signature(one).parameters} - {"self"} <= plain, one
    for forbidden in ("numpy", "torch", "records", "curator", "data"):
        assert f"import {forbidden}" not in inspect.getsource(account) or forbidden == "numpy"  # its example makes rows


# -- inside -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", SEVERAL)
def test_what_does_not_fit_is_refused_and_nothing_is_touched(several, curators, told):
    with spending(0.5, 1e-6, dataset="patients") as patients, pytest.raises((BudgetExhausted, ValueError)) as refused:
        SEVERAL[several](**({"error_score": "raise"} if several in ("GridSearchCV", "cross_val_score") else {}))
    assert type(refused.value) is BudgetExhausted
    assert len(curators) == 2 and len(patients.entries) == 2 and patients.left is None and told() == []
    assert str(refused.value) == (
        "the account 'patients' of (0.5, 1e-06) has nothing left, and this training asks for (0.25, 2.5e-07); stop here: "
        "what was released so far keeps the promise"
    )


def test_a_search_that_hides_refusals_still_spends_no_more(curators):
    with spending(0.5, 1e-6) as purse, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(BudgetExhausted):
            searched()  # the failed fits score nan; the last one, on all rows, is not hidden
    assert len(curators) == 2 == len(purse.entries)


def test_the_refusal_says_what_would_fit_and_that_fits():
    with spending(1.0, 1e-6) as purse:
        model(1 / 3, 4e-7).fit(X, Y)
        with pytest.raises(BudgetExhausted, match=r"of at most epsilon=0\.666666 and delta=6e-07 would fit"):
            model(0.7, 1e-7).fit(X, Y)
        with pytest.raises(BudgetExhausted, match="would fit"):
            model(0.1, 7e-7).fit(X, Y)  # of delta there is too little
        model(0.666666, 6e-7).fit(X, Y)
    assert [entry.state for entry in purse.entries] == ["spent", "spent"]


@pytest.mark.parametrize("runs", [3, 5, 7, 10])
def test_equal_parts_of_a_budget_fit_although_floats_round(runs):
    with spending(1.0, 1e-6) as purse:
        fits = [model(1 / runs if runs % 5 else round(1 / runs, 1), 1e-6 / runs).fit(X, Y) for _ in range(runs)]
    assert purse.left is None and purse.spent.cost <= 1.0 and purse.spent.delta <= 1e-6
    for fit in fits:
        assert nw.verify(fit.statement_).holds
        assert fit.statement_.data["promise"]["epsilon"] <= fit.epsilon


def test_a_folder_of_the_last_part_holds(tmp_path):
    with spending(1.0, 1e-6, dataset="patients"):
        for _ in range(10):
            last = model(0.1, 1e-7).fit(X, Y)
    assert last.statement_.data["promise"]["epsilon"] < 0.1
    assert nw.verify(nw.save(last, tmp_path / "run")).holds


def test_no_other_lack_is_rounded_away():
    with spending(1.0, 1e-6):
        model(0.5, 5e-7).fit(X, Y)
        for asked in ((0.5 + 1e-9, 1e-7), (0.1, 5e-7 * (1 + 1e-9))):
            with pytest.raises(BudgetExhausted):
                model(*asked).fit(X, Y)


def test_threads_share_it_and_only_one_gets_the_last(curators):
    outcomes = []

    def fit():
        with contextlib.suppress(BudgetExhausted):
            outcomes.append(model().fit(X, Y))

    with spending(0.25, 1e-6) as purse:
        threads = [threading.Thread(target=fit) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 1 == len(curators) == len(purse.entries)


def test_workers_that_are_threads_are_counted():
    with spending(10.0, 1e-5) as purse, parallel_config(backend="threading"):
        searched(n_jobs=2)
    assert len(purse.entries) == 5


def test_one_account_is_open_at_a_time_and_can_be_entered_again():
    first, second = spending(1.0, 1e-6, dataset="first"), spending(1.0, 1e-6, dataset="second")
    with first:
        with (
            pytest.raises(RuntimeError, match="'first' is open in this process; leave it before entering 'second'"),
            second,
        ):
            pass
        with first:
            model().fit(X, Y)
        model().fit(X, Y)
        model().fit(X, Y, purse=second)
    assert len(first.entries) == 2 and len(second.entries) == 1
    with second:
        pass
    model().fit(X, Y)
    with first:
        model().fit(X, Y)
    assert len(first.entries) == 3 and first.spent == Amount(0.75, 7.5e-7)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_what_is_stopped_stays_charged_and_the_account_is_left(error):
    def stop(step, steps, spent):
        raise error

    with pytest.raises(error), spending(1.0, 1e-6) as purse:
        model().watch(stop).fit(X, Y)
    assert [entry.state for entry in purse.entries] == ["failed"] and purse.spent == Amount(0.25, 2.5e-7)


def test_simulations_and_models_without_privacy_take_nothing_and_say_so():
    with spending(0.1, 1e-7, dataset="patients") as purse:
        seeded = model(random_state=1).fit(X, Y)
        model(random_state=1).fit(X, Y, purse=purse)
        plain = model(method="nonprivate").fit(X, Y)
    assert purse.entries == () and purse.simulations == 2 and purse.spent == Amount(0.0, 0.0)
    assert (
        repr(purse) == "Account('patients': 0 of (0.1, 1e-07) add_remove taken by 0 runs, 2 simulations took nothing)"
    )
    assert str(seeded.statement_).startswith("NOT PRIVATE")
    assert "account" not in seeded.statement_.data and "account" not in plain.statement_.data


def test_a_purse_of_its_own_is_used_instead():
    own = Purse(Budget(1.0, 1e-6))
    with spending(0.1, 1e-7) as purse:
        fitted = model().fit(X, Y, purse=own)
    assert purse.entries == () and len(own.entries) == 1 and "account" not in fitted.statement_.data


# -- composition --------------------------------------------------------------------------------------------------


def test_under_a_filter_ten_runs_cost_less_than_ten_times_one():
    with spending(0.4, 1e-6, terms="gdp") as purse:
        for _ in range(10):
            model(0.1, 1e-6).fit(X, Y)
    assert 0.5 < purse.spent_fraction <= 1 and purse.spent.delta == 0
    with purse, pytest.raises(BudgetExhausted, match="full-batch"):
        for _ in range(10):
            model(0.1, 1e-6).fit(X, Y)
    with purse, pytest.raises(ValueError, match="without terms= it takes any method"):
        model(0.1, 1e-6, method="objective_perturbation").fit(X, Y)


def test_a_file_keeps_it_beyond_the_process(tmp_path):
    path = tmp_path / "patients.json"
    with spending(0.5, 1e-6, store=path):
        model().fit(X, Y)
    code = (
        f"import noisewise as nw; a = nw.spending(0.5, 1e-6, store={str(path)!r}); print(a.left.epsilon); "
        f"nw.spending(0.5, 1e-6, store={str(path)!r}, unit='person')"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert float(other.stdout) == 0.25 and "protect another unit than a person" in other.stderr
    assert len(json.loads(path.read_text())["entries"]) == 1


# -- what else pays -----------------------------------------------------------------------------------------------


def test_an_evaluation_on_private_rows_is_charged():
    with spending(1.0, 1e-6) as purse:
        fitted = model().fit(X, Y).fitted_
        rows = fitted.scaling(X)
        private_quality(fitted, rows, Y, Budget(0.5, 5e-7))
        private_quality(fitted, rows, Y, Budget(0.5, 5e-7), seed=1)
        with pytest.raises(BudgetExhausted, match="this evaluation asks for"):
            private_quality(fitted, rows, Y, Budget(0.5, 5e-7))
    assert [entry.terms["what"] for entry in purse.entries] == ["training in one go", "evaluation"]


def test_bounds_are_charged_and_belong_to_the_account_of_the_fit(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "".join(f"{one:.3f},{'no' if one < 0 else 'yes'}\n" for one in X[:, 0]))
    schema = Schema((Column("a", "number"), Column("y", "category", categories=("no", "yes"))), "y")
    buy = purchase(schema, epsilon=0.1, budget=Budget(0.25, 2.5e-7))

    def fit(filled, paid):
        return model(bounds=None, schema=filled).fit_files(path, origin=Origin(preparation=paid))

    with spending(1.0, 1e-6) as purse:
        bought = buy.bounds(open_source([path]), None)
        statement = fit(*bought).statement_
    assert [entry.terms["what"] for entry in purse.entries] == ["bounds", "training in one go"]
    assert purse.spent.cost == pytest.approx(0.25) and nw.verify(statement).holds
    with spending(1.0, 1e-6) as other, pytest.raises(ValueError, match="not bought in the account"):
        fit(*bought)
    assert other.entries == ()


# -- the statement ------------------------------------------------------------------------------------------------


def test_a_statement_names_the_account_and_is_verified(tmp_path):
    with spending(1.0, 1e-6, dataset="patients <b>"):
        fitted = model().fit(X, Y)
    data = json.loads(fitted.statement_.to_json())
    assert data["account"] == {"dataset": "patients <b>", "epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove"}
    said = "part of the account 'patients <b>': at most (epsilon, delta) = (1, 1e-06), add_remove, for all its runs together"
    assert said in str(fitted.statement_) and nw.verify(data).holds
    assert nw.verify({key: value for key, value in data.items() if key != "account"}).holds
    for wrong in (
        {"adjacency": "replace_one"},
        {"epsilon": -1.0},
        {"dataset": "two\nlines"},
        {"dataset": ""},
        {"more": 1},
    ):
        assert not nw.verify(data | {"account": data["account"] | wrong}).holds
    from noisewise.evidence.report.page import write_report

    folder = nw.save(fitted, tmp_path / "run")
    write_report(folder, None)
    page = (folder / "report.html").read_text()
    assert "part of the account" in page and "patients <b>" not in page and nw.verify(folder).holds


# -- other processes ----------------------------------------------------------------------------------------------


def test_it_is_not_copied_or_pickled():
    purse = spending(1.0, 1e-6)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="account"):
            attempt(purse)


def in_a_fork(function):
    """What a forked child says about a call."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads; the child only reports
        child = os.fork()
    if child == 0:
        try:
            function()
            os.write(write, b"fine")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as stream:
        return stream.read()


def test_a_forked_copy_refuses_and_cannot_enter():
    with spending(1.0, 1e-6, dataset="patients") as purse:
        said = in_a_fork(lambda: model().fit(X, Y))
        assert said.startswith("RuntimeError: the account 'patients' belongs to another process") and "n_jobs=1" in said
        assert in_a_fork(lambda: model(random_state=1).fit(X, Y)) == "fine"

        def own():
            with spending(1.0, 1e-6) as inner:
                model().fit(X, Y)
            assert len(inner.entries) == 1

        assert in_a_fork(own) == "fine"
    assert "another process" in in_a_fork(purse.__enter__)
    assert purse.entries == () and purse.simulations == 0


def test_a_fork_outside_any_account_warns_at_its_first_fit():
    def heard():
        with warnings.catch_warnings():
            warnings.simplefilter("error", BudgetWarning)
            model().fit(X, Y)

    assert "BudgetWarning" in in_a_fork(heard) and "worker" in in_a_fork(heard)


WORKERS = """
import sys, warnings, numpy as np, noisewise as nw
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV
from noisewise.methods.descent import DeflatedDescent
X = np.random.default_rng(0).uniform(-1, 1, (120, 2))
def search(seed=None):
    model = nw.PrivateClassifier(0.25, 2.5e-7, method=DeflatedDescent(steps=2), bounds=(-1, 1), random_state=seed)
    grid = {"max_grad_norm": [0.5, 1.0]}
    return GridSearchCV(model, grid, cv=2, n_jobs=2, refit=False, error_score="raise").fit(X, X[:, 0] > 0)
if __name__ == "__main__":
    with parallel_config(backend=sys.argv[1]):
        search()
        print("outside", flush=True)
        with nw.spending(10.0, 1e-5, dataset="patients") as account:
            search(seed=1)
            try:
                search()
            except RuntimeError as error:
                print(error)
        print(len(account.entries))
"""


# What multiprocessing starts are forks, which two quicker tests above are about.
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", pytest.param("multiprocessing", marks=pytest.mark.slow)])
def test_workers_warn_outside_and_refuse_inside(backend, tmp_path):
    """Also workers that were started before the account was opened, as joblib keeps them."""
    (tmp_path / "search.py").write_text(WORKERS)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "search.py"), backend], capture_output=True, text=True, env=environment
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "outside" and "n_jobs=1" in lines[1] and lines[2] == "0", done.stderr
    assert 1 <= done.stderr.count("BudgetWarning: budgets add up") <= 2 and "in a worker process" in done.stderr


def test_what_was_sent_from_inside_is_refused_elsewhere_and_only_there():
    with spending(1.0, 1e-6, dataset="patients"):
        sent, same = pickle.dumps(model()), copy.deepcopy(model())
        fitted = pickle.dumps(model().fit(X, Y))
    same.fit(X, Y)
    pickle.loads(sent).fit(X, Y)
    assert pickle.loads(pickle.dumps(same))._sent is None
    for arrived in (pickle.loads(sent), clone(pickle.loads(sent))):
        said = in_a_fork(lambda arrived=arrived: copy.deepcopy(clone(arrived)).fit(X, Y))
        assert said.startswith(
            "RuntimeError: this estimator was sent to another process from inside the account 'patients'"
        )
        assert in_a_fork(lambda arrived=arrived: arrived.set_params(random_state=1).fit(X, Y)) == "fine"
    again = pickle.loads(fitted)
    assert in_a_fork(lambda: again.fit(X, Y)) == "fine"
    assert multiprocessing.parent_process() is None


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [((-1.0, 1e-6), {}, "epsilon"), ((1.0, 2.0), {}, "delta"), ((1.0,), {}, "delta is missing"),
     ((Budget(1.0, 1e-6), 1e-6), {}, "leave them out"), ((Budget(1.0, 1e-6),), {"adjacency": "replace_one"}, "leave them"),
     ((1.0, 1e-6), {"adjacency": "both"}, "adjacency"), ((1.0, 1e-6), {"unit": "household"}, "unit"),
     ((1.0, 1e-6), {"dataset": ""}, "not a name"), ((1.0, 1e-6), {"dataset": "two\nlines"}, "not a name"),
     ((1.0, 1e-6), {"dataset": 7}, "not a name"), ((1.0, 1e-6), {"dataset": "x" * 101}, "not a name"),
     ((1.0, 1e-6), {"terms": "abacus"}, "pass one of"), ((1.0, 1e-6), {"terms": Terms.plan(Gaussian(9.0))}, "several runs")],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(args, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        spending(*args, **options)
    assert "\n" not in str(refused.value)


def test_a_fit_of_another_relation_or_unit_is_refused_and_takes_nothing(curators):
    with spending(Budget(1.0, 1e-6), dataset="patients") as purse:
        with pytest.raises(
            ValueError, match="under replace_one, the account 'patients' under add_remove; pass adjacency="
        ):
            model(adjacency="replace_one").fit(X, Y)
        import pandas as pd

        table = pd.DataFrame({"a": X[:, 0], "who": np.arange(len(X)) // 2})
        person = model(bounds=None, schema={"a": (-1, 1)}, unit="who", rows_per_unit=2)
        with pytest.raises(
            ValueError, match="protects a person, the account 'patients' a record; open an account with"
        ):
            person.fit(table, Y)
    assert purse.entries == () and curators == []
    with spending(1.0, 1e-6, unit="person") as persons:
        person.fit(table, Y)
        with pytest.raises(ValueError, match="protects a record"):
            model().fit(X, Y)
    assert len(persons.entries) == 1
