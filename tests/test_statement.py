"""A statement promises no more than its events pay for, and ``verify`` finds out when it does."""

from __future__ import annotations

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget, PlanMeter
from noisewise.methods.dpsgd import DpSgd
from noisewise.statements.seal import SHAPE
from noisewise.statements.statement import Statement, derived_words, make_statement, training_budget
from noisewise.trusted.accountants.base import ACCOUNTANTS
from noisewise.trusted.arithmetic import GRADES, PSEUDO_RANDOM, Arithmetic, together
from noisewise.trusted.events import (
    ADJACENCIES,
    AtOrder,
    Composed,
    Gaussian,
    Poisson,
    PoissonRepetitions,
    Repeated,
    Selection,
    TruncatedNegativeBinomial,
    to_dict,
)
from noisewise.trusted.units import RECORD

X = np.random.default_rng(0).uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0).astype(int)


def fitted(sampling=("full",), **changes):
    method = DpSgd(steps=10, sampling=sampling)
    return nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method=method, **changes).fit(X, Y)


RUNS = {
    "full": fitted().statement_,
    "poisson": fitted(("poisson", 0.1)).statement_,
    "public size": fitted(size_is_public=True).statement_,
    "replace_one": fitted(adjacency="replace_one").statement_,
    "fixed": fitted(("fixed", 0.1), adjacency="replace_one").statement_,
}


def adaptive() -> dict:
    """A true statement of a run under a filter: noise chosen on the way, stopped at half of the budget."""
    meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    for _ in range(3):
        meter.spend(Gaussian(meter.noise_for(0.2)))
    data = data_of("public size")
    events = [to_dict(Repeated(leaf, count)) for leaf, count in meter.events.items()]
    data |= {"meter": meter.describe(), "events": events}
    return data | derived_words(data)


def prepared(epsilon: float = 0.25, delta: float = 2.5e-7) -> dict:
    """A true statement of a run after a preparation: both parts filtered, the promise is their sum."""
    before, training = AdditiveMeter(Budget(epsilon, delta), "gdp"), AdditiveMeter(Budget(0.75, 7.5e-7), "gdp")
    before.spend(Repeated(Gaussian(before.noise_for(1 / 4)), 4))
    training.spend(Repeated(Gaussian(training.noise_for(1 / 10)), 10))
    events = [[to_dict(Repeated(leaf, n)) for leaf, n in meter.events.items()] for meter in (before, training)]
    data = data_of("public size")
    data["meter"], data["events"] = training.describe(), events[1]
    data["promise"] |= {"epsilon": epsilon + 0.75, "delta": delta + 7.5e-7}
    data["preparation"] = {
        "epsilon": epsilon, "delta": delta, "meter": before.describe(), "events": events[0], "what": "bounds of 4 columns",
    }  # fmt: skip
    return data | derived_words(data)


def data_of(run: str = "full") -> dict:
    return json.loads(RUNS[run].to_json())


def changed(data: dict, *path, to) -> dict:
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return data


def without(data: dict, *path) -> dict:
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return data


def refused(data) -> str:
    verdict = nw.verify(data)
    assert verdict.holds is False, "this statement promises too much and must not verify"
    assert verdict.reason
    return verdict.reason


# --- what holds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_a_private_run_verifies_from_its_json_alone(run):
    verdict = nw.verify(data_of(run))
    assert verdict.holds, verdict.reason
    assert verdict.epsilon == 1.0


def test_an_adaptive_run_verifies():
    assert nw.verify(adaptive()).holds


@pytest.mark.parametrize("run", RUNS)
def test_json_round_trip(run):
    data = RUNS[run].data
    assert nw.verify(json.loads(json.dumps(data_of(run)))) == nw.verify(data_of(run))
    assert json.loads(RUNS[run].to_json()) == json.loads(json.dumps(data))
    assert "NaN" not in RUNS[run].to_json() and "Infinity" not in RUNS[run].to_json()


@pytest.mark.parametrize("run", RUNS)
def test_a_statement_names_everything(run):
    data = data_of(run)
    later = {
        "arithmetic",
        "prepared",
        "account",
        "tuning",
        "federated",
        "isolation",
        "code",
    }  # than the first statements
    assert set(data) - later == {*FIELDS, *WORDS} == set(SHAPE) - later
    assert data["promise"]["unit"] == "one record"
    assert data["software"] == {"noisewise": nw.__version__}
    assert data["method"]["settings"]["steps"] == 10
    text = str(RUNS[run])
    for part in (
        "(1, 1e-06)",
        data["promise"]["adjacency"],
        "10 x Gaussian noise",
        "dpsgd",
        "logistic",
        "Assumed public",
        "Setting: central; the unit is one record",
        "Hyper-parameters: chosen without the private records",
        "Covers: the trained parameters",
        "Does not cover: what is assumed to be public",
    ):
        assert part in text


