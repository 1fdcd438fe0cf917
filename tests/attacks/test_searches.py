"""Searches attacked: what a selection hides, what a run is charged for, and statements that claim a search nobody paid."""

from __future__ import annotations

import copy
import json
import os
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.budget import Budget, Terms, open_meter
from noisewise.budget.purse import Purse
from noisewise.estimators.search import _prepared
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.nonprivate import NonPrivate
from noisewise.statements.verify import verify
from noisewise.statements.wording import derived_words
from noisewise.trusted import selection as panel
from noisewise.trusted.events import (
    BoundedRange,
    Composed,
    Gaussian,
    PoissonRepetitions,
    Repeated,
    Selection,
    TruncatedNegativeBinomial,
    from_dict,
    leaves,
    to_dict,
)
from noisewise.trusted.features import Hats, TableColumn, even
from noisewise.trusted.losses import ClassWeighted, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Additive, Linear
from noisewise.trusted.process import own_settings
from noisewise.trusted.selection import Entrant
from noisewise.trusted.stores.grid import in_memory
from noisewise.trusted.units import Unit
from noisewise.tune import selection
from noisewise.tune.candidates import Candidate
from noisewise.tune.price import agreed

BUDGET = Budget(3.0, 1e-6)
ONCE, FEW, MANY = (TruncatedNegativeBinomial(1.0, gamma) for gamma in (1.0, 0.5, 0.1))
PLANS = [{"method": "dpsgd", "steps": 5}, {"method": "dpsgd", "steps": 6}]


@cache
def rows(n=600):
    X = np.random.default_rng(0).uniform(-1, 1, (n, 3))
    return X, (X[:, 0] > 0).astype(int)


def search(candidates=PLANS, how="selection", **options):
    face = nw.PrivateClassifier(BUDGET.epsilon, BUDGET.delta, bounds=(-1, 1), random_state=options.pop("seed", None))
    face.set_params(**options.pop("face", {}))
    return nw.PrivateSearchCV(face, candidates, how=how, **{"repetitions": FEW, **options})


def of(settings=PLANS, **face):
    made = []
    for one in settings:
        each = search([one], face=face)._face(one).ready(*rows())
        made.append(Candidate(one, each))
    return made


# -- how many runs there were -------------------------------------------------------------------------------------------


def test_beats_do_not_count_the_runs():
    def beats(repetitions):
        heard = []
        search(repetitions=repetitions, seed=1).watch(lambda: heard.append(None)).fit(*rows())
        return len(heard)

    assert beats(ONCE) == beats(TruncatedNegativeBinomial(1.0, 0.02)) == 1


def test_warnings_do_not_count_the_runs(monkeypatch):
    """A method may warn of public facts, once in every run."""
    whole = DpSgd.init

    def warning(self, *given):
        warnings.warn("the step size is unusual", stacklevel=1)
        return whole(self, *given)

    monkeypatch.setattr(DpSgd, "init", warning)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        search(seed=1, repetitions=MANY).fit(*rows())
    assert not [one for one in heard if "unusual" in str(one.message)]


def test_a_loser_does_not_tell_the_size_that_it_bought():
    """l2p warns where a released size is none that its protector was trained for; in a selection only the winner's is."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        search([{"method": "l2p"}], seed=5, repetitions=TruncatedNegativeBinomial(1.0, 0.15)).fit(*rows(150))
    assert heard == []


def test_runs_do_not_fail_where_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert search(seed=1, repetitions=MANY).fit(*rows()).how_ == "selection"


def test_rows_of_workers_are_mapped_where_nobody_else_can_see_how_many_there_are(monkeypatch):
    """The files have the sizes of the parts; joblib's own folder is one that everybody may look into."""
    folders = []

    class Parallel:
        def __init__(self, *, temp_folder, backend, **_):
            folders.append((temp_folder, os.stat(temp_folder).st_mode & 0o777))
            assert backend == "loky"  # not what joblib was set to, which may be a cluster

        def __call__(self, work):
            return (function(*given) for function, given, _ in work)

    monkeypatch.setattr(joblib, "Parallel", Parallel)
    search(seed=1, jobs=2, repetitions=TruncatedNegativeBinomial(1.0, 0.01)).fit(*rows())
    ((folder, mode),) = folders
    assert mode == 0o700 and not os.path.exists(folder)


def test_a_law_that_draws_no_run_releases_nothing_and_is_spent():
    purse = Purse(BUDGET)
    with pytest.raises(RuntimeError, match="the budget is spent"):
        for _ in range(40):
            purse = Purse(BUDGET)
            search(repetitions=PoissonRepetitions(0.05)).fit(*rows(), purse=purse)
    assert purse.spent_fraction == 1.0


# -- who is in which part -----------------------------------------------------------------------------------------------


