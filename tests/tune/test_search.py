"""Searching with a price: what is released, what it costs, and what stays secret."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.purse import Purse
from noisewise.methods.dpsgd import DpSgd
from noisewise.statements.verify import verify
from noisewise.trusted.accountants import calibrate
from noisewise.trusted.accountants.rdp import plan_epsilon
from noisewise.trusted.events import BoundedRange, Gaussian, Selection, TruncatedNegativeBinomial, from_dict, leaves
from noisewise.trusted.selection import SCORED, coins
from noisewise.tune import selection
from noisewise.tune.candidates import Candidate, dealt
from noisewise.tune.price import AgreedPurse, agreed
from noisewise.tune.runs import outcome

BUDGET = Budget(3.0, 1e-6)
ONCE = TruncatedNegativeBinomial(1.0, 1.0)
FEW = TruncatedNegativeBinomial(1.0, 0.5)
CLIPS = [
    {"method": "dpsgd", "max_grad_norm": 1e6, "steps": 10},
    {"method": "descent", "steps": 10},
]  # noise; a model


@cache
def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


def model(**changes):
    return nw.PrivateClassifier(BUDGET.epsilon, BUDGET.delta, **{"bounds": (-1, 1), "random_state": 0, **changes})


def search(candidates=CLIPS, how="selection", face=None, **changes):
    return nw.PrivateSearchCV(face or model(), candidates, how=how, **{"repetitions": FEW, **changes})


@cache
def searched(how, adjacency="add_remove", private=True, **changes):
    seed = None if private else 0
    return search(how=how, face=model(random_state=seed, adjacency=adjacency, **changes)).fit(*rows())


def candidates_of(settings=CLIPS, face=None, n=3000):
    made = []
    for one in settings:
        each = search([one], face=face)._face(one).ready(*rows(n))
        made.append(Candidate(one, each))
    return made


# -- what is released, and at what price ------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("how", ["selection", "exponential", "none"])
def test_a_search_keeps_its_promise_and_says_how(how, adjacency):
    found = searched(how, adjacency)
    data = found.statement_.data
    assert verify(found.statement_).holds, verify(found.statement_).reason
    assert (data["promise"]["epsilon"], data["promise"]["delta"]) == (BUDGET.epsilon, BUDGET.delta)
    assert (data["tuning"]["how"], data["tuning"]["candidates"], found.how_) == (how, 2, how)
    assert (data["tuning"]["price"] is None) == (how == "none")
    assert found.best_params_ in CLIPS and found.cv_results_ == {"params": CLIPS}
    assert found.score(*rows(seed=1)) > 0.7 or found.best_index_ == 0


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_everything_charged_is_one_plan_that_was_fixed_beforehand(how):
    data = searched(how).statement_.data
    charged = leaves([from_dict(event) for event in data["events"]])
    assert data["meter"]["meter"] == "plan"
    assert sum(isinstance(leaf, Selection) for leaf in charged) == (how == "selection")
    assert sum(isinstance(leaf, BoundedRange) for leaf in charged) == (how == "exponential")
    if how == "exponential":
        runs = [count for leaf, count in charged.items() if isinstance(leaf, Gaussian)]
        assert sorted(runs) == [1, 1, 10]  # a bought size; a plan as it is, a filter at its cap


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("methods", "accountant"),
    [
        (["descent", "additive"], "gdp"),  # filters, on full batches
        (["descent", DpSgd(steps=5, sampling=("poisson", 0.1))], "rdp"),
        ([DpSgd(steps=5, sampling=("poisson", 0.1))], "pld"),  # plans alone
    ],
)
def test_runs_that_choose_their_noise_are_never_priced_as_a_fixed_plan(methods, accountant):
    found = search([{"method": method} for method in methods], how="exponential", face=model(random_state=None))
    data = found.fit(*rows(500)).statement_.data
    assert verify(data).holds and data["meter"]["accountant"] == accountant
    assert data["accounting"]["assumptions"][0].startswith("what each run of the search may spend was fixed")


def test_selection_finds_the_setting_that_works():
    often = TruncatedNegativeBinomial(1.0, 0.05)
    wins = [search(face=model(random_state=seed), repetitions=often).fit(*rows()).best_index_ for seed in range(6)]
    assert np.mean(wins) >= 0.8


def test_the_exponential_mechanism_finds_it_too():
    assert (
        np.mean([search(how="exponential", face=model(random_state=s)).fit(*rows()).best_index_ for s in range(6)])
        >= 0.8
    )


def test_a_released_score_is_about_right():
    found = search([CLIPS[1]], repetitions=ONCE).fit(*rows())
    assert found.best_score_ == pytest.approx(found.score(*rows(seed=1)), abs=0.08)


def test_a_regression_is_searched_by_squared_error():
    X, _ = rows()
    y = np.clip(X @ [1.0, -0.5, 0.0], -2, 2)
    lazy, often = (
        [{"method": "dpsgd", "learning_rate": 1e-6, "steps": 10}, {"method": "descent"}],
        TruncatedNegativeBinomial(2.0, 0.1),
    )
    face = nw.PrivateRegressor(3.0, 1e-6, bounds=(-1, 1), target_bounds=(-2, 2))
    for how in ("selection", "exponential"):
        for seed in range(1, 4):
            found = search(lazy, how=how, face=face.set_params(random_state=seed), repetitions=often).fit(X, y)
            assert found.best_index_ == 1 and found.score(X, y) > 0.6
    assert search([lazy[1]], face=face, repetitions=ONCE).fit(X, y).best_score_ is None


def test_candidates_of_different_kinds_and_features():
    mixed = [
        {"method": "descent", "steps": 10},
        {"method": "additive", "steps": 6},
        {"model": (4,), "method": "dpsgd", "steps": 5},
    ]
    for how in ("selection", "exponential"):
        found = search(mixed, how=how, face=model(random_state=None)).fit(*rows(1000))
        assert verify(found.statement_).holds
        assert found.statement_.data["arithmetic"]["grade"] == "bounded"  # a perceptron may have been trained


def test_poisson_batches_are_priced_by_their_own_events():
    sampled = [{"method": DpSgd(steps=20, sampling=("poisson", 0.1)), "max_grad_norm": clip} for clip in (0.1, 1.0)]
    found = search(sampled, face=model(random_state=None)).fit(*rows(1000))
    assert verify(found.statement_).holds
    (event,) = [from_dict(event) for event in found.statement_.data["events"]]
    (one,) = leaves(event)
    assert plan_epsilon(one, BUDGET.delta, "add_remove") <= BUDGET.epsilon
    assert any("Poisson" in type(leaf).__name__ for candidate in one.candidates for leaf in leaves(candidate))


def test_persons_pay_for_training_and_score_together():
    X, y = rows()
    people = pd.DataFrame(X, columns=["a", "b", "c"]).assign(who=np.arange(len(X)) // 2)
    face = model(random_state=None, unit="who", rows_per_unit=2)
    for how in ("selection", "exponential"):
        found = search(how=how, face=face).fit(people, y)
        assert verify(found.statement_).holds, verify(found.statement_).reason
    (one,) = leaves([from_dict(event) for event in search(face=face).fit(people, y).statement_.data["events"]])
    assert sorted(sum(leaves(candidate).values()) for candidate in one.candidates) == [1 + 1, 1 + 10 + 1]


def test_a_run_folder_of_a_winner_is_whole(tmp_path):
    for how in ("selection", "exponential"):
        nw.save(searched(how).best_estimator_, tmp_path / how)
        assert nw.verify(tmp_path / how).holds, nw.verify(tmp_path / how).reason
        again = nw.load(tmp_path / how)
        assert np.array_equal(again.predict(rows()[0]), searched(how).predict(rows()[0]))


# -- statements that lie ------------------------------------------------------------------------------------------------


def lie(how, change):
    data = json.loads(searched(how).statement_.to_json())
    change(data)
    return verify(data)


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_a_run_that_cost_more_than_its_candidate_is_found_out(how):
    def richer(data):
        run = data["tuning"]["run"]
        run["epsilon"], run["meter"]["cap"] = BUDGET.epsilon, 10.0

    assert not lie(how, richer).holds


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["tuning"].update(run=None),
        lambda data: data["tuning"].update(how="public"),
        lambda data: data["tuning"].update(how="none", run=None, price=None),
        lambda data: data["tuning"].update(price={"epsilon": 0.1, "delta": 1e-6}),
        lambda data: data.pop("tuning"),
        lambda data: data["tuning"].update(candidates="many"),
        lambda data: data["events"].clear(),
    ],
)
def test_a_statement_of_a_search_cannot_be_cut(change):
    assert not lie("selection", change).holds


# -- what stays secret --------------------------------------------------------------------------------------------------


def test_losers_are_released_nowhere():
    found = searched("selection")
    kept = pickle.dumps(found)
    assert set(found.cv_results_) == {"params"} and found.best_estimator_.fitted_.statement is found.statement_
    again = pickle.loads(kept)
    assert np.array_equal(again.predict(rows()[0]), found.predict(rows()[0]))
    public = {name for name in vars(found) if name.endswith("_")}
    assert public == {
        "best_estimator_", "best_index_", "best_params_", "best_score_", "how_", "words_", "statement_", "cv_results_",
        "classes_", "n_features_in_",
    }  # fmt: skip
    others = [name for name in vars(found) if not name.endswith("_") and name not in found.get_params(deep=False)]
    assert others == []


def test_words_do_not_tell_how_many_runs_there_were():
    words = {
        search(face=model(random_state=seed), repetitions=TruncatedNegativeBinomial(1.0, 0.3)).fit(*rows(500)).words_
        for seed in range(4)
    }
    assert len(words) == 1


def test_progress_is_told_nothing(capfd):
    beats = []
    search().watch(lambda *told: beats.append(told)).fit(*rows(500))
    assert beats and {*beats} == {()}
    assert capfd.readouterr() == ("", "")


def test_a_strangers_method_is_not_selected_from():
    @dataclass(frozen=True)
    class Mine(DpSgd):
        name: ClassVar[str] = "mine"

    with pytest.raises(ValueError, match="not one of noisewise's own methods"):
        search([{"method": Mine(steps=5)}]).fit(*rows(300))
    assert search([{"method": Mine(steps=5)}], how="exponential", face=model(random_state=None)).fit(*rows(300)).how_


def test_a_method_that_was_given_a_memory_loses_it():
    spying, heard = DpSgd(steps=5), []
    object.__setattr__(spying, "finish", lambda state, public: heard.append(state))
    search([{"method": spying}]).fit(*rows(300))
    assert heard == []


def test_a_run_that_fails_counts_as_worst_and_nobody_hears(monkeypatch):
    whole = selection.outcomes

    def broken(runs, jobs, beat=None):
        spoiled = [replace(run, fit=None) if number % 2 else run for number, run in enumerate(runs)]
        return whole(spoiled, jobs, beat)

    monkeypatch.setattr(selection, "outcomes", broken)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert search(repetitions=TruncatedNegativeBinomial(1.0, 0.2)).fit(*rows(500)).how_ == "selection"
    assert out.getvalue() == err.getvalue() == ""


def test_a_run_that_fails_is_an_outcome():
    assert outcome(None).fitted is None and outcome(None).score == -np.inf


# -- what is agreed is kept -----------------------------------------------------------------------------------------------


def test_a_method_cannot_name_other_terms_than_it_was_priced_by():
    fit = candidates_of([CLIPS[1]])[0].fit
    one = agreed(fit, Budget(1.0, 1e-6), None)
    purse = one.purse()
    with pytest.raises(ValueError, match="other terms"):
        purse.part(Terms.adaptive("zcdp"), one.promise)
    with pytest.raises(ValueError, match="other terms"):
        purse.part(one.terms, Budget(2.0, 1e-6))
    with purse.part(one.terms, one.promise):
        pass
    with pytest.raises(ValueError, match="other terms"):
        purse.part(one.terms, one.promise)
    assert isinstance(purse, AgreedPurse)


def test_a_two_faced_method_trains_nothing():
    @dataclass(frozen=True)
    class TwoFaced(DpSgd):
        name: ClassVar[str] = "two_faced"

        def terms(self, facts):
            asked.append(facts)
            return super().terms(facts) if len(asked) < 60 else replace(self, steps=3).terms(facts)

    asked: list = [None] * 58
    with pytest.raises((ValueError, RuntimeError)):
        search([{"method": TwoFaced(steps=5)}] * 2, how="exponential", face=model(random_state=None)).fit(*rows(300))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_price_of_an_agreement_is_within_the_budget_for_every_law(adjacency):
    face = model(adjacency=adjacency)
    for law in (FEW, ONCE, TruncatedNegativeBinomial(0.0, 0.1), TruncatedNegativeBinomial(2.0, 0.05)):
        made = selection.agreement(candidates_of(face=face), replace(BUDGET, adjacency=adjacency), law)
        price = plan_epsilon(made.selection, BUDGET.delta, adjacency)
        assert 0.98 * BUDGET.epsilon < price <= BUDGET.epsilon


def test_candidates_that_share_a_plan_are_calibrated_once_for_each_promise(monkeypatch):
    calls = []
    least = calibrate.least_noise
    monkeypatch.setattr(calibrate, "least_noise", lambda *args: calls.append(args) or least(*args))
    clips = [{"method": "dpsgd", "steps": 11, "max_grad_norm": 1 + i / 8} for i in range(8)]
    made = selection.agreement(candidates_of(clips, n=300), BUDGET, FEW)
    promises = {budget for _, budget, *_ in calls}
    assert len(made.runs) == 8 and len(calls) == len(promises) > 1


def test_dealing_goes_by_place_and_its_sizes_are_secret():
    made = candidates_of(face=model(size_is_public=True))[0]
    scored = coins(3000, seed=3)
    parts = dealt(made, scored)
    assert parts.expected == round((1 - SCORED) * 3000) != len(parts.trained.y)
    assert len(parts.trained.y) + len(parts.scored.y) == 3000
    assert not np.array_equal(coins(3000, seed=None), coins(3000, seed=None))
    assert np.array_equal(coins(3000, seed=3), coins(3000, seed=3))
    assert abs(coins(100_000, seed=None).mean() - SCORED) < 0.01


# -- purses, and being killed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["selection", "exponential", "none"])
def test_a_search_takes_its_whole_budget_from_a_purse_once(how):
    purse = Purse(BUDGET)
    search(how=how, face=model(random_state=None)).fit(*rows(500), purse=purse)
    assert [entry.state for entry in purse.entries] == ["spent"] and purse.spent_fraction == pytest.approx(1.0)
    with pytest.raises(BudgetExhausted):
        search(how=how, face=model(random_state=None)).fit(*rows(500), purse=purse)


def test_killed_in_the_middle_all_is_spent(tmp_path):
    program = textwrap.dedent(
        f"""
        import numpy as np, noisewise as nw
        from noisewise.accounts.purse import Purse
        from noisewise.trusted.events import TruncatedNegativeBinomial
        X = np.random.default_rng(0).uniform(-1, 1, (20000, 3)); y = (X[:, 0] > 0).astype(int)
        face = nw.PrivateClassifier(3.0, 1e-6, bounds=(-1, 1))
        search = nw.PrivateSearchCV(face, [{{"method": "descent"}}], how="selection",
                                    repetitions=TruncatedNegativeBinomial(1.0, 1e-6))
        search.watch(lambda: print("now", flush=True)).fit(X, y, purse=Purse(nw.Budget(3.0, 1e-6), store={str(tmp_path / "s.json")!r}))
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ.copy())
    assert child.stdout is not None and child.stdout.readline() == b"now\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    purse = Purse(BUDGET, store=tmp_path / "s.json")
    assert purse.spent_fraction == pytest.approx(1.0)