def test_a_statement_object_can_be_verified_as_it_is():
    assert nw.verify(RUNS["full"]).holds, "clf.statement_ is what a user has in hand"


def test_events_of_a_plan_may_be_left_out_because_the_whole_plan_stays_charged():
    assert nw.verify(changed(data_of(), "events", to=data_of()["events"][:1])).holds
    assert nw.verify(changed(data_of(), "events", 1, "count", to=3)).holds


def test_a_weaker_promise_holds_too():
    assert nw.verify(changed(data_of(), "promise", "epsilon", to=2.0)).holds


# --- what does not ---------------------------------------------------------------------------------------------------


def test_a_simulation_is_not_private():
    assert "simulation" in refused(dict(fitted(random_state=0).statement_.data))
    for other in (True, None, 0, 1, "false", []):
        refused(changed(data_of(), "simulation", to=other))


def test_a_run_without_privacy_promises_nothing():
    clf = nw.PrivateClassifier(bounds=(-1, 1), method="nonprivate").fit(X, Y)
    assert "without privacy" in refused(json.loads(clf.statement_.to_json()))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("field", "factor"), [("epsilon", 0.99), ("epsilon", 0.1), ("delta", 0.9), ("delta", 1e-3)])
def test_a_stronger_promise_is_refused(run, field, factor):
    data = data_of(run)
    reason = refused(changed(data, "promise", field, to=data["promise"][field] * factor))
    assert "epsilon" in reason or "delta" in reason


def test_a_stronger_promise_of_an_adaptive_run_is_refused_although_less_was_spent():
    """The stated epsilon is the cap, never the realised spend."""
    refused(changed(adaptive(), "promise", "epsilon", to=0.9))
    refused(changed(adaptive(), "promise", "delta", to=1e-7))


def test_noise_raised_in_the_events_or_the_plan():
    data = data_of("public size")
    noise = data["events"][0]["event"]["noise_multiplier"]
    in_events = changed(data, "events", 0, "event", "noise_multiplier", to=2 * noise)
    in_plan = changed(data, "meter", "plan", 0, "event", "noise_multiplier", to=2 * noise)
    assert "left in the plan" in refused(in_events)
    assert "these events give" in refused(in_plan)


def test_rate_lowered_in_the_events_or_the_plan():
    data = data_of("poisson")
    sampled = next(i for i, item in enumerate(data["events"]) if item["event"]["kind"] == "Poisson")
    planned = next(i for i, item in enumerate(data["meter"]["plan"]) if item["event"]["kind"] == "Poisson")
    refused(changed(data, "events", sampled, "event", "rate", to=0.01))
    refused(changed(data, "meter", "plan", planned, "event", "rate", to=0.01))


def test_count_lowered_in_the_plan_or_raised_in_the_events():
    data = data_of("public size")
    refused(changed(data, "meter", "plan", 0, "count", to=5))
    refused(changed(data, "events", 0, "count", to=11))
    refused(changed(data, "events", to=data["events"] * 2))


def test_a_plan_that_lacks_an_event_that_happened():
    data = data_of()
    for place in range(len(data["meter"]["plan"])):
        refused(without(data, "meter", "plan", place))


def test_a_promise_that_nothing_was_paid_for():
    """An empty plan costs nothing, so any epsilon would hold; but no model comes from no question."""
    data = changed(changed(data_of(), "meter", "plan", to=[]), "events", to=[])
    refused(data)
    refused(changed(data, "promise", "epsilon", to=1e-9))
    refused(changed(changed(adaptive(), "events", to=[]), "promise", "epsilon", to=1e-9))


def test_the_meter_may_not_state_another_price_than_its_plan_has():
    for price in (0.001, None, math.nan, "0.5", 2.0):
        refused(changed(data_of(), "meter", "epsilon", to=price))
    refused(without(data_of(), "meter", "epsilon"))


def test_the_cap_of_a_meter_belongs_to_the_promise():
    cap = adaptive()["meter"]["cap"]
    for other in (2 * cap, math.nan, math.inf, None, "1", cap / 2):
        refused(changed(adaptive(), "meter", "cap", to=other))