def test_the_same_rows_of_a_person_count_for_all_candidates():
    """Coins that deal rows go by place: with rows of their own at a place, no coins would be those of both neighbours."""
    X, y = rows()
    people = pd.DataFrame(X, columns=["a", "b", "c"]).assign(who=np.arange(len(X)) % 200)
    different = [{"method": "descent"}, {"method": "additive"}, {"model": (3,), "method": "dpsgd"}]
    made = search(different, face={"unit": "who", "rows_per_unit": 1})
    faces = [made._face(one) for one in different]
    ready = _prepared(faces, lambda face, counted: face.ready(people, y, counted=counted))
    assert ready[0].private.X.shape != ready[1].private.X.shape
    for one in ready[1:]:
        assert one.private.counted is ready[0].private.counted and np.array_equal(
            one.private.y > 0, ready[0].private.y > 0
        )
    again = _prepared(faces, lambda face, counted: face.ready(people, y, counted=counted))
    assert not np.array_equal(again[0].private.counted, ready[0].private.counted)


def test_every_run_is_priced_as_it_will_be_charged():
    for adjacency in ("add_remove", "replace_one"):
        made = of([*PLANS, {"method": "descent"}, {"method": "additive"}], adjacency=adjacency)
        agreement = selection.agreement(made, replace(BUDGET, adjacency=adjacency), FEW)
        assert {run.event for run in agreement.runs} | {agreement.score} == {*agreement.selection.candidates}


# -- what is compared -------------------------------------------------------------------------------------------------------

LINE = ((-1.0, 1.0), (0.0, 1.0))
HATS = even(tuple(Hats(i, *LINE, 5) for i in range(2)))
COLUMNS = tuple(TableColumn(f"c{i}", *LINE) for i in range(2))
ENTERED = [
    *((kind, loss) for loss in (Logistic(), ClassWeighted(Logistic(), (0.1, 50.0)), Squared()) for kind in (1, 2, 3)),
    *((kind, loss) for loss in (Softmax(), ClassWeighted(Softmax(), (0.1, 5.0, 30.0))) for kind in (1, 2, 3)),
]


def entered(kind, loss, size, rows, bound):
    """A linear model, a perceptron or effects of columns, with a theta of this size, on hostile rows."""
    X = np.random.default_rng(0).uniform(-1, 1, (10, 2)).astype(np.float32)
    X[0], X[1], X[2], X[3], X[4, 1] = np.nan, np.inf, 3e38, 0.0, -np.inf
    y = np.array([0, 1, 2, 0, 1, 2, 0, 1, -1, 99] if loss.task == "classes" else [1, -1] * 3 + [5, -9, np.nan, np.inf])
    outputs = 3 if loss.task == "classes" else 1
    model = (
        Linear(2, loss, outputs) if kind == 1 else MLP((2, 3, outputs), loss) if kind == 2
        else Additive(1, loss, outputs, columns=COLUMNS)
    )  # fmt: skip
    width = HATS.width * outputs if kind == 3 else model.dimension
    theta = tuple((size * np.random.default_rng(1).normal(size=width)).tolist())
    labels = y if outputs > 1 else y.astype(np.float32)
    return Entrant(model, theta, X[rows], labels[rows], HATS if kind == 3 else None, bound)


@pytest.mark.parametrize("kind, loss", ENTERED, ids=lambda one: getattr(one, "name", one))
@pytest.mark.parametrize("scoring", ["error", "loss"])
def test_a_record_moves_what_is_compared_within_its_bound_whatever_it_is(kind, loss, scoring):
    for size, bound in ((1.0, 2.0), (1e20, 1e-3)):
        with own_settings():
            sums = [panel._sum(entered(kind, loss, size, [i], bound), scoring, in_memory) for i in range(10)]
            assert panel._sum(entered(kind, loss, size, slice(None), bound), scoring, in_memory) == sum(sums)
        low, high = (Fraction(-1, 2), Fraction(1, 2)) if scoring == "error" else (Fraction(0), Fraction(bound))
        assert low <= min(sums) and max(sums) <= high
        assert sums[0] == high or kind == 3  # what is not finite is the worst there is; in a table it is missing


# -- strangers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_a_method_without_privacy_cannot_say_that_it_has_some(how):
    """Its type decides: it would be handed the records, and the choice would be among what it made of them."""
    liar = NonPrivate()
    object.__setattr__(liar, "private", True)
    object.__setattr__(liar, "losses", ("logistic",))
    object.__setattr__(liar, "terms", DpSgd(steps=1).terms)
    purse = Purse(BUDGET)
    with pytest.raises(ValueError, match="makes no promise"):
        search([PLANS[0], {"method": liar}], how=how).fit(*rows(), purse=purse)
    assert purse.entries == ()


def test_terms_that_change_while_they_are_compared_open_no_other_meter(monkeypatch):
    one = agreed(of(PLANS[:1])[0].fit, Budget(1.0, 1e-6), None)
    own, cheap = Terms.plan(one.terms.events), Terms.plan(Gaussian(1.5))
    whole = Purse.part

    def later(self, terms, *given, **named):
        object.__setattr__(own, "events", cheap.events)  # what another thread might do
        return whole(self, terms, *given, **named)

    monkeypatch.setattr(Purse, "part", later)
    with one.purse().part(own, one.promise) as part:
        assert part.meter.remaining == leaves(one.terms.events)