# -- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ([], "0 candidates"),
        ("descent", "pass a list of settings"),
        (["descent"], "a candidate is a str"),
        ([{"epsilon": 2.0}], "no setting to tune"),
        ([{"random_state": 1}], "no setting to tune"),
        ([{"method": "descent", "flavour": 1}], "neither the estimator nor descent has"),
        ([{"steps": 5}], "its method is 'auto'"),
        ({"max_grad_norm": 1.0}, "pass a list of values"),
        ([{"method": "nonprivate"}], "makes no promise"),
        ([{"method": "objective_perturbation"}], "no Renyi price|has no price"),
        ([{"method": "nothing"}], "pass one of"),
    ],
)
def test_bad_candidates_get_one_line_and_spend_nothing(candidates, words):
    purse = Purse(BUDGET)
    with pytest.raises(ValueError, match=words) as caught:
        search(candidates).fit(*rows(300), purse=purse)
    assert "\n" not in str(caught.value) and purse.spent_fraction == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"how": "guess"},
        {"share": 0.0},
        {"share": 1.0},
        {"jobs": 0},
        {"estimator": None},
        {"scoring": "auc", "how": "exponential"},
    ],
)
def test_bad_settings_of_a_search(changes):
    purse = Purse(BUDGET)
    with pytest.raises(ValueError):
        search(how="selection").set_params(**changes).fit(*rows(300), purse=purse)
    assert purse.spent_fraction == 0