def test_the_meter_may_not_name_another_relation_than_the_promise():
    refused(changed(adaptive(), "meter", "adjacency", to="replace_one"))


def test_other_meters_and_accountants_are_refused_by_name():
    for kind in ("free", None, 3, ""):
        refused(changed(data_of(), "meter", "meter", to=kind))
    for name in ("none", None, "", 0):
        refused(changed(data_of(), "meter", "accountant", to=name))
        refused(changed(adaptive(), "meter", "name", to=name))
    refused(changed(data_of(), "meter", "name", to="exact"))
    refused(changed(data_of(), "meter", to=None))


@pytest.mark.parametrize("name", ["rdp", "zcdp", "pld", "tcdp", "ctcdp", "moments", "advanced", "basic", "gdp"])
def test_naming_another_accountant_never_buys_a_smaller_epsilon(name):
    for run in RUNS:
        forged = changed(data_of(run), "meter", "accountant", to=name)
        refused(changed(forged, "promise", "epsilon", to=0.95))


def test_the_cheaper_relation_is_refused():
    """Noise that was scaled for one relation says nothing about the other: units of statistics differ."""
    refused(changed(data_of("full"), "promise", "adjacency", to="replace_one"))
    for run in ("replace_one", "fixed"):
        forged = changed(data_of(run), "promise", "adjacency", to="add_remove")
        refused(forged)
        refused(changed(forged, "promise", "epsilon", to=0.6))
    for other in ("none", None, "", 1, ["add_remove"]):
        refused(changed(data_of(), "promise", "adjacency", to=other))


def test_one_record_is_the_unit():
    for unit in ("one person", "one household", "", None, 3):
        assert "unit" in refused(changed(data_of(), "promise", "unit", to=unit))


@pytest.mark.parametrize("size", ["unknown", None, "", 400])
def test_the_size_is_public_or_bought(size):
    assert "size" in refused(changed(data_of(), "size", to=size))


def test_a_bought_size_shows_in_the_events():
    assert "size" in refused(changed(data_of("public size"), "size", to="bought"))
    assert "size" in refused(changed(data_of("replace_one"), "size", to="bought"))


FIELDS = [
    "format", "promise", "simulation", "meter", "events", "preparation", "size", "method", "model", "hyper_parameters",
    "assumed", "software",
]  # fmt: skip
WORDS = ["setting", "guarantee", "accounting", "covers", "does_not_cover", "trusted"]


@pytest.mark.parametrize("field", [*FIELDS, *WORDS])
def test_a_field_is_missing(field):
    assert field in refused(without(data_of(), field))


@pytest.mark.parametrize("field", ["method", "model", "hyper_parameters", "assumed", "software", "events", *WORDS])
@pytest.mark.parametrize("value", [None, "", 3, True, [3]])
def test_a_field_has_another_shape(field, value):
    if (field, value) != ("hyper_parameters", ""):
        refused(changed(data_of(), field, to=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("setting",), "local"),
        (("guarantee",), "(0.1, 0)-differential privacy"),
        (("accounting", "type"), "a plan fixed beforehand, priced by magic"),
        (("accounting", "assumptions"), []),
        (("covers",), ["everything"]),
        (("does_not_cover",), []),
        (("trusted",), "nothing"),
    ],
)
def test_words_that_do_not_follow_from_the_rest_are_refused(path, value):
    assert "does not follow" in refused(changed(data_of(), *path, to=value))


def test_the_assumptions_name_the_sampling():
    told = {run: " ".join(data_of(run)["accounting"]["assumptions"]) for run in RUNS}
    assert "Poisson" in told["poisson"] and "Poisson" not in told["full"]
    assert "without replacement" in told["fixed"] and "all records" in told["full"]
    assert "fixed before" in told["full"] and "earlier answers" in " ".join(adaptive()["accounting"]["assumptions"])


@pytest.mark.parametrize(
    "place",
    [(), ("promise",), ("meter",), ("meter", "plan", 0), ("events", 0), ("events", 0, "event"), ("accounting",)],
)
def test_unknown_fields_are_refused(place):
    """A promise in a field that nobody checks is a promise that nobody checked."""
    assert "pure_epsilon" in refused(changed(data_of(), *place, "pure_epsilon", to=0.0))


def test_unknown_kinds_are_refused_by_name():
    for kind in ("Laplace", None, 3, "", ["Gaussian"]):
        reason = refused(changed(data_of(), "events", 0, "event", "kind", to=kind))
        assert "kind" in reason
        refused(changed(data_of(), "meter", "plan", 0, "event", "kind", to=kind))