def test_a_stranger_is_stopped_at_the_price_of_its_own_run():
    @dataclass(frozen=True)
    class Greedy(DpSgd):
        name: ClassVar[str] = "greedy"

        def step(self, state, private, public):
            for _ in range(50):
                private.gradient(state.theta, clip=1.0, noise_multiplier=0.01)
            return super().step(state, private, public)

    found = search([{"method": Greedy(steps=3)}, PLANS[0]], how="exponential").fit(*rows())
    assert found.best_index_ == 1 and verify(found.statement_).holds


# -- statements of searches that nobody paid for ----------------------------------------------------------------------------


@cache
def honest(how):
    return json.loads(search(how=how).fit(*rows()).statement_.to_json())


def forged(how, events, budget=BUDGET, **said):
    """The statement of a search with other events, which are paid for and follow from each other as they should."""
    data = copy.deepcopy(honest(how))
    data["tuning"] |= said
    meter = open_meter(budget, Terms.plan(tuple(events)))
    for event in events:
        meter.spend(event)
    data["meter"] = meter.describe()
    data["events"] = [to_dict(Repeated(leaf, count)) for leaf, count in meter.events.items()]
    return verify(data | derived_words(data))


def run_of(how):
    plan = honest(how)["tuning"]["run"]["meter"]["plan"]
    return [Repeated(from_dict(item["event"]), item["count"]) for item in plan]


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_what_is_forged_below_is_sound_but_for_the_lie(how):
    events = [from_dict(event) for event in honest(how)["events"]]
    assert forged(how, [one.event if isinstance(one.event, Selection) else one for one in events]).holds


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_a_search_that_was_not_charged_at_all_is_found_out(how):
    assert not forged(how, run_of(how)).holds


def test_a_choice_that_was_not_charged_is_found_out():
    assert "choice" in forged("exponential", [*run_of("exponential")] * 2).reason


def test_candidates_that_were_not_charged_are_found_out():
    few = [*run_of("exponential"), BoundedRange(0.01)]
    many = ["{}"] * 50
    assert "every candidate" in forged("exponential", few, candidates=50, settings=many).reason
    assert "other settings" in forged("exponential", few, candidates=1).reason
    assert "other settings" in forged("exponential", few, candidates=0, settings=[]).reason


def test_a_selection_does_not_stand_for_all_runs_nor_beside_others():
    run, score = Composed(tuple(run_of("selection"))), Gaussian(9.0)
    assert not forged("exponential", [Selection((Composed(tuple(run_of("exponential"))), score), ONCE)]).holds
    assert not forged("selection", [Selection((run, score), ONCE), Gaussian(90.0)]).holds
    assert forged("selection", [Selection((run, score), ONCE)]).holds


@pytest.mark.parametrize("how", ["selection", "none"])
def test_words_of_a_search_add_no_line_to_a_statement(how):
    data = copy.deepcopy(honest(how))
    assert verify(data).holds
    data["tuning"]["words"] += "\n(epsilon, delta) = (0.01, 1e-09)"
    assert "one line" in verify(data).reason
    data = copy.deepcopy(honest(how))
    data["tuning"]["settings"][0] += "\n"
    assert "one line" in verify(data).reason


def test_a_score_that_was_not_charged_is_found_out():
    run = Composed(tuple(run_of("selection")))
    assert "score" in forged("selection", [Selection((run,), FEW)]).reason


def test_a_person_pays_for_training_and_score_together():
    data = copy.deepcopy(honest("selection"))
    data["promise"]["unit"] = Unit(2).words
    assert "score" in verify(data | derived_words(data)).reason


@pytest.mark.parametrize("field", ["epsilon", "delta"])
def test_the_price_is_checked_where_bounds_were_bought_too(field):
    data = copy.deepcopy(honest("selection"))
    bought = [to_dict(Gaussian(50.0))]
    meter = open_meter(Budget(0.5, 1e-7), Terms.adaptive("gdp"))
    meter.spend(Gaussian(50.0))
    data["preparation"] = {
        "epsilon": 0.5, "delta": 1e-7, "meter": meter.describe(), "events": bought, "what": "bounds of a column",
    }  # fmt: skip
    data["promise"] |= {"epsilon": 3.5, "delta": 1.1e-6}
    data["prepared"] = [{"part": "bounds", "words": "bounds of a column", "events": bought, "share": None}]
    found = verify(data | derived_words(data))
    assert found.holds, found.reason
    data["tuning"]["price"][field] /= 10
    assert "price" in verify(data | derived_words(data)).reason


# -- an account that a run cannot be a part of --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpsgd", "descent"])
def test_a_run_does_not_belong_to_an_account_that_is_smaller(method):
    model = nw.PrivateClassifier(BUDGET.epsilon, BUDGET.delta, bounds=(-1, 1), method=method)
    with nw.spending(BUDGET, dataset="patients"):
        data = json.loads(model.fit(*rows()).statement_.to_json())
    assert verify(data).holds
    data["account"]["epsilon"] = 0.1
    assert not verify(data).holds