def test_a_mapping_is_a_grid():
    found = search({"method": ["descent"], "max_grad_norm": [0.1, 1.0], "steps": [5]}, how="none").fit(*rows(300))
    assert found.cv_results_["params"] == [
        {"method": "descent", "max_grad_norm": clip, "steps": 5} for clip in (0.1, 1.0)
    ]


# -- auto, processes ------------------------------------------------------------------------------------------------------


def test_auto_says_with_numbers_why_it_does_not_search():
    found = search(how="auto").fit(*rows(300))
    assert found.how_ == "none" and "times the noise" in found.words_ and "size=" in found.words_
    small = search(how="auto", size=300).fit(*rows(300))
    assert small.how_ == "none" and "records x mu" in small.words_


def test_auto_selects_where_noise_costs_little():
    assert search(how="auto", size=1e6).fit(*rows(500)).how_ == "selection"


def test_processes_share_the_work_and_the_answer_of_a_simulation():
    alone = search(repetitions=TruncatedNegativeBinomial(1.0, 0.25)).fit(*rows(30_000))
    together = search(repetitions=TruncatedNegativeBinomial(1.0, 0.25), jobs=2).fit(*rows(30_000))
    assert np.array_equal(alone.best_estimator_.coef_, together.best_estimator_.coef_)
    assert alone.best_score_ == together.best_score_


