"""A stranger's method and the purse: whatever it brings, names or changes, no more is answered than the budget pays for.

Public names only, so that the same file runs on older versions, where every attack here succeeds.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise import budget as purses
from noisewise.budget import AdditiveMeter, PlanMeter
from noisewise.curator import CrossMoment, SecondMoment
from noisewise.methods import Method
from noisewise.methods.nonprivate import NonPrivate
from noisewise.trusted.events import Gaussian

try:
    from noisewise.trusted.accountants import choose as choice
except ImportError:
    from noisewise import choice

EPSILON, DELTA = 0.1, 1e-9
NAMES_TERMS = hasattr(Method, "terms")
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 3))
Y = np.where(X[:, 0] > 0, 1, -1)


class Stranger:
    """The parts of a method that do no harm; it asks once, in its only step, and hands back the start."""

    name = "stranger"

    def __init__(self, ask=lambda private, public: None):
        self.ask = ask

    def init(self, theta, facts, public):
        return (0, theta)

    def step(self, state, private, public):
        self.ask(private, public)
        return (1, state[1])

    def done(self, state):
        return state[0] > 0

    def finish(self, state, public):
        return state[1]

    def settings(self):
        return {}


def honestly(self, facts):
    choose = choice.choose_terms if NAMES_TERMS else choice.choose_meter
    return choose(facts.budget, adaptive=True)


def method_class(**more):
    """A method made by a stranger; its purse is honest unless ``more`` says otherwise."""
    if "meter" not in more and "terms" not in more:
        more["terms" if NAMES_TERMS else "meter"] = honestly
    return type("Evil", (Stranger, Method), {**more, "__module__": __name__})


def run(kind, *args, adjacency="add_remove", **fit):
    """The fitted estimator if the run went through with a statement that verifies; None if anything was refused."""
    try:
        fitted = nw.PrivateClassifier(
            EPSILON, DELTA, method=kind()(*args), bounds=(-1, 1), classes=[-1, 1], size_is_public=True,
            adjacency=adjacency,
        ).fit(X, Y, **fit)  # fmt: skip
    except (TypeError, ValueError, AttributeError, nw.BudgetExhausted):
        return None
    return fitted if nw.verify(fitted.statement_).holds else None


class Diary(list):
    """What a method was answered with almost no noise."""

    def __init__(self, noise_multiplier=0.01, times=1):
        super().__init__()
        self.noise_multiplier, self.times = noise_multiplier, times

    def __call__(self, private, public):
        for _ in range(self.times):
            self.append(private.statistic(CrossMoment(1.0), noise_multiplier=self.noise_multiplier))


def leaks(meter):
    """Whether a method with this ``meter`` is answered with almost no noise, and again under the name of terms."""
    for hook in ("meter", "terms"):
        diary = Diary()
        if run(lambda hook=hook: method_class(**{hook: lambda self, facts: meter(facts)}), diary) is not None and diary:
            return True
        if diary:  # answered, though the run was refused in the end
            return True
    return False


# -- a meter of one's own -----------------------------------------------------------------------------------------


def test_a_meter_for_another_budget_and_relation_is_not_taken():
    assert not leaks(lambda facts: AdditiveMeter(nw.Budget(1000.0, 0.4, "replace_one"), "zcdp"))
    assert not leaks(lambda facts: AdditiveMeter(nw.Budget(1000.0, 0.4), "gdp"))
    assert not leaks(lambda facts: PlanMeter(nw.Budget(1e6, 0.4), [Gaussian(0.01)], "gdp"))


class Forgetful(AdditiveMeter):
    """Spends nothing and states something else."""

    @property
    def events(self):
        return Counter({Gaussian(1e6): 1})

    def spend(self, event):
        pass


class TwoBudgets(AdditiveMeter):
    """Keeps a budget of its own and shows the one that was asked for."""

    def __init__(self, shown):
        super().__init__(nw.Budget(1e6, 0.4), "gdp")
        self.shown = shown

    @property
    def budget(self):
        return self.shown

    @property
    def events(self):
        return Counter({Gaussian(1e6): 1})

    def describe(self):
        return AdditiveMeter(self.shown, "gdp").describe()


class Copycat:
    """No meter at all, but it quacks like one."""

    name, adaptive, spent_fraction = "gdp", True, 0.0

    def __init__(self, budget):
        self.budget, self.events = budget, Counter({Gaussian(1e6): 1})

    def affords(self, event):
        return True

    def spend(self, event):
        pass

    def noise_for(self, share, sampling=("full",)):
        return 1.0

    def describe(self):
        return AdditiveMeter(self.budget, "gdp").describe()


@pytest.mark.parametrize(
    "meter",
    [lambda facts: Forgetful(facts.budget, "gdp"), lambda facts: TwoBudgets(facts.budget),
     lambda facts: Copycat(facts.budget)],
    ids=["forgets", "two budgets", "a copycat"],
)  # fmt: skip
def test_a_meter_that_does_not_count_is_not_taken(meter):
    assert not leaks(meter)


def test_a_meter_of_the_right_type_with_a_method_of_its_own_is_not_taken():
    def meter(facts):
        made = AdditiveMeter(facts.budget, "gdp")
        made.spend = lambda event: None
        return made

    assert not leaks(meter)


def test_a_curator_takes_no_meter_but_the_librarys():
    from noisewise.trusted.losses import Logistic

    from .house import Linear

    budget, rows = nw.Budget(EPSILON, DELTA), torch.ones(5, 3)
    for meter in (Forgetful(budget, "gdp"), TwoBudgets(budget), Copycat(budget)):
        with pytest.raises(TypeError, match="meter"):
            nw.Curator(rows, torch.ones(5), model=Linear(3, Logistic()), meter=meter, size=5.0)


def test_a_meter_put_on_the_class_or_the_object_later_is_not_asked():
    """Also when the class was honest while it was made."""
    diary = Diary()

    def later():
        kind = method_class()
        kind.meter = lambda self, facts: Forgetful(facts.budget, "gdp")
        return kind

    def on_the_object():
        def made(ask):
            method = method_class()(ask)
            method.meter = lambda facts: Forgetful(facts.budget, "gdp")
            return method

        return made

    for kind in (later, on_the_object):
        run(kind, diary)
    assert not diary


# -- terms that lie -----------------------------------------------------------------------------------------------


def lying_terms(facts):
    """Cheap when they are priced, dear when they are spent; before there were terms, a meter of that kind."""
    if not NAMES_TERMS:
        return Forgetful(facts.budget, "gdp")

    class Lying(purses.Terms):
        looks = 0

        @property
        def events(self):
            type(self).looks += 1
            return (Gaussian(1e5),) if self.looks < 3 else (Gaussian(0.01),)

    lying = object.__new__(Lying)
    for name, value in {"kind": "plan", "accountant": "gdp", "order": None, "one_shot_delta": 0.0}.items():
        object.__setattr__(lying, name, value)
    return lying


class TwoFaced(Gaussian):
    """Has much noise until it was looked at twice."""

    looks = 0

    @property
    def noise_multiplier(self):
        type(self).looks += 1
        return 1e5 if self.looks < 3 else 0.01


def changing_events(facts):
    event = object.__new__(TwoFaced)
    if NAMES_TERMS:
        return purses.Terms("plan", "gdp", (event,))
    return PlanMeter(nw.Budget(1e6, 0.4), [Gaussian(0.01)], "gdp")


@pytest.mark.parametrize("lie", [lying_terms, changing_events])
def test_terms_that_change_when_looked_at_are_refused(lie):
    diary = Diary()
    run(lambda: method_class(**{"terms" if NAMES_TERMS else "meter": lambda self, facts: lie(facts)}), diary)
    assert not diary


# -- what is reached through private ------------------------------------------------------------------------------


def test_the_meter_cannot_be_changed_through_private():
    """A spend that does nothing, set on what private.meter is; each question takes half the budget."""
    diary = []

    def ask(private, public):
        sigma = private.meter.noise_for(0.5)
        with contextlib.suppress(AttributeError):
            private.meter.spend = lambda event: None
        for _ in range(50):
            diary.append(private.statistic(CrossMoment(1.0), noise_multiplier=sigma))

    run(method_class, ask)
    assert len(diary) <= 2


def test_the_meter_shows_and_does_not_spend():
    seen = {}

    def ask(private, public):
        view = private.meter
        seen["budget"] = view.budget
        seen["noise"] = view.noise_for(1.0)
        seen["spends"] = hasattr(view, "spend")
        seen["meters"] = [name for name in dir(view) if name[0] != "_" and hasattr(getattr(view, name), "spend")]
        private.statistic(CrossMoment(1.0), noise_multiplier=seen["noise"])

    assert run(method_class, ask) is not None
    assert seen["budget"] == nw.Budget(EPSILON, DELTA) and seen["noise"] > 10
    assert not seen["spends"] and not seen["meters"]


def noise_in_units(private):
    sigma = private.meter.noise_for(0.3)
    return private.statistic(SecondMoment(), noise_multiplier=sigma).noise_std / sigma


HOLDERS = {
    "the meter's": lambda private, first: private.meter.budget,
    "the curator's": lambda private, first: private.facts.budget,
    "those of the beginning": lambda private, first: first.budget,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_relation_cannot_be_changed_while_running(holder):
    """A record less moves a second moment by 1, one replaced by sqrt(2), which is sold as 1/sqrt(2) twice: less noise."""
    first, diary = [], []

    def purse(self, facts):
        first.append(facts)
        return honestly(self, facts)

    def ask(private, public):
        diary.append(noise_in_units(private))
        budget = HOLDERS[holder](private, first[-1])
        object.__setattr__(budget, "adjacency", "replace_one")
        diary.append(noise_in_units(private))
        object.__setattr__(budget, "adjacency", "add_remove")

    assert run(lambda: method_class(**{"terms" if NAMES_TERMS else "meter": purse}), ask) is not None
    assert diary[0] == diary[1]


def test_an_event_of_the_trace_cannot_be_made_cheaper():
    """The trace shows what was charged; changing it there must not change what the next answer costs."""
    diary = []

    def ask(private, public):
        sigma = private.meter.noise_for(0.5) * 1.0000001  # a number of its own, so that no other test is disturbed
        for _ in range(50):
            diary.append(private.gradient(torch.zeros(4), clip=1.0, noise_multiplier=sigma))
            object.__setattr__(private.trace[-1].event, "noise_multiplier", 1e9)

    run(method_class, ask)
    assert 1 <= len(diary) <= 2


# -- freeing oneself ----------------------------------------------------------------------------------------------


SAYS_SO = {
    "on the class": lambda: method_class(private=False),
    "as a property": lambda: method_class(private=property(lambda self: False)),
    "nothing": lambda: method_class(private=None),
    "by heritage": lambda: type("Heir", (Stranger, NonPrivate), {"__init__": Stranger.__init__}),
    "by name": lambda: method_class(private=False, name="nonprivate"),
}


@pytest.mark.parametrize("how", SAYS_SO)
def test_a_method_that_says_it_is_not_private_is_not_given_the_records(how):
    given = []

    def ask(private, public):
        given.append(None if public is None else public.gradient(torch.zeros(4)))

    with pytest.raises(TypeError, match="private"):
        nw.PrivateClassifier(
            EPSILON, DELTA, method=SAYS_SO[how]()(ask), bounds=(-1, 1), classes=[-1, 1], size_is_public=True
        ).fit(X, Y)
    assert given == []


@pytest.mark.guard("it always did")
def test_the_librarys_own_reference_still_runs_and_says_what_it_is():
    for method in ("nonprivate", NonPrivate(steps=20)):
        fitted = nw.PrivateClassifier(EPSILON, DELTA, method=method, bounds=(-1, 1), classes=[-1, 1]).fit(X, Y)
        assert fitted.statement_.data["promise"] is None and fitted.statement_.data["method"]["name"] == "nonprivate"
        assert not nw.verify(fitted.statement_).holds


# -- what the noise cannot deliver --------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [9e-16, 1e-40, 5e-324])
def test_a_delta_that_noise_cannot_deliver_is_refused(delta):
    with pytest.raises(ValueError, match="delta"):
        nw.PrivateClassifier(EPSILON, delta, bounds=(-1, 1), classes=[-1, 1], size_is_public=True).fit(X, Y)


@pytest.mark.parametrize("rate", [2.0**-41, 1e-20, 1e-300])
@pytest.mark.parametrize("batch", ["poisson", "fixed"])
def test_a_rate_that_cannot_be_drawn_is_refused(rate, batch):
    """Almost nobody joins such a batch, so its answers cost almost nothing, if the draw is as rare as it says."""
    answered = []

    def ask(private, public):
        sampling = (batch, rate)
        answered.append(private.gradient(torch.zeros(4), clip=1.0, noise_multiplier=5.0, sampling=sampling))

    def purse(self, facts):
        choose = choice.choose_terms if NAMES_TERMS else choice.choose_meter
        return choose(facts.budget, adaptive=True, sampling=("poisson", 0.01), steps=10)

    kind = method_class(**{"terms" if NAMES_TERMS else "meter": purse})
    run(lambda: kind, ask, adjacency="replace_one")
    assert not answered


def test_a_high_rate_has_a_price_by_renyi_under_replace_one():
    meter = AdditiveMeter(nw.Budget(5.0, 1e-6, "replace_one"), "rdp", order=256)
    meter.spend(nw.events.Poisson(0.9, Gaussian(20.0)))
    assert 0 < meter.spent_fraction < 1