NUMBERS = [
    ("promise", "epsilon"),
    ("promise", "delta"),
    ("meter", "plan", 0, "count"),
    ("meter", "plan", 0, "event", "noise_multiplier"),
    ("events", 0, "count"),
    ("events", 0, "event", "noise_multiplier"),
]
HUGE = 10**400  # a whole number that JSON allows and no float can hold


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize(
    "value", [math.nan, -math.inf, -1, "1", None, [], {}, True, HUGE, -HUGE], ids=lambda v: repr(v)[:9]
)
def test_what_is_no_number_is_refused(path, value):
    refused(changed(data_of("public size"), *path, to=value))


@pytest.mark.filterwarnings("ignore")  # as for a user: a warning does not stop a price that is not a number
@pytest.mark.parametrize("noise", [2e-6, 1e-9, 1e-160, 1e-300, 5e-324])
@pytest.mark.parametrize("accountant", ["auto", *ACCOUNTANTS])
def test_almost_no_noise_is_refused_by_every_accountant(accountant, noise):
    gaussian = {"kind": "Gaussian", "noise_multiplier": noise}  # as a forger writes it: the event itself would refuse
    for leaf in (gaussian, *({"kind": kind, "rate": 0.1, "event": gaussian} for kind in ("Poisson", "FixedBatch"))):
        for adjacency in ADJACENCIES:
            data = changed(data_of("public size"), "promise", "adjacency", to=adjacency)
            plan = [{"event": leaf, "count": 10}]
            data["meter"] |= {"accountant": accountant, "plan": plan, "adjacency": adjacency}
            data["events"] = [{"kind": "Repeated", "event": leaf, "count": 10}]
            refused(data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("epsilon", [1e300, 800.0, 400.0])
@pytest.mark.parametrize("accountant", ["auto", *ACCOUNTANTS])
def test_a_huge_one_shot_price_is_refused_by_every_accountant(accountant, epsilon):
    selection = {"kind": "BoundedRange", "epsilon": epsilon}
    one_shot = {"kind": "ApproximateDP", "epsilon": epsilon, "delta": 1e-9}
    for leaf in (selection, one_shot, {"kind": "Poisson", "rate": 0.1, "event": selection}):
        data = data_of("public size")
        data["meter"] |= {"accountant": accountant, "plan": [{"event": leaf, "count": 1}]}
        refused(changed(data, "events", to=[{"kind": "Repeated", "event": leaf, "count": 1}]))


@pytest.mark.parametrize(
    "document", [None, [], {}, "", "yes", 1, True, [{}], {"format": None}, {"format": "noisewise-statement/1"}]
)
def test_what_is_no_statement_is_refused_in_words(document):
    reason = refused(document)
    assert not any(word in reason for word in ("TypeError", "KeyError", "AttributeError", "subscriptable", "indices"))


def test_another_format_is_refused():
    assert "noisewise-statement/9" in refused(changed(data_of(), "format", to="noisewise-statement/9"))


def test_events_nested_beyond_reason_are_refused():
    event = {"kind": "Gaussian", "noise_multiplier": 50.0}
    for _ in range(5000):
        event = {"kind": "Repeated", "event": event, "count": 1}
    refused(data_of() | {"events": [event]})


def test_nested_counts_multiply():
    data = data_of("public size")
    leaf = Gaussian(data["events"][0]["event"]["noise_multiplier"])
    fits = to_dict(Repeated(Composed((leaf, leaf)), 5))
    assert nw.verify(changed(data, "events", to=[fits])).holds
    refused(changed(data, "events", to=[to_dict(Repeated(Composed((leaf, leaf)), 6))]))


def test_a_verdict_does_not_change_the_statement():
    data = data_of()
    before = copy.deepcopy(data)
    nw.verify(data)
    assert data == before


# --- what was spent before training ----------------------------------------------------------------------------------


def test_a_run_after_a_preparation_verifies_at_the_total():
    verdict = nw.verify(prepared())
    assert verdict.holds, verdict.reason
    assert verdict.epsilon == 1.0
    text = str(Statement(prepared()))
    assert "Before training, (0.25, 2.5e-07) of it bought bounds of 4 columns" in text and "(1, 1e-06)" in text


def test_a_preparation_is_part_of_the_price():
    """Neither part may be left out, made smaller, or paid for by the other."""
    data = prepared()
    refused(changed(data, "promise", "epsilon", to=0.75))
    refused(changed(data, "promise", "delta", to=7.5e-7))
    refused(changed(data, "promise", "epsilon", to=0.99))
    for field, value in (("epsilon", 0.01), ("epsilon", 0.9), ("delta", 1e-9), ("delta", 9e-7)):
        refused(changed(data, "preparation", field, to=value))
    refused(changed(data, "preparation", "events", 0, "count", to=5))
    refused(changed(data, "events", 0, "count", to=11))
    refused(
        changed(changed(data, "preparation", "events", to=data["events"]), "events", to=data["preparation"]["events"])
    )
    without_it = changed(data, "preparation", to=None)
    refused(without_it)
    refused(without_it | derived_words(without_it))


def test_a_preparation_that_takes_everything_leaves_nothing_for_training():
    for epsilon, delta in ((1.0, 2.5e-7), (2.0, 2.5e-7), (0.25, 1e-6), (0.25, 1e-5)):
        forged = changed(changed(prepared(), "preparation", "epsilon", to=epsilon), "preparation", "delta", to=delta)
        assert "nothing for training" in refused(forged)


@pytest.mark.parametrize("field", ["epsilon", "delta", "meter", "events", "what"])
@pytest.mark.parametrize(
    "value", [None, math.nan, math.inf, -0.1, 0, "0.25", True, [], {}, "", [3], HUGE], ids=lambda v: repr(v)[:9]
)
def test_odd_preparations_are_refused(field, value):
    if (field, value) != ("what", "0.25"):
        refused(changed(prepared(), "preparation", field, to=value))
    refused(without(prepared(), "preparation", field))
    assert "pure_epsilon" in refused(changed(prepared(), "preparation", "pure_epsilon", to=0.0))
    refused(changed(prepared(), "preparation", to=value if value is not None else {}))


def test_the_preparation_keeps_the_relation_of_the_promise():
    data = prepared()
    refused(changed(data, "preparation", "meter", "adjacency", to="replace_one"))
    other = AdditiveMeter(Budget(0.25, 2.5e-7, "replace_one"), "gdp")
    other.spend(Gaussian(other.noise_for(1.0)))
    forged = changed(data, "preparation", "meter", to=other.describe())
    refused(changed(forged, "preparation", "events", to=[to_dict(leaf) for leaf in other.events]))


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3, 0.07])
def test_what_a_preparation_leaves_is_what_a_statement_promises_back(share):
    """Rounding: the rest is rounded down, the promise up, and a round total stays round."""
    before = {"epsilon": share, "delta": share * 1e-6}
    total = Budget(1.0, 1e-6)
    rest = training_budget(total, before)
    assert rest.epsilon + share <= 1.0 + 1e-15 and abs(rest.epsilon + share - 1) < 1e-12
    meter = AdditiveMeter(rest, "gdp")
    meter.spend(Gaussian(meter.noise_for(1.0)))
    buy = AdditiveMeter(Budget(**before), "gdp")
    buy.spend(Gaussian(buy.noise_for(1.0)))
    bought = before | {"meter": buy.describe(), "events": [to_dict(leaf) for leaf in buy.events], "what": "bounds"}
    facts = SimpleNamespace(
        unit=RECORD, budget=rest, size_is_public=True, linear=True, tensors=False, table=(), loss="logistic"
    )
    run = SimpleNamespace(facts=facts, meter=meter, simulation=False, trace=(), features=None)
    model = data_of()["model"]
    made = make_statement(method="dpsgd", settings={}, run=run, model=model, assumed=[], preparation=bought,
                          arithmetic=Arithmetic("bounded", (PSEUDO_RANDOM,)))  # fmt: skip
    assert nw.verify(made).arithmetic == "bounded"
    assert (made.data["promise"]["epsilon"], made.data["promise"]["delta"]) == (1.0, 1e-6)
    assert nw.verify(made).holds, nw.verify(made).reason
    assert "bounds" in made.data["covers"][-1]


