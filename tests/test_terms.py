"""Terms name a meter and are none: what is made of them, what is refused, and what a method sees of the meter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from test_events import events as any_events

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, MeterView, PlanMeter, Terms, open_meter
from noisewise.accounts.choosing import choose_meter
from noisewise.methods import Method, makes_a_promise, method_named, registry
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.nonprivate import NonPrivate
from noisewise.train import Records, train
from noisewise.trusted.accountants.choose import choose_terms
from noisewise.trusted.curator import facts_of
from noisewise.trusted.events import Composed, FixedBatch, Gaussian, Poisson, Repeated, rebuilt
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

BUDGET = Budget(1.0, 1e-6)
MODEL = Linear(3, Logistic())
PRIVATE = [name for name, kind in registry().items() if kind.private]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(any_events)
def test_an_event_made_anew_is_equal_and_another(event):
    again = rebuilt(event)
    assert again == event and again is not event and type(again) is type(event)
    assert getattr(again, "event", None) is None or again.event is not event.event


class Subclass(Gaussian):
    pass


class Sly(float):
    """Looks like 5 and multiplies like 1e9."""

    def __mul__(self, other):
        return 1e9 * other


def test_only_exact_events_are_made_anew_and_of_plain_numbers():
    for wrong in (Subclass(5.0), Repeated(Subclass(5.0), 2), Composed((Subclass(5.0),)),
                  Poisson(0.5, Subclass(5.0)), FixedBatch(0.5, Subclass(5.0)), 5.0, None, (Gaussian(5.0),)):  # fmt: skip
        with pytest.raises(TypeError, match="is not an event"):
            rebuilt(wrong)
    plain = rebuilt(Gaussian(Sly(5.0))).noise_multiplier
    assert type(plain) is float and plain * 2 == 10.0


@pytest.mark.parametrize(
    ("terms", "kind", "name"),
    [(Terms.plan(Repeated(Gaussian(50.0), 3)), PlanMeter, "gdp"),
     (Terms.plan([Poisson(0.01, Gaussian(5.0))], "rdp"), PlanMeter, "rdp"),
     (Terms.adaptive("rdp", order=20), AdditiveMeter, "rdp"),
     (Terms.adaptive("gdp", one_shot_delta=1e-7), AdditiveMeter, "gdp"),
     (Terms.adaptive("zcdp"), AdditiveMeter, "zcdp")],
)  # fmt: skip
def test_a_meter_is_opened_as_named_for_the_budget_asked_for_with_nothing_spent(terms, kind, name):
    meter = open_meter(BUDGET, terms)
    assert type(meter) is kind and meter.budget == BUDGET
    assert name in (meter.describe().get("accountant"), meter.name)
    assert meter.spent_fraction == 0 and not meter.events
    assert meter is not open_meter(BUDGET, terms)


@dataclass(frozen=True)
class MyTerms(Terms):
    pass


class Text(str):
    pass


class Sequence(tuple):
    pass


WRONG = {
    "a meter": lambda: AdditiveMeter(BUDGET, "gdp"),
    "nothing": lambda: None,
    "a subclass": lambda: MyTerms("adaptive", "gdp"),
    "a tuple": lambda: ("adaptive", "gdp", (), None, 0.0),
    "a name of another type": lambda: Terms("adaptive", Text("gdp")),
    "a kind of another type": lambda: Terms(Text("adaptive"), "gdp"),
    "a kind that is unknown": lambda: Terms("generous", "gdp"),
    "events of another type": lambda: Terms("plan", "gdp", Sequence([Gaussian(50.0)])),
    "a list of events": lambda: Terms("plan", "gdp", [Gaussian(50.0)]),
    "a subclass of an event": lambda: Terms.plan(Subclass(50.0)),
    "no event": lambda: Terms("plan", "gdp", (50.0,)),
    "an order that is none": lambda: Terms.adaptive("rdp", order=20.0),
    "a share that is none": lambda: Terms.adaptive("gdp", one_shot_delta=Sly(1e-7)),
    "a share above delta": lambda: Terms.adaptive("gdp", one_shot_delta=1e-5),
    "an accountant that is none": lambda: Terms.adaptive("abacus"),
    "an accountant that is no filter": lambda: Terms.adaptive("pld"),
    "adaptive with a plan": lambda: Terms("adaptive", "gdp", (Gaussian(50.0),)),
    "a plan with an order": lambda: Terms("plan", "rdp", (Gaussian(50.0),), order=9),
    "a plan that costs more": lambda: Terms.plan(Gaussian(0.1)),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_terms_are_refused_with_what_to_pass(what):
    with pytest.raises((TypeError, ValueError), match=r"pass|return exactly"):
        open_meter(BUDGET, WRONG[what]())


def test_an_event_changed_after_it_was_priced_buys_nothing():
    """Frozen data can be changed by whoever holds it; the meter, and the price that is remembered, have their own."""
    mine = Gaussian(500.0)
    meter = open_meter(BUDGET, Terms.plan(mine, "gdp"))
    object.__setattr__(mine, "noise_multiplier", 0.01)
    with pytest.raises(BudgetExhausted):
        meter.spend(Gaussian(0.01))
    with pytest.raises(BudgetExhausted):
        meter.spend(mine)
    assert meter.describe()["plan"][0]["event"]["noise_multiplier"] == 500.0
    with pytest.raises(ValueError, match="more than the budget's"):
        open_meter(BUDGET, Terms.plan(mine, "gdp"))
    meter.spend(Gaussian(500.0))


def test_chosen_terms_open_the_meter_that_is_chosen():
    plan = [Poisson(0.01, Gaussian(5.0))]
    for how in (
        {"adaptive": True}, {"adaptive": True, "sampling": ("poisson", 0.01), "steps": 30},
        {"adaptive": True, "meter": "zcdp"}, {"adaptive": False, "plan": plan}, {"adaptive": False, "plan": Gaussian(50.0)},
        {"adaptive": False, "plan": plan, "meter": "rdp"},
    ):  # fmt: skip
        assert open_meter(BUDGET, choose_terms(BUDGET, **how)).describe() == choose_meter(BUDGET, **how).describe()


# -- the view -----------------------------------------------------------------------------------------------------


def test_a_view_shows_what_the_meter_says_and_can_change_nothing():
    meter = AdditiveMeter(BUDGET, "gdp")
    view = MeterView(meter)
    meter.spend(Gaussian(meter.noise_for(0.5)))
    assert view.noise_for(0.5) == meter.noise_for(0.5)
    assert (view.spent_fraction, view.budget, view.events) == (meter.spent_fraction, meter.budget, meter.events)
    assert {name for name in dir(view) if name[0] != "_"} == {
        "budget", "events", "noise_for", "share_after", "spent_fraction",
    }  # fmt: skip
    for name in ("budget", "events", "noise_for", "share_after", "spent_fraction", "spend", "meter", "other"):
        with pytest.raises(AttributeError):
            setattr(view, name, None)
    before = meter.describe(), meter.events
    object.__setattr__(view.budget, "epsilon", 1000.0)
    for event in view.events:
        object.__setattr__(event, "noise_multiplier", 1e9)
    view.events.clear()
    assert (meter.describe(), meter.events) == before and meter.budget == BUDGET
    assert "0.5" in repr(view)


def test_no_meter_can_have_a_method_of_its_own():
    for meter in (AdditiveMeter(BUDGET, "gdp"), PlanMeter(BUDGET, Gaussian(50.0))):
        for name in ("spend", "affords", "noise_for", "describe", "budget", "epsilon", "accountant", "other"):
            with pytest.raises(AttributeError):
                setattr(meter, name, lambda *_: None)


def test_a_plan_has_no_noise_to_hand_out_through_its_view_either():
    with pytest.raises(ValueError, match="fixed beforehand"):
        MeterView(open_meter(BUDGET, Terms.plan(Gaussian(50.0)))).noise_for(0.5)


# -- methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIVATE)
def test_every_method_names_terms(name):
    kind = registry()[name]
    assert not hasattr(kind, "meter")
    assert kind.terms is not Method.terms


def test_a_method_that_brings_a_meter_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match=r"Mine defines meter.*define terms\(self, facts\) instead"):
        type("Mine", (DpSgd,), {"meter": lambda self, facts: None})
    for meter in (None, property(lambda self: None), 3):
        with pytest.raises(TypeError, match="define terms"):
            type("Mine", (DpSgd,), {"meter": meter})
    mixin = type("Mixin", (), {"meter": lambda self, facts: None})
    with pytest.raises(TypeError, match="define terms"):
        type("Mine", (mixin, DpSgd), {})


def test_only_the_librarys_own_reference_is_not_private():
    assert all(makes_a_promise(registry()[name]()) for name in PRIVATE)
    assert not makes_a_promise(NonPrivate()) and not makes_a_promise(method_named("nonprivate"))
    for kind in (
        type("A", (DpSgd,), {"private": False}),
        type("B", (NonPrivate,), {}),
        type("C", (DpSgd,), {"private": 1}),
    ):
        with pytest.raises(TypeError, match="only the library's own nonprivate"):
            method_named(kind())
        with pytest.raises(TypeError, match="only the library's own nonprivate"):
            train(kind(), None, model=MODEL, budget=BUDGET)  # refused before there is a record to look at
    with pytest.raises(TypeError, match="no terms"):
        NonPrivate().terms(facts_of(MODEL, BUDGET, size=None, row_bound=1.0))


class Listening(np.ndarray):
    """A theta that would hear what it is multiplied with."""


class Heard(torch.Tensor):
    """The same as a tensor."""

    cpu = numpy = None


class Odd(DpSgd):
    finished = staticmethod(lambda theta: theta)

    def finish(self, state, public):
        return self.finished(super().finish(state, public))


def trained(finished):
    method = type("Odder", (Odd,), {"finished": staticmethod(finished)})(steps=2)
    records = Records(np.ones((50, 3)) / 2, np.ones(50), 50.0, 1.0)
    return train(method, records, model=MODEL, budget=BUDGET, seed=0).theta


def test_what_is_released_is_a_plain_array_of_ones_own():
    kept = []
    theta = trained(lambda theta: kept.append(theta) or theta.view(Listening))
    assert type(theta) is np.ndarray and np.array_equal(theta, kept[0])
    kept[0][:] = 0
    assert float(np.abs(theta).sum()) > 0
    for kind in (torch.Tensor, Heard):  # a method may work with tensors
        assert type(trained(lambda theta, kind=kind: torch.from_numpy(theta).as_subclass(kind))) is np.ndarray
    for wrong in (lambda theta: theta[:2], lambda theta: [*theta], lambda theta: None, lambda theta: theta.astype(int)):
        with pytest.raises(TypeError, match="flat array of 3"):
            trained(wrong)