# -- accounts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["selection", "exponential", "none"])
def test_a_search_inside_an_account_takes_its_budget_once_and_names_it(how):
    with nw.spending(BUDGET, dataset="patients") as account:
        found = search(how=how, face=model(random_state=None)).fit(*rows(500))
        assert [entry.state for entry in account.entries] == ["spent"] and account.spent_fraction == pytest.approx(1.0)
        with pytest.raises(BudgetExhausted, match="patients"):
            search(how=how, face=model(random_state=None)).fit(*rows(500))
    assert found.statement_.data["account"]["dataset"] == "patients"
    assert verify(found.statement_).holds, verify(found.statement_).reason


def test_a_simulated_search_takes_nothing_of_an_account():
    with nw.spending(BUDGET, dataset="patients") as account:
        search().fit(*rows(500))
    assert account.entries == () and account.simulations == 1


# -- public rows, and during the run ------------------------------------------------------------------------------------------


def test_a_search_on_public_rows_costs_nothing_and_shows_its_scores():
    found = search(how="public", face=model(random_state=None), size=3000).fit(*rows(), rows(1500, seed=7))
    data = found.statement_.data
    assert verify(found.statement_).holds and found.how_ == data["tuning"]["how"] == "public"
    assert data["tuning"]["price"] is None and data["tuning"]["run"] is None
    assert found.best_index_ == 1 and len(found.cv_results_["mean_test_score"]) == 2
    assert (
        "public rows" in str(found.statement_)
        and data["hyper_parameters"] == "chosen on public rows, which costs nothing"
    )


def test_a_public_task_is_searched_and_not_trained_on():
    found = search(how="public", size=3000).fit(*rows(), task=rows(1500, seed=7))
    assert found.best_index_ == 1 and not any("public rows" in words for words in found.statement_.data["assumed"])


def test_auto_takes_public_rows_where_there_are_enough():
    assert search(how="auto").fit(*rows(), rows(1500, seed=7)).how_ == "public"


def test_public_rows_are_needed_where_they_are_asked_for():
    with pytest.raises(ValueError, match="public is missing"):
        search(how="public").fit(*rows(300))


def test_online_moves_settings_during_one_run_and_says_so():
    bad = [{"method": "descent", "max_grad_norm": 100.0, "learning_rate": 1e-3}]
    found = search(bad, how="online", face=model(random_state=None)).fit(*rows())
    assert verify(found.statement_).holds and found.statement_.data["tuning"]["how"] == "online"
    assert found.score(*rows(seed=1)) > 0.8