# --- arithmetic ------------------------------------------------------------------------------------------------------


GRADED = {"grade": "exact", "assumptions": ["AES is pseudo-random"]}


def test_the_grade_of_the_arithmetic_is_stated_in_words_and_in_the_verdict():
    data = data_of() | {"arithmetic": GRADED}
    assert "Arithmetic: exact (sums in integers, noise rounded onto a public grid), assuming that AES" in str(
        Statement(data)
    )
    verdict = nw.verify(data)
    assert verdict.holds and verdict.arithmetic == "exact" and str(verdict).endswith("one record; arithmetic exact")
    del data["arithmetic"]
    verdict = nw.verify(data)
    assert verdict.holds and verdict.arithmetic is None and "Arithmetic" not in str(Statement(data))


@pytest.mark.parametrize(
    "entry",
    [None, "exact", [], {}, {"grade": "exact"}, {"assumptions": []}, GRADED | {"grade": "perfect"}, GRADED | {"grade": None},
     GRADED | {"grade": ["exact"]}, GRADED | {"assumptions": "none"}, GRADED | {"assumptions": [3]}, GRADED | {"more": 1}],
)  # fmt: skip
def test_an_odd_entry_about_the_arithmetic_is_refused(entry):
    assert "arithmetic" in refused(data_of() | {"arithmetic": entry})


def test_grades_together_are_the_worst_of_them():
    exact, bounded, assumed = (Arithmetic(grade, (grade, "AES")) for grade in GRADES)
    assert together(exact, bounded) == Arithmetic("bounded", ("exact", "AES", "bounded"))
    assert together(assumed, exact, bounded).grade == "assumed" and together() == Arithmetic("exact")
    for odd in (("perfect", ()), ("exact", ["a"]), ("exact", (3,)), ("exact", "a")):
        with pytest.raises(ValueError, match=r"grade is|assumptions must"):
            Arithmetic(*odd)


# --- private selection -------------------------------------------------------------------------------------------------


def selected(promise: float = 1.0, law=None) -> dict:
    """A true statement of a private selection: one event, a plan that RDP prices."""
    candidates = (Gaussian(20.0), Repeated(Poisson(0.05, Gaussian(8.0)), 10))
    event = Selection(candidates, law or TruncatedNegativeBinomial(1.0, 0.1))
    meter = PlanMeter(Budget(promise, 1e-6), event)
    meter.spend(event)
    data = data_of("public size")
    data |= {"meter": meter.describe(), "events": [to_dict(Repeated(leaf, n)) for leaf, n in meter.events.items()]}
    return json.loads(json.dumps(data | derived_words(data)))


@pytest.mark.parametrize("law", [TruncatedNegativeBinomial(0.0, 0.1), PoissonRepetitions(5.0)])
def test_a_selection_is_priced_again_from_its_statement(law):
    data = selected(law=law)
    verdict = nw.verify(data)
    assert verdict.holds, verdict.reason
    assert data["meter"]["accountant"] == "rdp"
    assert "secret number of runs" in str(Statement(data)) and "Poisson batches" in str(Statement(data))
    told = " ".join(data["accounting"]["assumptions"])
    assert "number of runs" in told and "all records" not in told and "Poisson batch" in told


def test_a_selection_that_costs_more_than_was_promised_is_refused():
    data = selected()
    price = data["meter"]["epsilon"]
    less = changed(data, "promise", "epsilon", to=0.9 * price)
    assert "cost" in refused(less)
    for place in (("meter", "plan", 0, "event"), ("events", 0, "event")):
        louder = changed(data, *place, "candidates", 0, "noise_multiplier", to=2.0)
        refused(louder)
        refused(changed(data, *place, "repetitions", "gamma", to=1e-9))
        refused(changed(data, *place, "repetitions", "kind", to="Once"))
        refused(changed(data, *place, "candidates", to=[]))
    both = changed(data, "meter", "plan", 0, "event", "repetitions", "gamma", to=1e-9)
    both = changed(both, "events", 0, "event", "repetitions", "gamma", to=1e-9)
    assert "cost epsilon" in refused(both)
    louder = changed(both, "meter", "plan", 0, "event", "candidates", 0, "noise_multiplier", to=2.0)
    assert "more than the budget" in refused(louder)


def test_a_selection_under_an_rdp_filter_verifies_and_under_gdp_does_not():
    event = Selection((AtOrder(24, 0.01),), TruncatedNegativeBinomial(1.0, 0.2))
    meter = AdditiveMeter(Budget(2.0, 1e-6), "rdp", order=24)
    meter.spend(event)
    data = data_of("public size")
    data["promise"]["epsilon"] = 2.0
    data |= {"meter": meter.describe(), "events": [to_dict(Repeated(event, 1))]}
    data = json.loads(json.dumps(data | derived_words(data)))
    assert nw.verify(data).holds and "RDP filter at order 24" in str(Statement(data))
    wrong = changed(data, "meter", to=AdditiveMeter(Budget(2.0, 1e-6), "gdp").describe())
    assert "RDP only" in refused(wrong)
